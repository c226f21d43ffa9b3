"""An asyncio event loop on virtual time that runs the processes of a whole cluster.

Time passes only when nothing is left to do, and then jumps to the next timer. Order is decided by time and by
the order of scheduling, so one seed gives one run. Handles of a killed process are dropped, those of a paused
one wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import logging
import math
import random
import socket
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context as _copy_context
from heapq import heappop, heappush
from typing import Any

from tests.sim.kernel.network import SimNetwork
from tests.sim.kernel.process import CURRENT, Host, Process, ProcessKilled
from tests.sim.kernel.trace import Trace

KERNEL = contextvars.Context()
"""Context of what belongs to no process: packets on their way, the simulator's own timers."""


NO_TIMER = -1.0


class StuckError(Exception):
    """Nothing can happen any longer, or too much happens at one moment."""


class TooSlowError(KeyboardInterrupt):
    """Somebody outside has given up waiting. A KeyboardInterrupt, because every loop lets those through."""


class SimHandle:
    """What `asyncio.Handle` and `asyncio.TimerHandle` are, as far as anybody uses them; it
    knows its process."""

    __slots__ = ("args", "callback", "cancelled_", "context", "due", "process", "stood")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        due: float,
        process: Process | None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.due = due
        self.process = process
        self.cancelled_ = False
        self.stood = NO_TIMER
        """A timer on the clock of its host: how long that had stood still when `due` was worked out."""

    def cancel(self) -> None:
        """It will not run."""
        self.cancelled_ = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.cancelled_

    def when(self) -> float:
        """The virtual second it is due."""
        return self.due


def _nothing() -> None:
    """What a cancelled handle would run."""


class SimTask(asyncio.Task[Any]):
    """A task with a hash that does not depend on its address: sets of tasks have the same order in every
    run."""

    _numbers = itertools.count()

    def __init__(self, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = next(SimTask._numbers)
        context = options.get("context")
        self.process: Process | None = CURRENT.get() if context is None else context.get(CURRENT)
        super().__init__(coro, **options)
        if self.process is not None:
            self.process.tasks.append(weakref.ref(self))

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """See the module. `loop.network` carries connections, `loop.rng(name)` gives independent random
    streams."""

    def __init__(self, seed: int | str, trace: Trace | None = None, *, step_limit: int = 50_000_000) -> None:
        super().__init__()
        self.seed = seed
        self.trace = Trace() if trace is None else trace
        self.steps = 0
        self.step_limit = step_limit
        self.turn_limit = 200_000
        """Turns without time passing before the run counts as stuck."""
        self.errors: list[dict[str, Any]] = []
        """What the exception handler was given, dead processes left out."""
        self.thread_seconds: Callable[[], float] | None = None
        """While a job of a disk thread runs (see `executor`): virtual seconds it has taken so far."""
        self.hosts: dict[str, Host] = {}
        self._now = 0.0
        self._clocks_differ = False  # some host has been suspended
        self._queue: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._sequence = itertools.count()
        self._turns = 0
        self.ended = False
        """The world is over; what still runs is the clearing of its remains."""
        self._graves: list[asyncio.Task[Any]] = []
        self.at_end: list[Callable[[], object]] = []
        """Called when the world ends: what asyncio does not know of ends too."""
        SimTask._numbers = itertools.count()
        self.network = SimNetwork(self)
        self.set_task_factory(_make_task)
        self.set_exception_handler(_note_error)

    # -- the simulated machine ----------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The host of this name, made when first asked for."""
        if name not in self.hosts:
            self.hosts[name] = Host(name)
        return self.hosts[name]

    def spawn_process(self, name: str, host: Host, main: Callable[[], Coroutine[Any, Any, None]]) -> Process:
        """Start a process that runs `main()`."""
        process = Process(self, name, host)
        host.processes.append(process)
        self.note(f"start {name}")
        process.start(main)
        return process

    def rng(self, name: str) -> random.Random:
        """A stream of random numbers that depends on the seed and the name only."""
        return random.Random(f"{self.seed}/{name}")

    def note(self, what: str) -> None:
        """Put an event of the running process into the trace."""
        if self.ended:  # a finalizer of what was suspended when the world ended
            return
        process = CURRENT.get()
        self.trace.add(self._now, "-" if process is None else process.name, what)

    def bury(self, process: Process) -> None:
        """Keep the coroutines of a dead process suspended, so that nothing of them runs."""
        for known in process.tasks:
            task = known()
            if task is not None and not task.done():
                self._graves.append(task)
        process.tasks.clear()

    def release(self, held: deque[SimHandle]) -> None:
        """Run what a paused process has waiting."""
        self._queue.extend(held)
        held.clear()

    def suspend(self, host: Host) -> None:
        """A virtual machine stops between two instructions: nothing of it runs and its monotonic clock does
        not move, until `wake`. (What others send to it is a matter of the links: its kernel does not
        answer either.)"""
        if host.suspended_at is None:
            self.note(f"suspend {host.name}")
            self._clocks_differ = True
            for process in host.processes:
                process.pause()
            host.suspended_at = self._now

    def wake(self, host: Host) -> None:
        """It runs on as if no time had passed: what was to happen in a second happens in a second."""
        if host.suspended_at is None:
            return
        self.note(f"wake {host.name} after {self._now - host.suspended_at:.3f}")
        host.stood_still += self._now - host.suspended_at
        host.suspended_at = None
        stopped, host.stopped_timers = host.stopped_timers, []
        for handle in stopped:
            self._postponed(handle)
        for process in host.processes:
            process.resume()

    def run(self, main: Coroutine[Any, Any, Any], *, collect: bool = True) -> Any:
        """Run `main` outside any process to its end; then the world ends, with everything that is still
        suspended.

        Without `collect` there is no collection of garbage until somebody calls `collect_remains`,
        which he does when the last reference to this world is gone.
        """
        collecting = gc.isenabled()
        gc.disable()  # a collection at another moment would run finalizers in another order
        try:
            return self.run_until_complete(main)
        finally:
            self._end_world()
            if collect:
                collect_remains(enable=collecting)

    def _end_world(self) -> None:
        """Coroutines that are still suspended are closed; what their cleaning up says interests nobody."""
        self.ended = True
        with _silent_finalizers():
            _say_nothing(asyncio.all_tasks(self))
            self._queue.clear()
            self._timers.clear()
            self._graves.clear()
            for action in self.at_end:
                action()
            self.at_end.clear()
            self.close()

    # -- what asyncio asks of a loop ------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds of the world. `time()` is what the running process takes for it."""
        return self._now

    def time(self) -> float:
        return self._now - self._stood_still() if self._clocks_differ else self._now

    def _stood_still(self) -> float:
        process = CURRENT.get()
        return 0.0 if process is None else process.host.stood_still

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        if context is None:
            handle = SimHandle(callback, args, _copy_context(), self._now, CURRENT.get())
        else:
            handle = SimHandle(callback, args, context, self._now, context.get(CURRENT))
        if not self.ended:
            self._queue.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        if self.thread_seconds is not None:
            return self.call_later(self.thread_seconds(), callback, *args, context=context)
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        if self._clocks_differ:
            when = _in_the_world(when, self._stood_still())
        return self._set_timer(when, callback, args, context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        due = self._now + delay
        if self._clocks_differ and delay > 0.0 and due <= self._now:  # rounded away, and time must pass
            due = math.nextafter(self._now, math.inf)
        return self._set_timer(due, callback, args, context)

    def _set_timer(
        self,
        due: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> SimHandle:
        if context is None:
            handle = SimHandle(callback, args, _copy_context(), due, CURRENT.get())
        else:
            handle = SimHandle(callback, args, context, due, context.get(CURRENT))
        if handle.process is not None:
            handle.stood = handle.process.host.stood_still
        if not self.ended:
            heappush(self._timers, (due, next(self._sequence), handle))
        return handle

    def deliver_at(self, when: float, callback: Callable[..., object], context: contextvars.Context) -> None:
        """Something arrives at `when`, by the time of the world, whatever the clock of the receiver
        does."""
        handle = SimHandle(callback, (), context, when, context.get(CURRENT))
        if not self.ended:
            heappush(self._timers, (when, next(self._sequence), handle))

    def kernel_later(self, delay: float, callback: Callable[..., object], *args: Any) -> SimHandle:
        """A timer that belongs to no process."""
        due = self._now + delay
        handle = SimHandle(callback, args, KERNEL, due, None)
        if not self.ended:
            heappush(self._timers, (due, next(self._sequence), handle))
        return handle

    def run_in(self, process: Process, callback: Callable[[], object]) -> None:
        """From the kernel into a process: at once when it can run, else when it can."""
        if process.paused or CURRENT.get() is not None:
            self.call_soon(callback, context=process.context)
        elif process.alive:
            self.steps += 1
            try:
                process.context.run(callback)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._failed(SimHandle(callback, (), process.context, self._now, process), error)

    def _run_once(self) -> None:
        """Turn after turn until somebody stops the loop: asyncio asks for one, but its way round costs as
        much as a turn."""
        queue, take, kernel = self._queue, self._queue.popleft, KERNEL
        while True:
            self._next_moment()
            for _ in range(len(queue)):
                handle = take()
                if handle.cancelled_:
                    continue
                process = handle.process
                if process is not None:
                    if not process.alive:
                        continue
                    if process.paused:
                        process.held.append(handle)
                        continue
                try:
                    if handle.context is kernel:
                        # in the context of the loop, which has no process either
                        handle.callback(*handle.args)
                    else:
                        handle.context.run(handle.callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._failed(handle, error)
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _next_moment(self) -> None:
        """Put into the queue what is due now; when nothing is, let time pass."""
        queue, timers, now = self._queue, self._timers, self._now
        if not queue:
            while timers and timers[0][2].cancelled_:
                heappop(timers)
            if not timers:
                raise StuckError(f"at {now:.3f} s: nothing is left that could happen")
            if timers[0][0] > now:
                now = self._now = timers[0][0]
                self._turns = 0
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            if not handle.cancelled_ and not (self._clocks_differ and self._postponed(handle)):
                queue.append(handle)
        self._turns += 1
        if self._turns > self.turn_limit:
            raise StuckError(f"at {now:.3f} s: {self._turns} turns without time passing")
        self.steps += len(queue)
        if self.steps > self.step_limit:
            raise StuckError(f"at {now:.3f} s: more than {self.step_limit} steps")

    def _postponed(self, handle: SimHandle) -> bool:
        """Whether the clock of the timer's host is not there yet, because it was (or is) suspended."""
        if handle.process is None or handle.stood == NO_TIMER:
            return False
        host = handle.process.host
        if host.suspended_at is not None:
            host.stopped_timers.append(handle)
            return True
        if handle.stood >= host.stood_still:
            return False
        handle.due = _in_the_world(handle.due - handle.stood, host.stood_still)
        handle.stood = host.stood_still
        heappush(self._timers, (handle.due, next(self._sequence), handle))
        return True

    def _failed(self, handle: SimHandle, error: BaseException) -> None:
        name = getattr(handle.callback, "__qualname__", type(handle.callback).__name__)
        context = {"message": f"exception in callback {name}", "exception": error}
        handle.context.run(self.call_exception_handler, context)

    def _process_events(self, event_list: Iterable[object]) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There is nobody to wake."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        raise RuntimeError(f"no threads in the simulation: {func!r}")

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        if options.get("ssl") is not None:
            raise RuntimeError("no TLS in the simulation")
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        if options.get("ssl") is not None:
            raise RuntimeError("no TLS in the simulation")
        return self.network.listen(protocol_factory, port)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""


def _in_the_world(local: float, stood_still: float) -> float:
    """When a clock that has stood still for so long shows `local`: never a rounding error earlier, or
    timers would spin."""
    world = local + stood_still
    return world if world - stood_still >= local else math.nextafter(world, math.inf)


def _say_nothing(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """The tasks end with the world; a function of its own, so that no variable keeps one of them longer."""
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def collect_remains(worlds: list[Any] | None = None, *, enable: bool = True) -> None:
    """What was suspended in these worlds, and in those that nobody refers to any longer, ends here: before
    the next one begins.

    `worlds` is emptied: it should hold the last references to them.
    """
    with _silent_finalizers():
        if worlds is not None:
            worlds.clear()
        gc.collect()
    if enable:
        gc.enable()


@contextmanager
def _silent_finalizers() -> Iterator[None]:
    """Nobody wants to hear what the coroutines of a world that has ended say when they are closed."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the coroutines that they begin are never awaited
            yield
    finally:
        sys.unraisablehook = hook
        logging.disable(disabled)


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> SimTask:
    return SimTask(coro, loop=loop, **options)


def _note_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    process = CURRENT.get()
    if isinstance(error, ProcessKilled) or (process is not None and not process.alive):
        return
    if isinstance(loop, SimLoop) and loop.ended:
        return
    if isinstance(loop, SimLoop):
        loop.note(f"error {context.get('message')} {error!r}")
        loop.errors.append({"process": process, "time": loop.now, **context})
