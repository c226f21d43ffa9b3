"""An event loop in a thread of its own, and calls to it from other threads: what the blocking client runs
on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import logging
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from waltz_client._internal.raised import as_exception, keep_exits
from waltz_client.errors import ClientClosedError, UsageError

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")


async def in_daemon_thread(function: Callable[[A], T], argument: A) -> T:
    """The result of a function of the application that may block, in a thread of its own. Cancelled, it is
    left alone there: nothing waits for it, not even the end of the loop (which it may ask for itself)."""
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            value = context.run(function, argument)
        except StopIteration as error:  # no future of a loop can hold it
            failure = RuntimeError(f"{error!r} was raised")
            failure.__cause__ = error
            result.set_exception(failure)
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(value)

    context = contextvars.copy_context()
    threading.Thread(target=run, name="waltz-client-decide", daemon=True).start()
    return await asyncio.wrap_future(result)


async def _with_exits_kept(coro: Coroutine[Any, Any, T]) -> T:
    """An exit of a function of the application is an error of the call that has called it: in a task it would
    end the loop."""
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        raise as_exception(error) from error


class _Call(Generic[T]):
    """A coroutine that the loop runs for a thread that waits for it. Owner: the loop.

    Invariants: a signal handler may raise anywhere in the waiting thread, so it shares no lock with the loop
    that is taken in Python code (one that is interrupted right after would keep it, and the loop would wait
    for it): only a queue made in C. The coroutine is begun and closed on the loop's thread, or after its end.
    """

    def __init__(self, coro: Coroutine[Any, Any, T], calls: set[_Call[Any]]) -> None:
        """It leaves `calls` when it has ended."""
        self.ended: queue.SimpleQueue[asyncio.Task[T] | None] = queue.SimpleQueue()
        """The task, done; None when the loop has ended before it."""
        self._coro = coro
        self._calls = calls
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """On the loop."""
        self._task = asyncio.get_running_loop().create_task(_with_exits_kept(self._coro))
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T] | None) -> None:
        self._coro.close()  # a task that is cancelled at once does not begin it
        self._calls.discard(self)
        self.ended.put(task)

    def cancel(self) -> None:
        """On the loop. Nothing begins it afterwards: who posts this would have posted that before."""
        if self._task is None:
            self._end(None)
        else:
            self._task.cancel()

    def abandon(self) -> None:
        """After the end of the loop."""
        if self._task is None:
            self._end(None)
        self.ended.put(None)


class LoopThread:
    """Any thread may call any method. Owner of the thread: who started it, and ends it.

    Invariants: no call is given to a loop that is about to end, and each call ends, also when the thread ends
    without being asked to. It belongs to the process that started it: a fork copies it without its thread, so
    there every call is refused.
    """

    def __init__(self) -> None:
        self._cause: BaseException | None = None  # of an end that nobody has asked for
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process_id: int | None = None  # of the process that started it
        self._stop: Callable[[], object] = lambda: None
        self._ending = False
        # No call is given to a loop that is about to end. Signal handlers call, and end it, too.
        self._lock = threading.RLock()
        self._calls: set[_Call[Any]] = set()

    @property
    def in_other_process(self) -> bool:
        """Whether this is a copy made by a fork."""
        return self._process_id is not None and self._process_id != os.getpid()

    @property
    def running(self) -> bool:
        """Whether calls are taken."""
        return self._loop is not None and not self.in_other_process

    def refuse_other_process(self) -> None:
        """UsageError after a fork."""
        if self.in_other_process:
            raise UsageError("this client was opened in another process: open a new one after the fork")

    def refuse_own_thread(self) -> None:
        """UsageError on the loop."""
        if threading.current_thread() is self._thread:
            raise UsageError("a blocking call from the client's own thread would wait for itself")

    def check_new(self) -> None:
        """UsageError when it was started before."""
        self.refuse_other_process()
        if self._thread is not None:
            raise UsageError("a client is entered once; connect again for another one")

    def refuse_new(self, how: str) -> None:
        """UsageError before it was started; `how` it is."""
        if self._thread is None:
            raise UsageError(f"enter the client first: {how}")

    def start(self) -> None:
        """Once. A caller that is interrupted here ends it with `end`."""
        self.check_new()
        started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()  # as in _Call

        def run() -> None:
            keep_exits()
            try:
                with asyncio.Runner() as runner:
                    try:
                        runner.run(self._serve(started))
                    except BaseException as error:  # whatever a function raised that no call was around
                        self._fail(error)  # before the runner cancels the calls under way
            except BaseException as error:
                self._fail(error)
                started.put(error)
            self._end_calls()

        self._process_id = os.getpid()
        self._thread = threading.Thread(target=run, name="waltz-client", daemon=True)
        self._thread.start()
        error = started.get()
        if error is not None:
            raise error

    async def _serve(self, started: queue.SimpleQueue[BaseException | None]) -> None:
        loop = asyncio.get_running_loop()
        stop = loop.create_future()

        def end() -> None:
            if not stop.done():
                stop.set_result(None)

        self._stop = lambda: loop.call_soon_threadsafe(end)
        self._loop = loop  # here, so that it is never set again after an end that nobody has asked for
        started.put(None)
        if self._ending:  # that `end` may have had nothing to stop yet
            self._loop = None
            return
        await stop

    def _fail(self, error: BaseException) -> None:
        # Without the lock: who holds it may be waiting for this thread, in a signal handler.
        self._loop = None
        self._cause = self._cause or error
        log.error(
            "the thread of a blocking client has ended: %r",
            error,
            exc_info=error,
            extra={"reason": repr(error)},
        )

    def _end_calls(self) -> None:
        """Those that were given over too late to be worked off."""
        for call in list(self._calls):
            call.abandon()

    def closed_error(self) -> ClientClosedError:
        """Of a call that comes, or has no result, when the thread has ended."""
        if self._cause is None:
            return ClientClosedError("the client is closed")
        return ClientClosedError(f"the client's thread has ended: {self._cause!r}")

    def refuse_failed(self) -> None:
        """ClientClosedError when the thread has ended and nobody has asked for it."""
        if self._cause is not None:
            raise self.closed_error()

    def end(self) -> None:
        """End the loop and the thread, also in the middle of `start`; calls under way end with
        ClientClosedError."""
        with self._lock:
            self._ending = True
            thread, self._loop = self._thread, None
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._stop()
            with contextlib.suppress(RuntimeError):  # it has not begun: it ends when it does, if it does
                thread.join()
        self._end_calls()

    def call(self, coro: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine run on the loop; errors as `run`."""
        return self.run(coro).result()

    def run(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine on the loop until it has returned or raised, which the task says. Whatever is
        raised here is not of the coroutine: UsageError and ClientClosedError, when it was refused or the
        thread ended first, or an interruption of the caller (KeyboardInterrupt, or what another signal
        handler raises), and then the coroutine is cancelled."""
        call = _Call(coro, self._calls)
        try:
            self.refuse_other_process()  # before the lock: a thread that the child does not have may hold it
            self.refuse_own_thread()
            with self._lock:
                loop = self._loop
                if loop is None or loop.is_closed():
                    raise self.closed_error()
                self._calls.add(call)
                try:
                    loop.call_soon_threadsafe(call.begin)
                except RuntimeError:  # it has failed, or a signal handler has ended it, since
                    self._calls.discard(call)
                    raise self.closed_error() from None
            task = call.ended.get()
        except BaseException:
            if call in self._calls:
                self.post(call.cancel)
            else:  # it was not given to the loop, or has ended there
                coro.close()
            raise
        if task is None:
            raise self.closed_error()
        if task.cancelled():
            self.refuse_failed()
            raise ClientClosedError("the client was closed")
        return task

    def read(self, question: Callable[[], T]) -> T:
        """The answer of a function that reads what the loop's tasks change; on the loop's thread too."""
        if threading.current_thread() is self._thread:
            return question()

        async def ask() -> T:
            return question()

        return self.call(ask())

    def post(self, job: Callable[[], object]) -> None:
        """Run a short function on the loop some time, if there is one still. Waits for nothing and takes no
        lock: finalizers may run in any thread, at any time."""
        loop = self._loop
        if loop is not None and not self.in_other_process:
            try:
                loop.call_soon_threadsafe(job)
            except RuntimeError:  # it has just ended, and everything with it
                return
