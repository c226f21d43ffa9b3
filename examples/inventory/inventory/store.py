"""The tables of one instance, a function of the log: `apply` is the only thing that writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from inventory import events
from waltz_client import DataTransaction

_METADATA = sa.MetaData()
_ITEMS = sa.Table(
    "items",
    _METADATA,
    sa.Column("warehouse", sa.String, primary_key=True),
    sa.Column("item", sa.String, primary_key=True),
    sa.Column("on_hand", sa.BigInteger, nullable=False),
    sa.Column("reserved", sa.BigInteger, nullable=False),
)
_DELIVERIES = sa.Table(
    "deliveries",
    _METADATA,
    sa.Column("warehouse", sa.String, primary_key=True),
    sa.Column("delivery", sa.String, primary_key=True),
    sa.Column("item", sa.String, nullable=False),
    sa.Column("quantity", sa.BigInteger, nullable=False),
)
_ORDERS = sa.Table(
    "orders",
    _METADATA,
    sa.Column("warehouse", sa.String, primary_key=True),
    sa.Column("order", sa.String, primary_key=True),
    sa.Column("item", sa.String, nullable=False),
    sa.Column("quantity", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("last_tick", sa.BigInteger, nullable=False),
    sa.Index("open_orders", "state", "partition", "last_tick"),
)
_CLOCKS = sa.Table(
    "clocks",
    _METADATA,
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("tick", sa.BigInteger, nullable=False),
)


class State(StrEnum):
    """What has become of an order. All but RESERVED are for good."""

    RESERVED = "reserved"
    REFUSED = "refused"
    SHIPPED = "shipped"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Stock:
    """The pieces of one item: in the warehouse, and how many of these are held by orders."""

    on_hand: int = 0
    reserved: int = 0

    @property
    def available(self) -> int:
        """What can be reserved."""
        return self.on_hand - self.reserved


@dataclass(frozen=True, slots=True)
class Order:
    """An order as it is now."""

    order: str
    item: str
    quantity: int
    state: State


class Store:
    """Reads take one database transaction each, so what they return belongs together."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def create_tables(self) -> None:
        """Create what is missing."""
        _METADATA.create_all(self._engine)

    def stock(self, warehouse: str, item: str) -> Stock:
        """What there is of an item; nothing of one that was never delivered."""
        with self._engine.connect() as connection:
            row = connection.execute(
                sa.select(_ITEMS.c.on_hand, _ITEMS.c.reserved).where(
                    _ITEMS.c.warehouse == warehouse, _ITEMS.c.item == item
                )
            ).one_or_none()
        return Stock() if row is None else Stock(*row)

    def order(self, warehouse: str, order: str) -> Order | None:
        """An order that has an answer, else None."""
        with self._engine.connect() as connection:
            return _order(connection, warehouse, order)

    def delivery(self, warehouse: str, delivery: str) -> tuple[str, int] | None:
        """Item and quantity of a delivery that has come in, else None."""
        with self._engine.connect() as connection:
            row = connection.execute(
                sa.select(_DELIVERIES.c.item, _DELIVERIES.c.quantity).where(
                    _DELIVERIES.c.warehouse == warehouse, _DELIVERIES.c.delivery == delivery
                )
            ).one_or_none()
        return None if row is None else (row.item, row.quantity)

    def clocks_in_use(self) -> dict[int, int]:
        """The tick of every partition that has an open reservation."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                sa.select(_ORDERS.c.partition, sa.func.coalesce(_CLOCKS.c.tick, 0))
                .select_from(_ORDERS.outerjoin(_CLOCKS, _ORDERS.c.partition == _CLOCKS.c.partition))
                .where(_ORDERS.c.state == State.RESERVED)
                .distinct()
            ).all()
        return {partition: tick for partition, tick in rows}

    def clock(self, partition: int, limit: int) -> tuple[int, Sequence[tuple[str, str, str]]]:
        """The tick of a partition, and warehouse, order and item of reservations that the next one ends."""
        with self._engine.connect() as connection:
            tick = _tick(connection, partition)
            due = connection.execute(
                sa.select(_ORDERS.c.warehouse, _ORDERS.c.order, _ORDERS.c.item)
                .where(
                    _ORDERS.c.state == State.RESERVED,
                    _ORDERS.c.partition == partition,
                    _ORDERS.c.last_tick <= tick,
                )
                .order_by(_ORDERS.c.last_tick, _ORDERS.c.warehouse, _ORDERS.c.order)
                .limit(limit)
            ).all()
        return tick, [(row.warehouse, row.order, row.item) for row in due]


def apply(connection: sa.Connection, transaction: DataTransaction) -> None:
    """Carry out one event of the log."""
    match events.read(transaction):
        case events.Delivered(warehouse, delivery, item, quantity):
            row = {"warehouse": warehouse, "delivery": delivery, "item": item, "quantity": quantity}
            connection.execute(_DELIVERIES.insert().values(row))
            if not _change(connection, warehouse, item, on_hand=quantity):
                fresh = {"warehouse": warehouse, "item": item, "on_hand": quantity, "reserved": 0}
                connection.execute(_ITEMS.insert().values(fresh))
        case events.Reserved(warehouse, order, item, quantity, hold_ticks):
            last_tick = _tick(connection, transaction.partition_id) + hold_ticks
            new = Order(order, item, quantity, State.RESERVED)
            _insert(connection, transaction.partition_id, warehouse, new, last_tick)
            _change(connection, warehouse, item, reserved=quantity)
        case events.Refused(warehouse, order, item, quantity):
            new = Order(order, item, quantity, State.REFUSED)
            _insert(connection, transaction.partition_id, warehouse, new, 0)
        case events.Shipped(warehouse, order):
            _end(connection, warehouse, order, State.SHIPPED)
        case events.Cancelled(warehouse, order):
            _end(connection, warehouse, order, State.CANCELLED)
        case events.Ticked(tick, expired):
            partition = transaction.partition_id
            if not connection.execute(
                _CLOCKS.update().where(_CLOCKS.c.partition == partition).values(tick=tick)
            ).rowcount:
                connection.execute(_CLOCKS.insert().values(partition=partition, tick=tick))
            for warehouse, order in expired:
                _end(connection, warehouse, order, State.EXPIRED)


def _order(connection: sa.Connection, warehouse: str, order: str) -> Order | None:
    row = connection.execute(
        sa.select(_ORDERS).where(_ORDERS.c.warehouse == warehouse, _ORDERS.c.order == order)
    ).one_or_none()
    return None if row is None else Order(row.order, row.item, row.quantity, State(row.state))


def _tick(connection: sa.Connection, partition: int) -> int:
    tick: int | None = connection.execute(
        sa.select(_CLOCKS.c.tick).where(_CLOCKS.c.partition == partition)
    ).scalar_one_or_none()
    return tick or 0


def _insert(connection: sa.Connection, partition: int, warehouse: str, new: Order, last_tick: int) -> None:
    connection.execute(
        _ORDERS.insert().values(
            warehouse=warehouse,
            order=new.order,
            item=new.item,
            quantity=new.quantity,
            state=new.state,
            partition=partition,
            last_tick=last_tick,
        )
    )


def _end(connection: sa.Connection, warehouse: str, order: str, state: State) -> None:
    ended = _order(connection, warehouse, order)
    if ended is None or ended.state is not State.RESERVED:
        raise ValueError(f"order {order} of {warehouse} cannot be {state}: {ended}")
    connection.execute(
        _ORDERS.update()
        .where(_ORDERS.c.warehouse == warehouse, _ORDERS.c.order == order)
        .values(state=state)
    )
    left = -ended.quantity if state is State.SHIPPED else 0
    _change(connection, warehouse, ended.item, on_hand=left, reserved=-ended.quantity)


def _change(
    connection: sa.Connection, warehouse: str, item: str, *, on_hand: int = 0, reserved: int = 0
) -> bool:
    return bool(
        connection.execute(
            _ITEMS.update()
            .where(_ITEMS.c.warehouse == warehouse, _ITEMS.c.item == item)
            .values(on_hand=_ITEMS.c.on_hand + on_hand, reserved=_ITEMS.c.reserved + reserved)
        ).rowcount
    )
