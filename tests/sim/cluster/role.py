"""A role: one host, one process at a time on it, and whoever starts it again when it ends (as an init system
does)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process
from waltz_runtime.process import find_user_error

RESTART_SECONDS = 0.5
TERMINATE_SECONDS = 15.0
"""After this long an orderly end is cut short, as an init system does."""

Unexpected = Callable[[str, str], None]
"""(role, what happened): called when a process ends in a way no fault explains."""


class Role(ABC):
    """Owner: the world. `down` counts the reasons to stay down: it is started again when the last one is
    gone."""

    def __init__(self, loop: SimLoop, name: str, unexpected: Unexpected) -> None:
        self.loop = loop
        self.name = name
        self.host = loop.host(name)
        self.process: Process | None = None
        self.incarnation = 0
        self.down = 0
        self.finished = False
        """Its main has returned on its own and wants no restart (a workload that is done)."""
        self.killed_for_slowness = 0
        """How often an orderly end took too long."""
        self.stop: asyncio.Event | None = None
        self._unexpected = unexpected

    @property
    def alive(self) -> bool:
        """A process of it runs (or is paused)."""
        return self.process is not None and self.process.alive

    @property
    def leaving(self) -> bool:
        """It was asked to end and has not ended yet."""
        return self.alive and self.stop is not None and self.stop.is_set()

    def start(self) -> None:
        """Start it unless it runs, is finished, or has to stay down."""
        if self.alive or self.down or self.finished:
            return
        self.host.power_on()
        self.incarnation += 1
        self.process = self.loop.spawn_process(self.name, self.host, self._run)
        self.process.on_death.append(self._ended)

    def hold(self) -> None:
        """One more reason to stay down."""
        self.down += 1

    def release(self) -> None:
        """One reason less."""
        self.down -= 1
        self.start()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()

    def power_off(self) -> None:
        """The whole host goes dark; peers are not informed."""
        self.host.power_off()

    def terminate(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long."""
        process = self.process
        if process is None or not process.alive:
            return
        self.loop.note(f"terminate {self.name}")
        if self.stop is None:
            process.kill()
            return
        self.stop.set()
        self.loop.kernel_later(TERMINATE_SECONDS, self._too_slow, process)

    def _too_slow(self, process: Process) -> None:
        if process.alive:
            self.killed_for_slowness += 1
            process.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self.process is not None:
            self.process.resume()

    async def _run(self) -> None:
        self.stop = asyncio.Event()
        await self.main(self.stop)

    @abstractmethod
    async def main(self, stop: asyncio.Event) -> None:
        """One life of the process; `stop` is set by SIGTERM."""

    def died(self) -> None:  # noqa: B027 - most roles have nothing to do
        """The process is gone."""

    def foreseen(self, error: BaseException) -> bool:
        """Whether the process may end with this error (a mistake of the surroundings, named in one line, as
        its entry point does)."""
        return find_user_error(error) is not None

    def _ended(self, silent: bool) -> None:
        process = self.process
        error = process.exit_error if process is not None else None
        if error is not None and not self.foreseen(error):
            self._unexpected(self.name, f"ended with {type(error).__name__}: {error}")
        self.died()
        self.loop.kernel_later(RESTART_SECONDS, self.start)
