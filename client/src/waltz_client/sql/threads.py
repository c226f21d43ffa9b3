"""Threads that wait for the database, so that the client's loop does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from waltz_client.errors import ClientClosedError

T = TypeVar("T")


class DatabaseThreads:
    """Runs jobs in up to `count` threads. Owner: the applier, on its loop.

    Invariant: after `close` no job runs and no thread is left.
    """

    def __init__(self, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="waltz-sql")
        self._jobs: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def run(self, job: Callable[[], T]) -> T:
        """The result of a job. Cancelling the caller does not stop a job under way: it ends, or fails, by
        itself. ClientClosedError when `close` comes before it has begun."""
        if self._closed:
            raise ClientClosedError("the applier is closed")
        future = asyncio.get_running_loop().run_in_executor(self._executor, job)
        self._jobs.add(future)
        future.add_done_callback(self._ended)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if future.cancelled() and (task is None or not task.cancelling()):  # by `close`, not its caller
                raise ClientClosedError("the applier is closed") from None
            raise

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._jobs.discard(future)
        if not future.cancelled():
            future.exception()  # looked at here too, for callers that were cancelled

    async def close(self) -> None:
        """Start nothing more, wait for the jobs under way, end the threads. Idempotent."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._jobs:
            await asyncio.wait(set(self._jobs))
        self._executor.shutdown()
