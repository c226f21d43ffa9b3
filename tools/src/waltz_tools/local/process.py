"""One process of a local cluster: started under the guard, its output in a log file, ended on demand.

Owner: the `LocalCluster` that made it. A process gets a session of its own, so that Ctrl-C in the terminal
reaches only the owner, which then stops everything in order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from waltz_tools.errors import ProcessFailedError
from waltz_tools.local import parent_guard, private

_LOG_TAIL_BYTES = 4096


class ManagedProcess:
    """A named program with start, stop, kill, pause and resume."""

    def __init__(
        self, role: str, command: Sequence[str], log_path: Path, environment: Mapping[str, str]
    ) -> None:
        self.role = role
        self.log_path = log_path
        self._command = tuple(command)
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None
        self._paused = False
        self.stopping = False

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def paused(self) -> bool:
        return self._paused and self.running

    @property
    def pid(self) -> int:
        """The process id; ProcessFailedError when it does not run."""
        return self._alive().pid

    @property
    def exit_code(self) -> int | None:
        """None while running or never started; negative for a signal."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the program; returns when it is under the guard's protection. ProcessFailedError when it runs
        already."""
        if self.running:
            raise ProcessFailedError(f"{self.role} is running already")
        self._paused = self.stopping = False
        reading, writing = os.pipe()
        try:
            # Run as a bare file: no site packages, no package imports, some milliseconds.
            guard = [sys.executable, "-S", "-E", parent_guard.__file__, str(os.getpid()), str(writing)]
            with private.open_log(self.log_path) as log:
                self._process = await asyncio.create_subprocess_exec(
                    *guard,
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**os.environ, **self._environment},
                    pass_fds=(writing,),
                    start_new_session=True,
                )
            os.close(writing)
            writing = -1
            await _end_of_pipe(reading)
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)

    async def wait(self) -> int:
        """The exit code, when it has ended."""
        if self._process is None:
            raise ProcessFailedError(f"{self.role} was never started")
        return await self._process.wait()

    async def stop(self, timeout_seconds: float) -> bool:
        """SIGTERM, and SIGKILL after `timeout_seconds`; True when SIGTERM was enough."""
        if not self.running:
            return True
        self.stopping = True
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.wait()
        except TimeoutError:
            await self.kill()
            return False
        return True

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.running:
            self.stopping = True
            self._signal(signal.SIGKILL)
            await self.wait()

    def pause(self) -> None:
        """SIGSTOP."""
        self._alive()
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT; nothing when it is not paused."""
        if self.paused:
            self._signal(signal.SIGCONT)
        self._paused = False

    def last_words(self) -> str:
        """The line of the log that most likely shows why it ended, for an error message of one line."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                lines = [
                    line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()
                ]
        except OSError:
            return ""
        errors = [line for line in lines if line.startswith("Error:")]
        return (errors or lines or [""])[-1][:300]

    def failure(self, what: str) -> ProcessFailedError:
        """An error of one line that names the log."""
        words = self.last_words()
        return ProcessFailedError(f"{self.role} {what}{f': {words}' if words else ''} (log: {self.log_path})")

    def _alive(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            raise ProcessFailedError(f"{self.role} is not running")
        return self._process

    def _signal(self, number: signal.Signals) -> None:
        send_signal(self._alive(), number)


def send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a child of this process; nothing when it has ended. Its exit code stays the true one.

    `Process.send_signal`, `kill` and `terminate` look first whether the child has ended. When it has in this
    very moment, that look takes the exit code, and who waits for it gets 255 instead.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def _end_of_pipe(reading: int) -> None:
    """Until nobody holds the other end: the guard has become the program, or has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(reading, readable)
    try:
        await ended
    finally:
        loop.remove_reader(reading)
