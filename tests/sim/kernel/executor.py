"""Disk threads on virtual time: the executor that a storage node's disk pool gets.

A job waits for a free thread and a moment more, then its code runs at once, in one step, in the context of
the process that submitted it. The virtual time that its system calls took is charged afterwards: a callback
it hands to the loop (`call_soon_threadsafe`) runs as late as the job was old when it did so, its future is
settled when all its time is over. Until then the thread is busy and other things happen: packets, timers,
kills.

A process that is killed between a job's effects and their delivery has done what it reports to nobody; one
that is killed at a system call inside the job (`SimDisk.crash_after_calls`) has done a part. Both can be
ordered here (`SimExecutor.crash_next_job`).

Because a job's code runs ahead of its time, the memory of a process may know of things that are not on the
disk yet. Who compares memory and disk after a power cut sets `SimExecutor.observe` and uses
`SimExecutor.told`.

With a journal the jobs of a node leave marks for one another; `stepped` is for those.

One rule differs from real threads: `Future.result()` of a job that has not run blocks forever, for there
is no other thread; so directories are opened with `run_in_order`.
"""

from __future__ import annotations

import contextvars
import enum
import functools
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, Generic, ParamSpec, TypeVar

from tests.sim.kernel.disk import Seconds, SimDisk
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process, ProcessKilled

P = ParamSpec("P")
T = TypeVar("T")

WAKE = Seconds(0.000005, 0.0002)  # until a thread runs the job
WORK = Seconds(0.00001, 0.0001)  # what a job takes besides its system calls
_MOST_CALLS_INSIDE = 8


class Moment(enum.Enum):
    """Where in a job the process ends."""

    INSIDE = "inside"  # before one of its system calls
    UNDELIVERED = "undelivered"  # everything is done, nobody has been informed


class Job:
    """What was submitted."""

    def __init__(
        self, run: functools.partial[Any], future: Future[Any], context: contextvars.Context
    ) -> None:
        self.run, self.future, self.context = run, future, context


K = TypeVar("K")


class SimExecutor(Executor, Generic[K]):
    """A bounded number of disk threads of one process. Owner: the loop. `K`: what is observed."""

    def __init__(self, loop: SimLoop, disk: SimDisk, process: Process, *, threads: int = 4) -> None:
        self._loop, self._disk, self._process = loop, disk, process
        self._rng = loop.rng(f"executor {process.name} {loop.now}")
        self._free = threads
        self._waiting: deque[Job] = deque()
        self._crash: Callable[[], object] | None = None
        self._closed = False
        self.observe: Callable[[], Mapping[int, K]] | None = None
        """What is to be known of the process, by partition; called before and after each job."""
        self.told: dict[int, K] = {}
        """What the jobs whose time is over have changed in it. (No two jobs at once work on one
        partition.)"""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See the module."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        run = functools.partial(fn, *args, **kwargs)
        self._waiting.append(Job(run, future, contextvars.copy_context()))
        self._start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs. Never waits: nothing else could run meanwhile."""
        self._closed = True
        while cancel_futures and self._waiting:
            self._waiting.popleft().future.cancel()

    def crash_next_job(self, moment: Moment, crash: Callable[[], object]) -> None:
        """Call `crash` (which must end the process) at a moment of the next job."""
        if moment is Moment.INSIDE:
            self._disk.crash_after_calls(self._rng.randrange(_MOST_CALLS_INSIDE), crash)
        else:
            self._crash = crash

    def cancel_crash(self) -> None:
        """Forget an ordered crash that has not happened."""
        self._crash = None

    def _start(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            job = self._waiting.popleft()
            self._loop.call_later(WAKE.draw(self._rng), self._run, job, context=job.context)

    def _run(self, job: Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            self._free_thread()
            return
        error: BaseException | None = None
        value: Any = None
        disk = self._disk
        before = self._observed()
        disk.charged, disk.in_job = WORK.draw(self._rng), True
        self._loop.thread_seconds = lambda: disk.charged
        try:
            value = job.run()
        except ProcessKilled:
            return
        except BaseException as raised:
            error = raised
        finally:
            self._loop.thread_seconds, disk.in_job = None, False
        changed = self._changed(before)
        self._loop.call_later(disk.charged, self._deliver, job, value, error, changed, context=job.context)
        self._crash_before_delivery(disk.charged)

    def _observed(self) -> Mapping[int, K]:
        return {} if self.observe is None else self.observe()

    def _changed(self, before: Mapping[int, K]) -> dict[int, K | None]:
        """What is observed now and was another one before, or none; `None` for what is gone."""
        after = self._observed()
        changed: dict[int, K | None] = {
            key: now for key, now in after.items() if key not in before or before[key] != now
        }
        changed.update(dict.fromkeys(key for key in before if key not in after))
        return changed

    def _crash_before_delivery(self, seconds: float) -> None:
        crash, self._crash = self._crash, None
        if crash is not None:
            self._loop.kernel_later(seconds * self._rng.random(), crash)

    def _deliver(
        self, job: Job, value: Any, error: BaseException | None, changed: Mapping[int, K | None]
    ) -> None:
        for key, known in changed.items():
            if known is None:
                self.told.pop(key, None)
            else:
                self.told[key] = known
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(value)
        self._free_thread()

    def _free_thread(self) -> None:
        self._free += 1
        self._start()
