"""Requests for transaction data that come a moment too early: held until their partition can answer, not refused.

A server that has just started is connected to before it has been given its partitions, and a partition before its recovery is
over. A client that is told "partition not ready" sleeps before it asks again, up to five seconds (release 0.13.2), and cannot
apply anything meanwhile; so such requests wait here as mounts do. What does not fit, or has waited for `hold_seconds`, is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from waltz_server.partition.client import Client
from waltz_server.partition.data_reads import NOT_READY_TEXT
from waltz_server.partition.replies import data_failure

MAX_COUNT = 10_000
MAX_PER_CLIENT = 2_000


class HeldRead(NamedTuple):
    """One request."""

    due: float
    client: Client
    partition_id: int
    req_id: bytes
    transaction_id: int


class HeldReads:
    """Owner: a partition or the registry of them, on the loop. At most `MAX_COUNT`, of a connection `MAX_PER_CLIENT`."""

    def __init__(self, hold_seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._hold_seconds = hold_seconds
        self._loop = loop
        self._held: deque[HeldRead] = deque()
        """In the order of their arrival, so in that of their end."""
        self._by_client: Counter[Client] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, client: Client, partition_id: int, req_id: bytes, transaction_id: int) -> None:
        """Keep it for a while; refused at once when there are too many."""
        read = HeldRead(self._loop.time() + self._hold_seconds, client, partition_id, req_id, transaction_id)
        if len(self._held) >= MAX_COUNT or self._by_client[client] >= MAX_PER_CLIENT:
            refuse(read)
            return
        self._held.append(read)
        self._by_client[client] += 1
        if self._timer is None:
            self._timer = self._loop.call_later(self._hold_seconds, self._expire)

    def take(self, wanted: Callable[[HeldRead], bool] = lambda _: True) -> list[HeldRead]:
        """Those that somebody else answers now, in the order of their arrival."""
        taken = [read for read in self._held if wanted(read)]
        if taken:
            self._held = deque(read for read in self._held if not wanted(read))
            self._by_client = Counter(read.client for read in self._held)
        return taken

    def forget(self, client: Client) -> None:
        """The connection has gone."""
        if self._by_client[client]:
            self.take(lambda read: read.client is client)

    def close(self) -> None:
        """Refuse what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for read in self.take():
            refuse(read)

    def _expire(self) -> None:
        now = self._loop.time()
        for read in self.take(lambda read: read.due <= now):
            refuse(read)
        self._timer = None
        if self._held:
            self._timer = self._loop.call_at(self._held[0].due, self._expire)


def refuse(read: HeldRead) -> None:
    """The answer of release 0.13.2 for a partition that is not there."""
    client = read.client
    client.send(data_failure(client.version, read.req_id, read.transaction_id, NOT_READY_TEXT))
