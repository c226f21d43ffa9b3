"""Requests for transaction data that come a moment too early: held until their partition can answer, not
refused.

A server that has just started is connected to before it has been given its partitions, and a partition before
its recovery is over. A client that gets "partition not ready" sleeps before it asks again, up to five
seconds (release 0.13.2), and cannot apply anything meanwhile; so such requests wait here as mounts do. What
does not fit, or has waited for `hold_seconds`, is refused.

What is done at once for those that have piled up is done for `ANSWERS_PER_TURN` of them per turn of the loop,
and nothing looks at those of other connections or partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from waltz_protocol.frames.data import data_failure
from waltz_server.partition.client import Client
from waltz_server.partition.data_reads import ANSWERS_PER_TURN, NOT_READY_TEXT
from waltz_server.store.callbacks import Callbacks

Key = TypeVar("Key")

MAX_COUNT = 10_000
MAX_PER_CLIENT = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class HeldRead:
    """One request."""

    due: float
    client: Client
    partition_id: int
    req_id: bytes
    transaction_id: int


class HeldReads:
    """Owner: a partition or the registry of them, on the loop. At most `MAX_COUNT`, of a connection
    `MAX_PER_CLIENT`."""

    def __init__(self, hold_seconds: float, loop: Callbacks | asyncio.AbstractEventLoop) -> None:
        self._hold_seconds = hold_seconds
        self._loop = loop
        self._held: dict[HeldRead, None] = {}
        """In the order of their arrival, so in that of their end; the same below."""
        self._of_client: dict[Client, dict[HeldRead, None]] = {}
        self._of_partition: dict[int, dict[HeldRead, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, client: Client, partition_id: int, req_id: bytes, transaction_id: int) -> None:
        """Keep it for a while; refused at once when there are too many."""
        read = HeldRead(self._loop.time() + self._hold_seconds, client, partition_id, req_id, transaction_id)
        if len(self._held) >= MAX_COUNT or len(self._of_client.get(client, ())) >= MAX_PER_CLIENT:
            refuse(read)
            return
        self._held[read] = None
        self._of_client.setdefault(client, {})[read] = None
        self._of_partition.setdefault(partition_id, {})[read] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._hold_seconds, self._expire)

    def take(self, partition_id: int) -> list[HeldRead]:
        """Those of one partition, which answers them now, in the order of their arrival."""
        return self._out(list(self._of_partition.get(partition_id, ())))

    def release(self, answer: Callable[[HeldRead], None]) -> None:
        """All of them to `answer`, in the order of their arrival, in this turn of the loop and those that
        follow."""
        for read in self._out(list(islice(self._held, ANSWERS_PER_TURN))):
            answer(read)
        if self._held:
            self._loop.call_soon(self.release, answer)

    def forget(self, client: Client) -> None:
        """The connection has gone."""
        self._out(list(self._of_client.get(client, ())))

    def close(self) -> None:
        """Refuse what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.release(refuse)

    def _out(self, reads: list[HeldRead]) -> list[HeldRead]:
        for read in reads:
            del self._held[read]
            _leave(self._of_client, read.client, read)
            _leave(self._of_partition, read.partition_id, read)
        return reads

    def _expire(self) -> None:
        now = self._loop.time()
        due = [read for read in islice(self._held, ANSWERS_PER_TURN) if read.due <= now]
        for read in self._out(due):
            refuse(read)
        self._timer = None
        if self._held:
            self._timer = self._loop.call_at(next(iter(self._held)).due, self._expire)


def _leave(groups: dict[Key, dict[HeldRead, None]], key: Key, read: HeldRead) -> None:
    del groups[key][read]
    if not groups[key]:
        del groups[key]


def refuse(read: HeldRead) -> None:
    """The answer of release 0.13.2 for a partition that is not there."""
    client = read.client
    client.send(data_failure(client.version, read.req_id, read.transaction_id, NOT_READY_TEXT))
