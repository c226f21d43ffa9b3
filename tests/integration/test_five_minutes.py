"""docs/five-minutes.md as its reader does it: the program as it is there, two offices, a race, a kill."""

import asyncio
import re
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.integration.cli.blocks import blocks
from tests.repo.files import ROOT
from waltz_client import WaltzClient
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.timeout(300)]

PAGE = blocks(ROOT / "docs" / "five-minutes.md", ROOT)
SECONDS = 60.0


class Office:
    """One terminal of the reader."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def guest(self, name: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\n".encode())

    async def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            return [(await self.process.stdout.readline()).decode().strip() for _ in range(count)]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Path]:
    """The repository as the reader has it after the first block, with the program saved."""
    start, program = PAGE[:2]
    assert start.commands == ["make setup", ".venv/bin/waltz local up --data ./my-cluster"]
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "seats.py").write_text(program.text)
    async with LocalCluster(LocalSettings(tmp_path / "my-cluster", servers=1, storage_nodes=1)):
        async with WaltzClient.connect(tmp_path / "my-cluster" / "conf" / "client.yaml") as client:
            await client.append(partition=0, data=b"hello, log")  # as README's `waltz append` leaves it
        yield tmp_path


def _as_in_a_terminal() -> None:
    """A shell ignores the signal of Ctrl-\\ for what it runs in the background, perhaps this test too."""
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@asynccontextmanager
async def office(place: Path, name: str) -> AsyncIterator[Office]:
    (command,) = [block.commands[0] for block in PAGE if block.text.endswith(f"seats.py {name}")]
    process = await asyncio.create_subprocess_exec(
        *command.split(),
        cwd=place,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=_as_in_a_terminal,
    )
    try:
        yield Office(process)
        if process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            async with asyncio.timeout(SECONDS):
                assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _applied(database: Path, bookings: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with closing(sqlite3.connect(database)) as connection:
                if connection.execute("select count(*) from bookings").fetchone() == (bookings,):
                    return
            await asyncio.sleep(0.05)


async def test_the_page(place: Path) -> None:
    async with AsyncExitStack() as open_offices:
        east = await open_offices.enter_async_context(office(place, "east"))
        west = await open_offices.enter_async_context(office(place, "west"))
        east.guest("alice")
        assert sorted(await east.lines(2)) == ["seat 1 for alice", "seat 1 is taken by alice"]
        assert await west.lines(1) == ["seat 1 is taken by alice"]

        east.guest("bob")
        west.guest("carol")
        said = [await each.lines(3) for each in (east, west)]
        taken = [sorted(line for line in lines if "taken" in line) for lines in said]
        assert taken[0] == taken[1]
        answers = sorted(line for lines in said for line in lines if " for " in line)
        assert [line[:6] for line in answers] == ["seat 2", "seat 3"]
        assert {line.split()[-1] for line in answers} == {"bob", "carol"}

        await _applied(place / "east.db", 3)  # what is printed is not committed yet
        east.process.send_signal(signal.SIGQUIT)  # Ctrl-\ in its terminal
        async with asyncio.timeout(SECONDS):
            assert await east.process.wait() == -signal.SIGQUIT
        west.guest("dave")
        assert sorted(await west.lines(2)) == ["seat 4 for dave", "seat 4 is taken by dave"]
        west.guest("erin")
        assert await west.lines(1) == ["sold out"]
        async with office(place, "east") as east:
            assert await east.lines(1) == ["seat 4 is taken by dave"]
            await _applied(place / "east.db", 4)
            east.process.send_signal(signal.SIGINT)  # Ctrl-C, while it waits for the next guest
            async with asyncio.timeout(SECONDS):
                assert await east.process.wait() == -signal.SIGINT
        async with office(place, "east") as east:
            east.guest("frank")
            assert await east.lines(1) == ["sold out"]

    (place / "east.db").unlink()
    async with office(place, "east") as east:
        assert [line[:6] for line in await east.lines(4)] == [f"seat {seat}" for seat in (1, 2, 3, 4)]


async def test_without_a_name_it_says_how_it_is_called(place: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(".venv/bin/python", "seats.py"), cwd=place, stderr=asyncio.subprocess.PIPE
    )
    _, error = await process.communicate()
    assert (process.returncode, error.decode()) == (1, "usage: seats.py NAME-OF-THE-OFFICE\n")


def test_every_block_is_run() -> None:
    programs = [block.text for block in PAGE[2:]]
    assert all(re.fullmatch(r"\.venv/bin/python seats\.py (east|west)", text) for text in programs)
