"""An event loop in a thread of its own, and calls to it from other threads: what the blocking client runs
on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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
        self._lock = threading.Lock()  # no call is given to a loop that is about to end
        self._calls: set[concurrent.futures.Future[Any]] = set()

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

    def start(self) -> None:
        """Once."""
        self.refuse_other_process()
        if self._thread is not None:
            raise UsageError("a client is entered once; connect again for another one")
        started: concurrent.futures.Future[None] = concurrent.futures.Future()

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
                if not started.done():
                    started.set_exception(error)
            self._end_calls()

        self._process_id = os.getpid()
        self._thread = threading.Thread(target=run, name="waltz-client", daemon=True)
        self._thread.start()
        started.result()

    async def _serve(self, started: concurrent.futures.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        stop = loop.create_future()

        def end() -> None:
            if not stop.done():
                stop.set_result(None)

        self._stop = lambda: loop.call_soon_threadsafe(end)
        self._loop = loop  # here, so that it is never set again after an end that nobody has asked for
        started.set_result(None)
        await stop

    def _fail(self, error: BaseException) -> None:
        with self._lock:
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
        for future in list(self._calls):
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # it has ended
                future.set_exception(self.closed_error())

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
        """End the loop and the thread; calls under way end with ClientClosedError."""
        with self._lock:
            thread, self._loop = self._thread, None
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._stop()
            thread.join()
        self._end_calls()

    def call(self, coro: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine run on the loop. An interrupted call (KeyboardInterrupt) is cancelled
        there."""
        try:
            self.refuse_other_process()  # before the lock: a thread that the child does not have may hold it
            self.refuse_own_thread()
            with self._lock:
                future = self._submit(coro)
                self._calls.add(future)
        except BaseException:
            coro.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            self.refuse_failed()
            raise ClientClosedError("the client was closed") from None
        except BaseException:
            future.cancel()
            raise
        finally:
            self._calls.discard(future)
            if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:  # it was cancelled before it began
                coro.close()

    def _submit(self, coro: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._loop is None or self._loop.is_closed():
            raise self.closed_error()
        return asyncio.run_coroutine_threadsafe(_with_exits_kept(coro), self._loop)

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
