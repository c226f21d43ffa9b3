"""The clock of the log: reservations end when it says so, not when the clock of one instance does.

A partition has a clock that counts ticks, each a transaction. Every instance offers the next tick once it has
seen the present one in its tables for `tick_seconds`; the write lock on the clock takes one of them. So two
ticks are never closer than that, whatever the clocks of the machines show, and all instances end the same
reservations at the same place in the log. While no instance runs, no time passes; a clock without open
reservations rests.
"""

from __future__ import annotations

import asyncio
import logging

from inventory import events
from inventory.clerk import item_lock, order_lock
from inventory.store import Store
from waltz_client import LockId, TransactionBuilder, WaltzClient, WaltzClientError

_LOG = logging.getLogger(__name__)
_CLOCK = LockId.of("clock", "inventory")
_MOST_EXPIRED = 1000  # by one tick; the others wait for the next


class Clock:
    """Offers ticks for all partitions."""

    def __init__(self, client: WaltzClient, store: Store, *, tick_seconds: float) -> None:
        self._client = client
        self._store = store
        self._tick_seconds = tick_seconds
        self._seen: dict[int, tuple[int, float]] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.offer()
            await asyncio.sleep(self._tick_seconds / 10)

    async def offer(self) -> None:
        """Tick where the time has come. A tick that fails is offered again."""
        now = asyncio.get_running_loop().time()
        in_use = await asyncio.to_thread(self._store.clocks_in_use)
        before = self._seen
        self._seen = {
            partition: before[partition] if before.get(partition, (-1, 0))[0] == tick else (tick, now)
            for partition, tick in in_use.items()
        }
        for partition, (tick, since) in self._seen.items():
            if now - since >= self._tick_seconds:
                try:
                    await self.tick(partition, tick)
                except WaltzClientError as error:
                    _LOG.warning("no tick in partition %d: %s", partition, error)

    async def tick(self, partition: int, seen: int) -> None:
        """Make the tick after `seen`, unless it is there already."""

        def decide(builder: TransactionBuilder) -> None:
            tick, due = self._store.clock(partition, _MOST_EXPIRED)
            if tick != seen:
                return
            expired = [[warehouse, order] for warehouse, order, _ in due]
            events.fill(builder, events.Ticked(tick + 1, expired))
            builder.set_write_locks([_CLOCK, *(order_lock(one[0], one[1]) for one in due)])
            builder.set_append_locks({item_lock(one[0], one[2]) for one in due})

        async def in_thread(builder: TransactionBuilder) -> None:
            await asyncio.to_thread(decide, builder)

        await self._client.transact(partition, in_thread, deadline_seconds=self._tick_seconds)
