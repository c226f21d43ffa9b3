"""What a server gives to the next owners of its partitions: the lock table of each that it leaves.

A partition is handed over only when this server gives it up by its own knowledge: while it leaves the
cluster, to whoever asks; else when the assignment has named another owner. So a stranger who asks can move
nothing, and stops a partition only of a server that stops. A question that comes before the assignment waits
for it.

Owner: the registry, on the event loop. What is kept is bounded in time (`KEPT_SECONDS`), and by the number of
partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from waltz_server.partition.hand_over import HAND_OVER_SECONDS, LockHandOver
from waltz_server.partition.owned_partition import Partition
from waltz_server.partition.settlement import OnSettled

KEPT_SECONDS = 2.0
"""How long the table of a partition that has left is kept for its next owner."""


class _Kept:
    """One partition that has left. `table`: None if it could not be settled in time."""

    __slots__ = ("generation", "partition", "settled", "table", "timer")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.generation = partition.generation
        self.settled = False
        self.table: LockHandOver | None = None
        self.timer: asyncio.TimerHandle | None = None


class Surrenders:
    """See the module."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._asked: dict[int, tuple[int, OnSettled, asyncio.TimerHandle]] = {}

    def ask(
        self,
        partition_id: int,
        generation: int,
        partition: Partition | None,
        leaving: bool,
        answer: OnSettled,
    ) -> None:
        """The owner of this generation asks; `partition` is ours now."""
        kept = self._kept.get(partition_id)
        if kept is not None and kept.settled:
            answer(kept.table if generation > kept.generation else None)
        elif kept is None and (partition is None or generation <= partition.generation):
            answer(None)
        else:
            self._forget_asked(partition_id)
            loop = asyncio.get_running_loop()
            timer = loop.call_later(HAND_OVER_SECONDS, self._forget_asked, partition_id)
            self._asked[partition_id] = generation, answer, timer
            if leaving and kept is None and partition is not None and not partition.closed:
                self.settle(partition_id, partition, partition.close)

    def _forget_asked(self, partition_id: int) -> None:
        asked = self._asked.pop(partition_id, None)
        if asked is not None:
            asked[2].cancel()
            asked[1](None)

    def settle(self, partition_id: int, partition: Partition, close: Callable[[], None]) -> None:
        """It has another owner: `close` it when nothing of it is in flight, soon at the latest. So what waits
        is refused in time to be sent to the next owner."""
        self.drop(partition_id)
        loop = asyncio.get_running_loop()
        kept = self._kept[partition_id] = _Kept(partition)
        kept.timer = loop.call_later(HAND_OVER_SECONDS, close)

        def settled(table: LockHandOver | None) -> None:
            kept.settled, kept.table = True, table
            if kept.timer is not None:
                kept.timer.cancel()
            if self._kept.get(partition_id) is kept:
                kept.timer = loop.call_later(KEPT_SECONDS, self.drop, partition_id)
                self._answer(partition_id, kept)
            loop.call_soon(close)

        partition.settlement.begin(settled)

    def _answer(self, partition_id: int, kept: _Kept) -> None:
        asked = self._asked.pop(partition_id, None)
        if asked is not None:
            generation, answer, timer = asked
            timer.cancel()
            answer(kept.table if generation > kept.generation else None)

    def drop(self, partition_id: int) -> None:
        """Close what is left of a partition, which may be ours again, and forget its table."""
        kept = self._kept.pop(partition_id, None)
        if kept is not None:
            if kept.timer is not None:
                kept.timer.cancel()
            kept.partition.close()

    def close(self) -> None:
        """The session may be over, or the server ends: nothing is in progress any longer. Idempotent."""
        for partition_id in list(self._kept):
            self.drop(partition_id)
        for partition_id in list(self._asked):
            self._forget_asked(partition_id)
