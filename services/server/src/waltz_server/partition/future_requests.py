"""Mounts and flushes of a generation that this server has not reached: they wait here, not in the append
queue.

Discovery informs clients and servers of a new generation at about the same time, so a client may be first by
a moment (safety D4: the answer must wait). Anybody can name a generation that never comes. So these requests
take nobody's place, of a mount or in the queue, until their generation is there, and what one connection may
keep waiting is a handful: of a client's flushes the newest is the one that covers the others, and a mount
that was repeated replaces the one before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from waltz_server.partition.client import Client
from waltz_server.partition.pending_answers import EXPIRY_SCAN_SECONDS, Marker
from waltz_server.store.callbacks import Callbacks

MAX_PER_CLIENT = 8


class FutureRequests:
    """Those of one partition, by connection. Owner: the partition, on the loop. `give_up` is called for what
    does not fit, has waited until its deadline, or is left at the end."""

    def __init__(self, max_count: int, give_up: Callable[[Marker], None], loop: Callbacks) -> None:
        self._max_count = max_count
        self._give_up = give_up
        self._loop = loop
        self._waiting: dict[Client, deque[Marker]] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, marker: Marker) -> None:
        """Keep it; the oldest of its connection goes when that has too many."""
        mine = self._waiting.get(marker.client, ())
        if len(mine) >= MAX_PER_CLIENT:
            self._count -= 1
            self._give_up(self._waiting[marker.client].popleft())
        elif self._count >= self._max_count:
            self._give_up(marker)
            return
        self._waiting.setdefault(marker.client, deque()).append(marker)
        self._count += 1
        if self._timer is None:
            self._timer = self._loop.call_later(EXPIRY_SCAN_SECONDS, self._expire)

    def due(self, generation: int) -> list[Marker]:
        """Take out what has waited for this generation or an earlier one; of one connection in the order of
        arrival."""
        return self._take(lambda marker: marker.generation <= generation)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for marker in self._take(lambda marker: marker.deadline <= now):
            self._give_up(marker)
        if self._waiting:
            self._timer = self._loop.call_later(EXPIRY_SCAN_SECONDS, self._expire)

    def _take(self, wanted: Callable[[Marker], bool]) -> list[Marker]:
        taken: list[Marker] = []
        for client, mine in list(self._waiting.items()):
            kept = deque(marker for marker in mine if not wanted(marker))
            if len(kept) < len(mine):
                taken.extend(marker for marker in mine if wanted(marker))
                if kept:
                    self._waiting[client] = kept
                else:
                    del self._waiting[client]
        self._count -= len(taken)
        return taken

    def forget(self, client: Client) -> None:
        """The connection has gone."""
        self._count -= len(self._waiting.pop(client, ()))

    def close(self) -> None:
        """The partition leaves: nobody waits for a generation of it here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for marker in self._take(lambda _: True):
            self._give_up(marker)
