"""How long a client lives: whether it is open, and the tasks that end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from waltz_client.errors import ClientClosedError, UsageError
from waltz_protocol.aio.tasks import spawn


class ClientLife:
    """Owner of every task of one client, on its loop.

    Invariant: `appends` is the number of calls under way that append and that a close may let end.
    """

    def __init__(self, client_id: int) -> None:
        self.closed = False
        self.closing = False
        self.appends = 0
        self._loop = asyncio.get_running_loop()
        self._thread_id = get_ident()
        self._name = f"waltz client {client_id}"
        self._ended = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}  # ended in the order of their start

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the client at the latest."""
        task = spawn(coro, f"{self._name}: {name}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def check_not_closing(self) -> None:
        """ClientClosedError from the moment a close begins, also while it lets others end."""
        self.check_open()
        self.check_loop()
        if self.closing:
            raise ClientClosedError("the client is being closed: it takes no new appends and no partitions")

    @contextmanager
    def append_call(self) -> Iterator[None]:
        """Around an append that a close may let end. ClientClosedError as `check_not_closing`."""
        self.check_not_closing()
        self.appends += 1
        try:
            yield
        finally:
            self.appends -= 1

    def check_open(self) -> None:
        """ClientClosedError after close."""
        if self.closed:
            raise ClientClosedError("the client is closed")

    def check_loop(self) -> None:
        """UsageError on another event loop, before close: nobody would wake who waits there. Likewise in a
        thread without one, while that of the client runs: both would change the same at once."""
        if self._loop.is_running() and get_ident() == self._thread_id:
            return  # a thread runs one loop at a time; asking for it costs a system call, and this each append
        running = asyncio._get_running_loop()
        if running is self._loop or self.closed:
            return
        if running is not None:
            raise UsageError("this client was entered on another event loop: open one in this loop")
        if self._loop.is_running():
            raise UsageError(
                "this client belongs to the event loop of another thread: call it there "
                "(loop.call_soon_threadsafe), or use waltz_client.blocking"
            )

    async def pause(self, seconds: float) -> None:
        """Between two attempts of a caller; ClientClosedError as soon as the client is closed."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return
        self.check_open()

    def end(self) -> None:
        """The client closes: who pauses between two attempts ends now."""
        self.closed = True
        self._ended.set()

    async def cancel_tasks(self) -> None:
        """End every task but the caller's, and wait until they have ended."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
