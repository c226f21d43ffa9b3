"""Disk threads on virtual time whose code runs in steps: the executor of a storage node with a journal.

The code of a job stops in each system call that takes time, and continues when that time is over. So jobs
that run at the same time see what the others have done, on the disk and in memory, in the order in which
threads would show it: a mark that one sets behind its writes is not there before them, and what one deletes
later is still there. (`executor` runs the code of a job at once; jobs of different partitions have no such
marks for one another.)

A sync takes along what was written before it began, and is done when its time is over. A process that is
killed, paused or without power stops wherever its jobs are.

Changes in the page cache take a moment too. Two rules differ from real threads. Between two system calls no
other job runs. And a lock that a job may hold in a call that takes time has to be one of
`SteppedExecutor.lock`: any other would stop the world.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, TypeVar

from greenlet import greenlet

from tests.sim.kernel.disk import SimDisk
from tests.sim.kernel.executor import WORK, Job, SimExecutor
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process, ProcessKilled

K = TypeVar("K")


class _Running:
    """A job that has begun. `changed`: what it has changed so far of what is observed."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.code = greenlet(self._run)
        self.code.gr_context = job.context.copy()
        self.value: Any = None
        self.error: BaseException | None = None
        self.changed: dict[int, Any] = {}

    def _run(self) -> None:
        try:
            self.value = self.job.run()
        except ProcessKilled:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.error = error


class SteppedLock:
    """A lock among the jobs of one executor: `threading.Lock`, as far as `with` goes."""

    def __init__(self, executor: SteppedExecutor[Any]) -> None:
        self._executor = executor
        self._held = False
        self._waiting: deque[_Running] = deque()

    def __enter__(self) -> None:
        while self._held:
            self._executor.wait_for(self._waiting)
        self._held = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = False
        if self._waiting:
            self._executor.wake(self._waiting.popleft())


class SteppedExecutor(SimExecutor[K]):
    """See the module. Owner: the loop."""

    def __init__(self, loop: SimLoop, disk: SimDisk, process: Process, *, threads: int = 4) -> None:
        super().__init__(loop, disk, process, threads=threads)
        self._begun: dict[_Running, None] = {}
        self._stepping: _Running | None = None
        loop.at_end.append(self._unwind)

    def lock(self) -> SteppedLock:
        """For what a job may hold in a system call that takes time."""
        return SteppedLock(self)

    def wait_for(self, waiting: deque[_Running]) -> None:
        """The job that is running waits among others until it is woken."""
        running = self._stepping
        if running is None:
            raise RuntimeError("a job holds the lock, and nothing else can wait for it")
        waiting.append(running)
        self._pause(running)

    def wake(self, running: _Running) -> None:
        """A job that waits continues."""
        self._loop.call_soon(self._step, running, context=running.job.context)

    def _run(self, job: Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            self._free_thread()
            return
        running = _Running(job)
        self._begun[running] = None
        self._loop.call_later(WORK.draw(self._rng), self._step, running, context=job.context)

    def _wait(self, seconds: float) -> None:
        """The job that is running is in a system call that takes so long."""
        running = self._stepping
        if running is None:
            raise RuntimeError("no job is running")
        self._loop.call_later(seconds, self._step, running, context=running.job.context)
        self._pause(running)

    def _pause(self, running: _Running) -> None:
        parent = running.code.parent
        if parent is None or not self._process.alive:
            raise ProcessKilled(self._process.name)
        parent.switch()

    def _step(self, running: _Running) -> None:
        before = self._observed()
        self._stepping, self._disk.wait = running, self._wait
        try:
            running.code.switch()
        finally:
            self._stepping = self._disk.wait = None
            if running.code.dead:
                del self._begun[running]
        if not self._process.alive:
            return
        running.changed.update(self._changed(before))
        if running.code.dead:
            self._end(running)

    def _end(self, running: _Running) -> None:
        crash, self._crash = self._crash, None
        if crash is not None:
            crash()
        if self._process.alive:
            self._deliver(running.job, running.value, running.error, running.changed)

    def _unwind(self) -> None:
        """The world is over, and with it what its jobs have not finished."""
        self._process.alive = False
        for running in list(self._begun):
            if running.code:
                running.code.throw(ProcessKilled(self._process.name))
        self._begun.clear()
