"""`waltz demo` with few rows: two kills, PASS, and the figures as JSON."""

import asyncio
import json
import os
import sys

import pytest

pytestmark = [pytest.mark.timeout(300)]


async def test_demo_passes_over_kills_of_a_storage_node_and_a_server() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "waltz_tools", "demo", "--output", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "ROWS": "4000"},
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    facts = json.loads(out)
    assert facts["passed"] is True
    assert facts["findings"] == []
    assert facts["transactions"] == 4_000
    assert facts["lock_conflicts"] > 0
    assert [pause["killed"] for pause in facts["pauses"]] == ["storage-3", "server-1"]
