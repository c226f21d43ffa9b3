"""Who waits to send to one partition, longest waiting first."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable
from itertools import count
from operator import itemgetter


class WritersLine:
    """The line of writers in front of one partition. Owner: its window, on the loop.

    A writer takes one ticket for all of its waiting, so that it has its place again when its chance was none
    (the socket is full, a larger append took the free bytes). Invariant: `woken` is the number of writers
    that were let go and have not run since; what they may use is not there for a newcomer.
    """

    def __init__(self, on_waiting: Callable[[], object]) -> None:
        self.woken = 0
        self._on_waiting = on_waiting
        self._tickets = count()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # sorted; no two with one ticket

    def __len__(self) -> int:
        """Writers that wait; those that were woken do not."""
        return len(self._waiting)

    def ticket(self) -> int:
        """The place behind everybody who has one."""
        return next(self._tickets)

    async def wait(self, ticket: int) -> None:
        """Until the next chance to send; it promises nothing, the writer checks again. Cancelled after it was
        woken: its chance goes to the next one."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        insort(self._waiting, (ticket, waiter))
        self._on_waiting()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._leave(ticket)
            elif waiter.exception() is None:
                self.woken -= 1
                self.wake(self.woken + 1)
            raise
        self.woken -= 1

    def _leave(self, ticket: int) -> None:
        place = bisect_left(self._waiting, ticket, key=itemgetter(0))
        if place < len(self._waiting) and self._waiting[place][0] == ticket:
            del self._waiting[place]

    def wake(self, chances: int | None = None) -> None:
        """Let as many writers check as have not been woken yet, longest waiting first; all by default."""
        if chances is None:
            chances = len(self._waiting) + self.woken
        while self._waiting and self.woken < chances:
            _, waiter = self._waiting.pop(0)
            if not waiter.done():  # cancelled, and its task has not run yet
                waiter.set_result(None)
                self.woken += 1

    def fail(self, error: Exception) -> None:
        """Every waiting writer gets this error (nothing of theirs was sent)."""
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)
