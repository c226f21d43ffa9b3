"""Bytes of copies on the connection to one storage node, which all partitions share.

A node that comes back is filled by hundreds of partitions at once. What waits in its connection counts
against the time limit of every request there, so copies have a budget, and partitions take turns in the order
in which they asked: each has one append of a copy on its way, so it is next again when all others were.

Owner: `ReplicaDirectory`, on the loop; shared by all partitions and their sessions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from waltz_protocol.errors import RequestTimeoutError


class CopyTurns:
    """A budget of bytes, handed out first come, first served. One who finds all of it free gets what it
    wants, however much."""

    def __init__(self, most_bytes: int) -> None:
        self.in_use_bytes = 0
        self._most_bytes = most_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size_bytes: int) -> None:
        """Wait for the turn; `give_back` the same number of bytes later, whatever happens. A caller that is
        cancelled here has nothing to give back."""
        if not self._waiting and self._fits(size_bytes):
            self.in_use_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back(size_bytes)
            else:
                self._hand_out()  # who waited behind it may fit
            raise

    def give_back(self, size_bytes: int) -> None:
        """The request is answered, has failed or was not made."""
        self.in_use_bytes -= size_bytes
        self._hand_out()

    @asynccontextmanager
    async def turn(self, size_bytes: int) -> AsyncIterator[None]:
        """Take, and give back at the end. When the node does not answer in time, those who wait fail as
        well, and can ask another node: each would lose the time limit again."""
        await self.take(size_bytes)
        try:
            yield
        except RequestTimeoutError:
            waiting, self._waiting = self._waiting, deque()
            for _, turn in waiting:
                if not turn.done():
                    turn.set_exception(RequestTimeoutError("another read of a copy was not answered in time"))
            raise
        finally:
            self.give_back(size_bytes)

    def _fits(self, size_bytes: int) -> bool:
        return not self.in_use_bytes or self.in_use_bytes + size_bytes <= self._most_bytes

    def _hand_out(self) -> None:
        waiting = self._waiting
        while waiting and (waiting[0][1].done() or self._fits(waiting[0][0])):
            size_bytes, turn = waiting.popleft()
            if not turn.done():
                self.in_use_bytes += size_bytes
                turn.set_result(None)
