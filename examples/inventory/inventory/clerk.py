"""Decides on orders: reads the tables, appends what is to happen, under locks on what the decision rests on.

All decisions of a warehouse are in one partition. Locks: a write lock on the id of an order or delivery makes
it one, however often it is sent; the pieces of an item are under a write lock where they are given away, a
read lock where too few of them are the reason of a refusal, an append lock where they only become more.
Shipping changes nothing that can be reserved, so it touches no item.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from inventory import events
from inventory.store import Order, State, Stock, Store
from waltz_client import LockId, TransactionBuilder, WaltzClient
from waltz_client.sql import SqlCallbacks

T = TypeVar("T")


class UnknownOrderError(Exception):
    """Nobody has sent this order."""


class OtherContentError(Exception):
    """The id was used before, for another item or quantity."""


class Clerk:
    """Every method may be called again after any error, with the same ids, as often as it takes."""

    def __init__(
        self, client: WaltzClient, callbacks: SqlCallbacks, store: Store, *, hold_ticks: int
    ) -> None:
        self._client = client
        self._callbacks = callbacks
        self._store = store
        self._hold_ticks = hold_ticks

    async def deliver(self, warehouse: str, delivery: str, item: str, quantity: int) -> None:
        """Add stock. OtherContentError."""

        def decide(builder: TransactionBuilder) -> None:
            known = self._store.delivery(warehouse, delivery)
            if known is not None:
                if known != (item, quantity):
                    raise OtherContentError(f"delivery {delivery} was {known[1]} of {known[0]}")
                return
            events.fill(builder, events.Delivered(warehouse, delivery, item, quantity))
            builder.set_write_locks([LockId.of("delivery", f"{warehouse}/{delivery}")])
            builder.set_append_locks([item_lock(warehouse, item)])

        await self._transact(warehouse, decide)

    async def reserve(self, warehouse: str, order: str, item: str, quantity: int) -> Order:
        """The order with its answer: reserved or refused, or what has become of it since.

        OtherContentError. A refusal is in the log as well: an attempt that is still under way cannot
        reserve what was refused to its customer.
        """

        def decide(builder: TransactionBuilder) -> Order:
            known = self._store.order(warehouse, order)
            if known is not None:
                if (known.item, known.quantity) != (item, quantity):
                    raise OtherContentError(f"order {order} was for {known.quantity} of {known.item}")
                return known
            if self._store.stock(warehouse, item).available < quantity:
                events.fill(builder, events.Refused(warehouse, order, item, quantity))
                builder.set_write_locks([order_lock(warehouse, order)])
                builder.set_read_locks([item_lock(warehouse, item)])
                return Order(order, item, quantity, State.REFUSED)
            events.fill(builder, events.Reserved(warehouse, order, item, quantity, self._hold_ticks))
            builder.set_write_locks([order_lock(warehouse, order), item_lock(warehouse, item)])
            return Order(order, item, quantity, State.RESERVED)

        return await self._transact(warehouse, decide)

    async def ship(self, warehouse: str, order: str) -> Order:
        """The order afterwards: shipped, or why it cannot be. UnknownOrderError."""

        def decide(builder: TransactionBuilder) -> Order:
            known = self._known(warehouse, order)
            if known.state is not State.RESERVED:
                return known
            events.fill(builder, events.Shipped(warehouse, order))
            builder.set_write_locks([order_lock(warehouse, order)])
            return Order(order, known.item, known.quantity, State.SHIPPED)

        await self._catch_up(warehouse)
        return await self._transact(warehouse, decide)

    async def cancel(self, warehouse: str, order: str) -> Order:
        """The order afterwards: cancelled, or why it cannot be. UnknownOrderError."""

        def decide(builder: TransactionBuilder) -> Order:
            known = self._known(warehouse, order)
            if known.state is not State.RESERVED:
                return known
            events.fill(builder, events.Cancelled(warehouse, order))
            builder.set_write_locks([order_lock(warehouse, order)])
            builder.set_append_locks([item_lock(warehouse, known.item)])
            return Order(order, known.item, known.quantity, State.CANCELLED)

        await self._catch_up(warehouse)
        return await self._transact(warehouse, decide)

    async def stock(self, warehouse: str, item: str) -> Stock:
        """Of an item, with everything that any instance had answered before."""
        await self._catch_up(warehouse)
        return await asyncio.to_thread(self._store.stock, warehouse, item)

    async def order(self, warehouse: str, order: str) -> Order:
        """An order, in the same way. UnknownOrderError."""
        await self._catch_up(warehouse)
        return await asyncio.to_thread(self._known, warehouse, order)

    async def _catch_up(self, warehouse: str) -> None:
        """A decision that appends nothing is not checked by the log, so it may rest on an old table. What is
        answered without an append therefore waits for what is committed now."""
        partition = self._client.partition_for(warehouse)
        await self._callbacks.applied(partition, await self._client.high_water_mark(partition))

    def _known(self, warehouse: str, order: str) -> Order:
        known = self._store.order(warehouse, order)
        if known is None:
            raise UnknownOrderError(f"there is no order {order}")
        return known

    async def _transact(self, warehouse: str, decide: Callable[[TransactionBuilder], T]) -> T:
        async def in_thread(builder: TransactionBuilder) -> T:
            return await asyncio.to_thread(decide, builder)

        return (await self._client.transact(self._client.partition_for(warehouse), in_thread)).value


def order_lock(warehouse: str, order: str) -> LockId:
    """The lock on whether an order has an answer, and which."""
    return LockId.of("order", f"{warehouse}/{order}")


def item_lock(warehouse: str, item: str) -> LockId:
    """The lock on the pieces of an item that can be reserved."""
    return LockId.of("item", f"{warehouse}/{item}")
