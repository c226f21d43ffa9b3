"""examples/inventory/README.md as its reader does it, line by line."""

import asyncio
import json
import os
import shlex
import shutil
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.integration.cli.blocks import blocks
from tests.repo.files import ROOT
from waltz_testkit.ports import free_port
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PAGE = blocks(ROOT / "examples" / "inventory" / "README.md", ROOT)


async def _answered(session: aiohttp.ClientSession, line: str, ports: dict[str, int]) -> tuple[int, str]:
    """Do what a curl line does."""
    for written, port in ports.items():
        line = line.replace(f"localhost:{written}/", f"127.0.0.1:{port}/")
    curl, *words, url = shlex.split(line)
    assert curl == "curl"
    assert words[:1] in ([], ["-d"], ["-X"])
    data = words[1] if words[:1] == ["-d"] else None
    async with session.request("POST" if words else "GET", f"http://{url}", data=data) as answer:
        return answer.status, await answer.text()


async def test_the_page(tmp_path: Path) -> None:
    start, *terminals, customers = PAGE
    assert start.commands == [".venv/bin/waltz local up --data ./my-cluster"]
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    example = tmp_path / "examples" / "inventory"
    shutil.copytree(ROOT / "examples" / "inventory", example, ignore=shutil.ignore_patterns("*.db*"))
    ports: dict[str, int] = {}
    processes = []
    async with LocalCluster(LocalSettings(tmp_path / "my-cluster", servers=1, storage_nodes=1)):
        for terminal in terminals:
            directory, command = terminal.commands
            file = example / shlex.split(command)[-1]
            keys = yaml.safe_load(file.read_text())
            ports[str(keys["port"])] = keys["port"] = free_port()
            file.write_text(yaml.safe_dump(keys))
            where = tmp_path / directory.removeprefix("cd ")
            processes.append(
                await asyncio.create_subprocess_exec(*shlex.split(command), cwd=where, env={**os.environ})
            )
        try:
            async with aiohttp.ClientSession() as session, asyncio.timeout(60):
                for port in ports.values():
                    while True:
                        try:
                            async with session.get(f"http://127.0.0.1:{port}/health") as answer:
                                if answer.status == 200:
                                    break
                        except aiohttp.ClientError:
                            pass
                        await asyncio.sleep(0.1)
                answers = [await _answered(session, line, ports) for line in customers.commands]
        finally:
            for process in processes:
                process.terminate()
            codes = [await process.wait() for process in processes]
    assert codes == [0, 0]
    assert [status for status, _ in answers] == [201, 201, 409, 201, 200, 200, 200, 200, 200]
    assert json.loads(answers[4][1]) == {"on_hand": 3, "reserved": 2, "available": 1}
    assert json.loads(answers[6][1])["state"] == "shipped"
    assert "waltz_client_append_seconds_count" in answers[8][1]
