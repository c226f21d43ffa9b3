"""docs/tutorial.md, line by line: the commands that start the services, and the customers' curl lines."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.integration.service_pages import services, until_answered
from waltz_client import WaltzClient
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


async def test_the_tutorial(place: Path) -> None:
    async with services(place) as both, aiohttp.ClientSession() as session, asyncio.timeout(240):
        for number, name in ((1, "accounts"), (2, "statements")):
            directory, command = _block(number)
            await both.start(directory, command, place / "examples" / "ledger" / f"{name}.yaml")
        for port in both.ports.values():
            await until_answered(session, f"http://127.0.0.1:{port}/books/EUR")
        lines = _block(3)
        answers = [await both.curl(session, line) for line in lines[:-1]]
        assert [status for status, _ in answers] == [201, 201, 201, 409, 200]
        assert json.loads(answers[-1][1]) == {"alice": 40, "bob": 60}
        while True:  # the other service hears of it a moment later
            statement = json.loads((await both.curl(session, lines[-1]))[1])
            if isinstance(statement, list) and len(statement) == 2:
                break
            await asyncio.sleep(0.05)
        assert statement[1] == {"number": 2, "text": "from alice, rent-may", "amount": 60, "balance": 60}
