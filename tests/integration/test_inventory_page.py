"""examples/inventory/README.md as its reader does it, line by line."""

import asyncio
import json
import shlex
import shutil
from pathlib import Path

import aiohttp
import pytest

from tests.integration.cli.blocks import blocks
from tests.integration.service_pages import services, until_answered
from tests.repo.files import ROOT
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PAGE = blocks(ROOT / "examples" / "inventory" / "README.md", ROOT)


async def test_the_page(tmp_path: Path) -> None:
    start, *terminals, customers = PAGE
    assert start.commands == [".venv/bin/waltz local up --data ./my-cluster"]
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    example = tmp_path / "examples" / "inventory"
    shutil.copytree(ROOT / "examples" / "inventory", example, ignore=shutil.ignore_patterns("*.db*"))
    async with (
        LocalCluster(LocalSettings(tmp_path / "my-cluster", servers=1, storage_nodes=1)),
        services(tmp_path) as instances,
        aiohttp.ClientSession() as session,
        asyncio.timeout(240),
    ):
        for terminal in terminals:
            directory, command = terminal.commands
            await instances.start(directory, command, example / shlex.split(command)[-1])
        for port in instances.ports.values():
            await until_answered(session, f"http://127.0.0.1:{port}/health", 200)
        answers = [await instances.curl(session, line) for line in customers.commands]
    assert [status for status, _ in answers] == [201, 201, 409, 201, 200, 200, 200, 200, 200]
    assert json.loads(answers[4][1]) == {"on_hand": 3, "reserved": 2, "available": 1}
    assert json.loads(answers[6][1])["state"] == "shipped"
    assert "waltz_client_append_seconds_count" in answers[8][1]
