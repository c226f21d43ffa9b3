"""The places of passes that run at the same time, and who gets the next one: earliest deadline first.

A cluster that waits for a place is given a deadline when it comes: an impaired one at once, one of which
something has changed a little later, one whose turn is only due later still. So impaired ones come first,
and nobody waits without end: whoever has waited longer than the difference of two allowances comes before all
that are new. One writer: the loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from itertools import count


class Urgency(Enum):
    """How long a pass may wait for others, in seconds: its allowance."""

    IMPAIRED = 0.0
    CHANGED = 2.0
    DUE = 10.0


class Places:
    """At most `number` at a time. `waiting`: who has none yet."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._numbers = count()
        self._queue: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @asynccontextmanager
    async def taken(self, urgency: Urgency) -> AsyncIterator[float]:
        """A place, given back at the end; the seconds that it was waited for."""
        loop = asyncio.get_running_loop()
        came = loop.time()
        if self._free > 0:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = loop.create_future()
            entry = (came + urgency.value, next(self._numbers), turn)
            heapq.heappush(self._queue, entry)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()  # it was given in the moment of the cancellation
                elif entry in self._queue:
                    self._queue.remove(entry)
                    heapq.heapify(self._queue)
                raise
        try:
            yield loop.time() - came
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """The place goes to the next one, or is free."""
        while self._queue:
            turn = heapq.heappop(self._queue)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
