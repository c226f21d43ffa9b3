"""Processes and hosts of the simulated machine.

A process owns everything that its code started: the owner travels in a context variable, which tasks and
callbacks inherit. A killed process never runs again, not even its `finally` blocks: its handles are dropped
by the loop and its coroutines stay suspended until the world ends. That is what SIGKILL does.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.kernel.loop import SimHandle, SimLoop

EPOCH_MS = 1_600_000_000_000
"""Wall clock of a host without skew at virtual time 0."""

CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class ProcessKilled(BaseException):
    """The process ended inside this very call. Not an `Exception`: no handler of the code under test may
    catch it."""


class Host:
    """A machine: what a power cut takes down together, and what has one clock and one network address."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.clock_skew_seconds = 0.0
        self.stood_still = 0.0
        """Seconds for which its monotonic clock did not move (see `SimLoop.suspend`)."""
        self.suspended_at: float | None = None
        self.stopped_timers: list[SimHandle] = []
        """Timers that the rest of the world takes for due, while it is suspended."""
        self.processes: list[Process] = []

    def power_off(self) -> None:
        """All processes end, and the peers are not informed: no FIN, no RST."""
        self.up = False
        for process in list(self.processes):
            process.kill(silent=True)

    def power_on(self) -> None:
        """The kernel answers again (it knows no old connection); processes are started by who wants them."""
        self.up = True


class Process:
    """One process. Made by `SimLoop.spawn_process`."""

    def __init__(self, loop: SimLoop, name: str, host: Host) -> None:
        self.loop, self.name, self.host = loop, name, host
        self.alive = True
        self.paused = False
        self.exit_error: BaseException | None = None
        self.held: deque[SimHandle] = deque()
        self.tasks: list[weakref.ref[asyncio.Task[Any]]] = []
        """All its tasks; those that are done may be gone."""
        self.on_death: list[Callable[[bool], None]] = []
        """Called once with `silent` when the process ends for whatever reason (sockets, file locks,
        sessions)."""
        self.context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)
        self._ended = asyncio.Event()

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `main`; the process exits when it returns."""
        self.context.run(self._start, main)

    def _start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            try:
                await main()
            except ProcessKilled:
                pass
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.exit_error = error
            if self.alive:
                self.loop.note(f"exit {self.exit_error!r}" if self.exit_error is not None else "exit")
                self._die(silent=False)

        self.loop.create_task(run(), name=f"{self.name} main")

    def kill(self, *, silent: bool = False) -> None:
        """SIGKILL; `silent`: as in a power cut, peers are not informed. Idempotent."""
        if self.alive:
            self.loop.note(f"kill {self.name}{' silently' if silent else ''}")
            self._die(silent=silent)

    def _die(self, *, silent: bool) -> None:
        self.alive = False
        self.paused = False
        self.loop.bury(self)
        self.held.clear()  # nothing else may refer to a task that was to be woken
        if self in self.host.processes:
            self.host.processes.remove(self)
        for action in list(self.on_death):  # they take themselves off it
            action(silent)
        self.on_death.clear()
        self._ended.set()

    def pause(self) -> None:
        """SIGSTOP: nothing of it runs; its kernel still takes connections and data until the buffers are
        full."""
        if self.alive:
            self.loop.note(f"pause {self.name}")
            self.paused = True

    def resume(self) -> None:
        """SIGCONT: what became due meanwhile runs now."""
        if self.paused and self.host.suspended_at is None:
            self.loop.note(f"resume {self.name}")
            self.paused = False
            self.loop.release(self.held)

    def monotonic(self) -> float:
        """Its `loop.time()`, for who looks at it from outside."""
        now = self.loop.now if self.host.suspended_at is None else self.host.suspended_at
        return now - self.host.stood_still

    def wall_ms(self) -> int:
        """The wall clock of its host, in milliseconds."""
        return EPOCH_MS + int((self.loop.now + self.host.clock_skew_seconds) * 1000)

    async def wait_ended(self) -> None:
        """Wait until the process is gone."""
        await self._ended.wait()


def current() -> Process | None:
    """The process whose code is running; `None` for the simulator itself."""
    return CURRENT.get()


def check_alive() -> None:
    """For every system call of the simulated machine: code of a dead process gets no further."""
    process = CURRENT.get()
    if process is not None and not process.alive:
        raise ProcessKilled
