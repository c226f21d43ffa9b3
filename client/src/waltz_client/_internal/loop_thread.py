"""An event loop in a thread of its own, and calls to it from other threads: what the blocking client runs
on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from waltz_client.errors import ClientClosedError, UsageError

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


class LoopThread:
    """Any thread may call any method. Owner of the thread: who started it, and ends it.

    Invariants: no call is given to a loop that is about to end, and each call ends. It belongs to the process
    that started it: a fork copies it without its thread, so there every call is refused.
    """

    def __init__(self) -> None:
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
        started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()

        def run() -> None:
            with asyncio.Runner() as runner:
                loop = runner.get_loop()
                stop = loop.create_future()

                def end() -> None:
                    if not stop.done():
                        stop.set_result(None)

                self._stop = lambda: loop.call_soon_threadsafe(end)

                async def serve() -> None:
                    started.set_result(loop)
                    await stop

                runner.run(serve())

        self._process_id = os.getpid()
        self._thread = threading.Thread(target=run, name="waltz-client", daemon=True)
        self._thread.start()
        self._loop = started.result()

    def end(self) -> None:
        """End the loop and the thread; calls under way end with ClientClosedError."""
        with self._lock:
            thread, self._loop = self._thread, None
        if thread is not None:
            self._stop()
            thread.join()
        for future in list(self._calls):  # given over too late to be worked off
            if not future.done():
                future.set_exception(ClientClosedError("the client is closed"))

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
            raise ClientClosedError("the client was closed") from None
        except BaseException:
            future.cancel()
            raise
        finally:
            self._calls.discard(future)

    def _submit(self, coro: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._loop is None or self._loop.is_closed():
            raise ClientClosedError("the client is closed")
        return asyncio.run_coroutine_threadsafe(coro, self._loop)

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
