"""`make demo` with few rows, by the command that make prints: two kills, PASS, and the figures as JSON."""

import asyncio
import json
import os

import pytest

from tests.integration.recipes import recipe
from tests.repo.files import ROOT

pytestmark = [pytest.mark.timeout(300)]


async def test_demo_passes_over_kills_of_a_storage_node_and_a_server() -> None:
    assert recipe("demo", "ROWS=7").endswith("-m flights --rows 7")
    process = await asyncio.create_subprocess_shell(
        f"exec env {recipe('demo')} --output json",
        cwd=ROOT,
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
