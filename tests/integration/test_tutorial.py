"""docs/tutorial.md, line by line: the commands that start the services, and the customers' curl lines."""

import asyncio
import json
import os
import re
import shlex
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from waltz_client import WaltzClient
from waltz_testkit.ports import free_port
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"


def _block(number: int) -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    return [str(line) for line in blocks[number].splitlines()]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Path]:
    """The repository as the reader has it after `waltz local up --data ./my-cluster`, but for the HTTP
    ports."""
    assert _block(0) == [".venv/bin/waltz local up --data ./my-cluster"]
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("*.db*"))
    async with LocalCluster(LocalSettings(tmp_path / "my-cluster", servers=1, storage_nodes=1)):
        async with WaltzClient.connect(tmp_path / "my-cluster" / "conf" / "client.yaml") as client:
            for partition in range(client.num_partitions):  # as README's `waltz append` leaves it behind
                await client.append(partition=partition, data=b"hello, log")
        yield tmp_path


async def _answered(session: aiohttp.ClientSession, line: str, ports: dict[str, int]) -> tuple[int, object]:
    """Do what a curl line does."""
    for written, port in ports.items():
        line = line.replace(f"localhost:{written}/", f"127.0.0.1:{port}/")
    words = shlex.split(line)
    assert words[0] == "curl"
    url = f"http://{words[-1]}"
    if words[1] == "-d":
        async with session.post(url, data=words[2]) as answer:
            return answer.status, json.loads(await answer.text())
    async with session.get(url) as answer:
        return answer.status, json.loads(await answer.text())


async def test_the_tutorial(place: Path) -> None:
    ports: dict[str, int] = {}
    processes = []
    for number, name in ((1, "accounts"), (2, "statements")):
        directory, command = _block(number)
        file = place / "examples" / "ledger" / f"{name}.yaml"
        keys = yaml.safe_load(file.read_text())
        ports[str(keys["port"])] = keys["port"] = free_port()
        file.write_text(yaml.safe_dump(keys))
        where = place / directory.removeprefix("cd ")
        processes.append(
            await asyncio.create_subprocess_exec(*shlex.split(command), cwd=where, env={**os.environ})
        )
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            for port in ports.values():
                while True:
                    try:
                        async with session.get(f"http://127.0.0.1:{port}/books/EUR"):
                            break
                    except aiohttp.ClientError:
                        await asyncio.sleep(0.1)
            lines = _block(3)
            answers = [await _answered(session, line, ports) for line in lines[:-1]]
            assert [status for status, _ in answers] == [201, 201, 201, 409, 200]
            assert answers[-1][1] == {"alice": 40, "bob": 60}
            while True:  # the other service hears of it a moment later
                _, statement = await _answered(session, lines[-1], ports)
                if isinstance(statement, list) and len(statement) == 2:
                    break
                await asyncio.sleep(0.05)
            assert statement[1] == {"number": 2, "text": "from alice, rent-may", "amount": 60, "balance": 60}
    finally:
        for process in processes:
            process.terminate()
        codes = [await process.wait() for process in processes]
    assert codes == [0, 0]
