"""The life of a service process: its loop, its signals, its exit code.

SIGTERM or SIGINT asks the service to leave in order (its stop event is set); one that is still starting, and
may wait for others, gives up its start (`CutShortBy`). A second signal ends the process at once. Signal
handlers are set explicitly, so the same holds as process 1 of a container, where the kernel's
defaults do not apply.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import NoReturn

import structlog

from waltz_protocol.aio.tasks import spawn
from waltz_runtime.counting import loop_counters, new_event_loop
from waltz_runtime.exit_code import ExitCode
from waltz_runtime.logs import report_end

# What an append leaves behind is freed by reference counts; the collector only finds rare cycles (exceptions,
# closed connections), and at its default rhythm walks everything in flight after every few hundred appends.
GC_THRESHOLDS = (50_000, 20, 100)

Main = Callable[[asyncio.Event], Awaitable[None]]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_AFTER_SECONDS = 2.0
"""Between the cancellation of a service that is late and the end of a process that is still there."""

log = structlog.get_logger(__name__)


class CutShortBy:
    """`async with CutShortBy(stop)` around what a service does before it serves, and may wait for: when
    `stop` is set it is cancelled, and the block ends there, without an error."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._stopped = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("no task runs")
        self._task, self._cancelling = task, task.cancelling()
        self._watcher = spawn(self._watch(), "stop-at-start")

    async def _watch(self) -> None:
        await self._stop.wait()
        self._stopped = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        self._watcher.cancel()
        return self._stopped and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError


def run_service(main: Main, *, shutdown_timeout_seconds: float = 60.0) -> int:
    """Run `main(stop)` until it returns; the exit code of the process.

    0 when main returned; its `exit_code`, else 1, and one line (`Error: …`, or an object where the log is
    JSON) for an error whose class has `user_error = True` (also inside an exception group); 70 and a logged
    stack trace for anything else. `main` has `shutdown_timeout_seconds` after the first signal, then it is
    cancelled (exit code 70), and the process ends two seconds later, whatever its threads do.
    A second signal exits with 128 + its number.
    """
    _calm_garbage_collector()
    _raise_file_limit()
    with _BoundedEnd() as end, asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            return runner.run(_supervise(main, end, shutdown_timeout_seconds))
        finally:
            _log_counters()


def _calm_garbage_collector() -> None:
    """Leave imported modules out of every collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _raise_file_limit() -> None:
    """As many open files as the hard limit allows: a storage node needs a dozen per partition, and the usual
    soft limit of 1024 is there for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # some systems allow less than they report
        log.debug("the limit of open files stays as it is", reason=str(error))


async def _supervise(main: Main, end: _BoundedEnd, shutdown_timeout_seconds: float) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    late = False
    task = asyncio.current_task()

    def too_late() -> None:
        nonlocal late
        late = True
        if task is not None:
            task.cancel()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            _leave_at_once(number, None)
        _leave_at_the_next()
        log.info("stopping", signal=number.name)
        stop.set()
        loop.call_later(shutdown_timeout_seconds, too_late)
        end.begin(shutdown_timeout_seconds)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await main(stop)
    except asyncio.CancelledError:
        if not late:
            raise
        log.error("did not stop in time", timeout_seconds=shutdown_timeout_seconds)
        return ExitCode.INTERNAL
    except BaseException as failure:
        return _report(failure)
    return ExitCode.OK


def _leave_at_the_next() -> None:
    """At the next signal, without the loop, which may be blocked or closed by then."""
    for number in _SIGNALS:
        signal.signal(number, _leave_at_once)


def _leave_at_once(number: int, _frame: object) -> NoReturn:
    """Not `sys.exit`: whatever hangs in the orderly way out must not hold this one up."""
    os.write(2, f"second {signal.Signals(number).name}: leaving at once\n".encode())
    os._exit(128 + number)


class _BoundedEnd:
    """Ends the process when it is still there some time after its service was cancelled: a thread that does
    not come back, as one whose disk hangs, is waited for by its pool, by the loop and by the interpreter."""

    def __init__(self) -> None:
        self._threads_before = set(threading.enumerate())
        self._timer: threading.Timer | None = None
        self._timeout_seconds = 0.0

    def __enter__(self) -> _BoundedEnd:
        return self

    def begin(self, timeout_seconds: float) -> None:
        """The service is to stop, and is cancelled after this time."""
        self._timeout_seconds = timeout_seconds
        self._timer = threading.Timer(timeout_seconds + _AFTER_SECONDS, self._end)
        self._timer.daemon = True
        try:
            self._timer.start()
        except RuntimeError as error:  # no thread is left
            log.warning("the time to stop is bounded by the loop only", reason=str(error))

    def __exit__(self, *_: object) -> None:
        if self._timer is None:
            return
        if any(not one.daemon for one in set(threading.enumerate()) - self._threads_before):
            _leave_at_the_next()  # the interpreter waits for them, and the loop has taken its handlers back
        else:
            self._timer.cancel()

    def _end(self) -> None:
        try:
            log.error(
                "did not stop in time, and a thread does not end", timeout_seconds=self._timeout_seconds
            )
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(ExitCode.INTERNAL)


def _report(failure: BaseException) -> int:
    """Report what went wrong and choose the exit code; what ends an interpreter on purpose passes through."""
    user_error = find_user_error(failure)
    if user_error is not None:
        line = " ".join(str(user_error).split())
        report_end(line or type(user_error).__name__)
        return int(getattr(user_error, "exit_code", ExitCode.FAILED))
    if not isinstance(failure, Exception):
        raise failure
    log.error("unexpected failure", exc_info=failure)
    return ExitCode.INTERNAL


def end_at_once(error: BaseException) -> NoReturn:
    """End the process as a kill does, with 70, for an error after which nobody knows what has been done: what
    it holds in memory must reach neither a peer nor the disk. From any thread."""
    try:
        log.critical("the process ends at once, for an error that nobody foresaw", exc_info=error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(ExitCode.INTERNAL)


def find_user_error(failure: BaseException) -> BaseException | None:
    """The operator's mistake behind `failure`; None when any part of it is something else."""
    if isinstance(failure, BaseExceptionGroup):
        found = [find_user_error(inner) for inner in failure.exceptions]
        return None if any(inner is None for inner in found) else found[0]
    return failure if getattr(failure, "user_error", False) is True else None


def _log_counters() -> None:
    counters = loop_counters()
    if counters is not None:
        log.info(
            "loop counters",
            tasks_created=counters.tasks,
            futures_created=counters.futures,
            turns_by_created=counters.turns_by_created,
        )
