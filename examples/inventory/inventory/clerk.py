"""Decides: reads the tables, appends what is to happen, under locks on what it has read.

The client runs `decide` once per attempt, on tables that hold everything up to the attempt's high-water mark,
and the server refuses the append when one of its locks was touched after that mark. A decision to append
nothing is an answer that no server checks, and the tables may lag: `_catch_up` waits until they hold what the
log holds now, so that every instance knows what any other has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from inventory.events import Cancelled, Delivered, Event, Pieces, Refused, Reserved, Shipped, fill
from inventory.store import RESERVED, Entry, Stock, Store
from waltz_client import TransactionBuilder, WaltzClient
from waltz_client.sql import SqlCallbacks

T = TypeVar("T")

MOST_EXPIRED = 1_000
"""By one tick; others that are due wait for the next one."""


class UnknownIdError(Exception):
    """Nothing was sent under this id."""


class OtherContentError(Exception):
    """The id was used for something else."""


class Clerk:
    """Every method may be called again with the same id after any error, as often as it takes.

    Raises WaltzClientError when the log did not take a decision in time, or nobody knows whether it did.
    """

    def __init__(
        self,
        client: WaltzClient,
        callbacks: SqlCallbacks,
        store: Store,
        hold_ticks: int,
        deadline_seconds: float,
    ) -> None:
        self._client = client
        self._callbacks = callbacks
        self._store = store
        self._hold_ticks = hold_ticks
        self._deadline_seconds = deadline_seconds

    async def deliver(self, wish: Pieces) -> Entry:
        """Add stock. OtherContentError."""

        def decide() -> tuple[Event | None, Entry]:
            known = self._sent(wish, delivery=True)
            return (None, known) if known else (Delivered(**vars(wish)), Entry(wish, "delivered"))

        return await self._decide(self._client.partition_for(wish.warehouse), decide)

    async def reserve(self, wish: Pieces) -> Entry:
        """Reserve for an order, or refuse it; what has become of it, when it has its answer already.
        OtherContentError."""

        def decide() -> tuple[Event | None, Entry]:
            stock = self._store.stock(wish.warehouse, wish.item)
            known = self._sent(wish, delivery=False)  # read last: then what comes in between is found
            if known:
                return None, known
            if stock.on_hand - stock.reserved < wish.quantity:
                return Refused(**vars(wish)), Entry(wish, "refused")
            return Reserved(**vars(wish), hold_ticks=self._hold_ticks), Entry(wish, RESERVED)

        return await self._decide(self._client.partition_for(wish.warehouse), decide)

    async def ship(self, warehouse: str, id: str) -> Entry:
        """The pieces of an order leave. Returns what has become of it, shipped or not. UnknownIdError."""
        return await self._end(warehouse, id, Shipped, "shipped")

    async def cancel(self, warehouse: str, id: str) -> Entry:
        """An order gives its pieces back; as `ship`."""
        return await self._end(warehouse, id, Cancelled, "cancelled")

    async def entry(self, warehouse: str, id: str) -> Entry:
        """What has become of an id. UnknownIdError."""
        await self._catch_up(self._client.partition_for(warehouse))
        return await asyncio.to_thread(self._known, warehouse, id)

    async def stock(self, warehouse: str, item: str) -> Stock:
        """What there is of an item."""
        await self._catch_up(self._client.partition_for(warehouse))
        return await asyncio.to_thread(self._store.stock, warehouse, item)

    async def tick(self, partition: int, seen: int) -> None:
        """Let the clock of a partition tick, if it still shows `seen`."""

        def decide() -> tuple[Event | None, None]:
            tick = self._store.next_tick(partition, MOST_EXPIRED)
            return (tick if tick.tick == seen + 1 else None), None

        await self._decide(partition, decide)

    async def _end(self, warehouse: str, id: str, event: type[Shipped | Cancelled], state: str) -> Entry:
        def decide() -> tuple[Event | None, Entry]:
            known = self._known(warehouse, id)
            if known.state != RESERVED:
                return None, known
            return event(**vars(known.pieces)), Entry(known.pieces, state)

        return await self._decide(self._client.partition_for(warehouse), decide)

    async def _decide(self, partition: int, decide: Callable[[], tuple[Event | None, T]]) -> T:
        async def attempt(builder: TransactionBuilder) -> T:
            event, answer = await asyncio.to_thread(decide)
            if event is not None:
                fill(builder, event)
            return answer

        await self._catch_up(partition)
        done = await self._client.transact(partition, attempt, deadline_seconds=self._deadline_seconds)
        return done.value

    async def _catch_up(self, partition: int) -> None:
        mark = await self._client.high_water_mark(partition, deadline_seconds=self._deadline_seconds)
        await self._callbacks.applied(partition, mark, timeout_seconds=self._deadline_seconds)

    def _known(self, warehouse: str, id: str) -> Entry:
        known = self._store.entry(warehouse, id)
        if known is None:
            raise UnknownIdError(f"nothing was sent as {id}")
        return known

    def _sent(self, wish: Pieces, *, delivery: bool) -> Entry | None:
        """What was sent under the id before. OtherContentError when it is something else."""
        known = self._store.entry(wish.warehouse, wish.id)
        if known and (known.pieces != wish or (known.state == "delivered") != delivery):
            raise OtherContentError(f"the id {wish.id} was used for something else")
        return known
