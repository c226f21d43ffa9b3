"""What tests of an example's page share: services on ports of their own, asked by the page's curl lines."""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml

from waltz_testkit.ports import free_port


class Services:
    """Started by the lines of a page. `ports`: the one that the page names → the one that it is here."""

    def __init__(self, place: Path) -> None:
        self.ports: dict[str, int] = {}
        self._place = place
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self, directory: str, command: str, file: Path) -> None:
        """`cd DIRECTORY` and the command; `file`: its configuration, whose port is changed."""
        keys = yaml.safe_load(file.read_text())
        self.ports[str(keys["port"])] = keys["port"] = free_port()
        file.write_text(yaml.safe_dump(keys))
        where = self._place / directory.removeprefix("cd ")
        self._processes.append(
            await asyncio.create_subprocess_exec(*shlex.split(command), cwd=where, env={**os.environ})
        )

    async def end(self) -> list[int]:
        """Their exit codes."""
        for process in self._processes:
            process.terminate()
        return [await process.wait() for process in self._processes]

    async def curl(self, session: aiohttp.ClientSession, line: str) -> tuple[int, str]:
        """Do what a curl line does: status and body."""
        for written, port in self.ports.items():
            line = line.replace(f"localhost:{written}/", f"127.0.0.1:{port}/")
        curl, *words, url = shlex.split(line)
        assert curl == "curl"
        assert words[:1] in ([], ["-d"], ["-X"])
        data = words[1] if words[:1] == ["-d"] else None
        async with session.request("POST" if words else "GET", f"http://{url}", data=data) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def services(place: Path) -> AsyncIterator[Services]:
    """They end in order with the block: AssertionError for another exit code than 0."""
    started = Services(place)
    try:
        yield started
    finally:
        codes = await started.end()
    assert set(codes) == {0}


async def until_answered(session: aiohttp.ClientSession, url: str, *statuses: int) -> None:
    """With one of these statuses; with any, when none is given."""
    while True:
        try:
            async with session.get(url) as answer:
                if not statuses or answer.status in statuses:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
