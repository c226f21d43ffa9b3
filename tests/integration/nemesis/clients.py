"""Starts, kills and starts again the load processes; each start is a new incarnation with a journal of its
own."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from waltz_tools.local.process import ManagedProcess

CLIENTS: Mapping[str, str] = {
    "bank-1": "bank",
    "bank-2": "bank",
    "counters-1": "counters",
    "blind-1": "blind",
    "feed-1": "feed",
    "feed-2": "slow-feed",
    "consumer-1": "consumer",
}
"""Name of each load process and its kind."""
WRITERS = ("bank-1", "bank-2", "counters-1", "blind-1")
READERS = tuple(role for role in CLIENTS if role not in WRITERS)
_STOP_SECONDS = 40.0
_SEARCH_PATH = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])


class LoadProcesses:
    """Owner of the load processes. They take the files in turn: the second role begins with the second one,
    and each start of a role takes the next one."""

    def __init__(self, directory: Path, configs: Sequence[Path], seed: int) -> None:
        self.directory = directory
        self._configs = configs
        self._seed = seed
        self._processes: dict[str, ManagedProcess] = {}
        self._starts = dict.fromkeys(CLIENTS, 0)
        directory.mkdir(parents=True, exist_ok=True)

    async def start(self, role: str) -> None:
        config = self._configs[(self._starts[role] + tuple(CLIENTS).index(role)) % len(self._configs)]
        self._starts[role] += 1
        name = f"{role}.{self._starts[role]}"
        command = [sys.executable, "-m", "tests.integration.nemesis.load", CLIENTS[role], name]
        command += [str(config), str(self.directory), str(self._seed)]
        process = ManagedProcess(name, command, self.directory / f"{role}.log", {"PYTHONPATH": _SEARCH_PATH})
        self._processes[role] = process
        await process.start()

    def process(self, role: str) -> ManagedProcess:
        return self._processes[role]

    def is_running(self, role: str) -> bool:
        return role in self._processes and self._processes[role].running

    def pids(self) -> dict[str, int]:
        return {role: process.pid for role, process in self._processes.items() if process.running}

    async def stop(self, role: str) -> bool:
        """SIGTERM; True when it ended on its own in time."""
        return await self._processes[role].stop(_STOP_SECONDS)

    async def kill_all(self) -> None:
        """At the end, whatever happened."""
        for process in self._processes.values():
            process.resume()
            await process.kill()
