"""The database of an instance: stock, what was sent under each id, clocks. Written from the log only, by
`apply`."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from inventory.events import Cancelled, Delivered, Pieces, Refused, Reserved, Shipped, Ticked, decode
from waltz_client import DataTransaction

METADATA = sa.MetaData()

STOCK = sa.Table(
    "stock",
    METADATA,
    sa.Column("warehouse", sa.String(64), primary_key=True),
    sa.Column("item", sa.String(64), primary_key=True),
    sa.Column("on_hand", sa.BigInteger, nullable=False),
    sa.Column("reserved", sa.BigInteger, nullable=False),
)

ENTRIES = sa.Table(
    "entries",
    METADATA,
    sa.Column("warehouse", sa.String(64), primary_key=True),
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("item", sa.String(64), nullable=False),
    sa.Column("quantity", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("partition_id", sa.Integer, nullable=False),
    sa.Column("last_tick", sa.BigInteger, nullable=False),
    sa.Index("entries_that_expire", "state", "partition_id", "last_tick"),
)

CLOCKS = sa.Table(
    "clocks",
    METADATA,
    sa.Column("partition_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("tick", sa.BigInteger, nullable=False),
)

RESERVED = "reserved"
"""The only state of an entry that is not for good; the others are delivered, refused, shipped, cancelled and
expired."""


class Stock(NamedTuple):
    """The pieces of one item: in the warehouse, and how many of these are held by orders."""

    on_hand: int
    reserved: int


class Entry(NamedTuple):
    """What was sent under an id, and what has become of it."""

    pieces: Pieces
    state: str


def apply(connection: sa.Connection, transaction: DataTransaction) -> None:
    """What a transaction does to the tables. Runs in one database transaction with the high-water mark:
    exactly once."""
    partition = transaction.partition_id
    match decode(transaction.header, transaction.data):
        case Delivered() as event:
            _enter(connection, event, "delivered", partition)
            _move(connection, event, on_hand=event.quantity)
        case Reserved() as event:
            last_tick = _tick(connection, partition) + event.hold_ticks
            _enter(connection, event, RESERVED, partition, last_tick)
            _move(connection, event, reserved=event.quantity)
        case Refused() as event:
            _enter(connection, event, "refused", partition)
        case Shipped() as event:
            _end(connection, event, "shipped")
            _move(connection, event, on_hand=-event.quantity, reserved=-event.quantity)
        case Cancelled() as event:
            _end(connection, event, "cancelled")
            _move(connection, event, reserved=-event.quantity)
        case Ticked(tick, expired):
            clock = sa.update(CLOCKS).where(CLOCKS.c.partition_id == partition).values(tick=tick)
            if not connection.execute(clock).rowcount:
                connection.execute(sa.insert(CLOCKS).values(partition_id=partition, tick=tick))
            for pieces in expired:
                _end(connection, pieces, "expired")
                _move(connection, pieces, reserved=-pieces.quantity)


def _tick(connection: sa.Connection, partition: int) -> int:
    return connection.scalar(sa.select(CLOCKS.c.tick).where(CLOCKS.c.partition_id == partition)) or 0


def _enter(connection: sa.Connection, new: Pieces, state: str, partition: int, last_tick: int = 0) -> None:
    row = {"warehouse": new.warehouse, "id": new.id, "item": new.item, "quantity": new.quantity}
    connection.execute(
        sa.insert(ENTRIES).values(row | {"state": state, "partition_id": partition, "last_tick": last_tick})
    )


def _end(connection: sa.Connection, pieces: Pieces, state: str) -> None:
    this = (ENTRIES.c.warehouse == pieces.warehouse) & (ENTRIES.c.id == pieces.id)
    update = sa.update(ENTRIES).where(this & (ENTRIES.c.state == RESERVED)).values(state=state)
    if connection.execute(update).rowcount != 1:
        raise ValueError(f"{pieces} cannot be {state}: it is not reserved")


def _move(connection: sa.Connection, pieces: Pieces, *, on_hand: int = 0, reserved: int = 0) -> None:
    this = {"warehouse": pieces.warehouse, "item": pieces.item}
    update = sa.update(STOCK).where(*(STOCK.c[name] == value for name, value in this.items()))
    changes = {"on_hand": STOCK.c.on_hand + on_hand, "reserved": STOCK.c.reserved + reserved}
    if not connection.execute(update.values(changes)).rowcount:
        connection.execute(sa.insert(STOCK).values(this | {"on_hand": on_hand, "reserved": reserved}))


class Store:
    """Reading. Synchronous: call it in a thread."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def stock(self, warehouse: str, item: str) -> Stock:
        """What there is of an item; nothing of one that was never delivered."""
        with self._engine.connect() as connection:
            row = connection.execute(
                sa.select(STOCK.c.on_hand, STOCK.c.reserved).where(
                    STOCK.c.warehouse == warehouse, STOCK.c.item == item
                )
            ).one_or_none()
        return Stock(0, 0) if row is None else Stock(*row)

    def entry(self, warehouse: str, id: str) -> Entry | None:
        """What was sent under an id; None when nothing was."""
        with self._engine.connect() as connection:
            row = connection.execute(
                sa.select(ENTRIES).where(ENTRIES.c.warehouse == warehouse, ENTRIES.c.id == id)
            ).one_or_none()
        return None if row is None else Entry(Pieces(warehouse, id, row.item, row.quantity), row.state)

    def clock(self, partition: int) -> int | None:
        """The last tick of a partition; None while nothing is reserved there, and the clock is at rest."""
        with self._engine.connect() as connection:
            if connection.execute(sa.select(ENTRIES.c.id).where(*_open(partition)).limit(1)).first() is None:
                return None
            return _tick(connection, partition)

    def next_tick(self, partition: int, limit: int) -> Ticked:
        """What the next tick of a partition will be: it ends the reservations that are due, the oldest first
        and not more than `limit`."""
        with self._engine.connect() as connection:
            tick = _tick(connection, partition)
            due = sa.select(ENTRIES).where(*_open(partition), ENTRIES.c.last_tick <= tick)
            rows = connection.execute(due.order_by(ENTRIES.c.last_tick).limit(limit)).all()
        return Ticked(tick + 1, [Pieces(row.warehouse, row.id, row.item, row.quantity) for row in rows])


def _open(partition: int) -> tuple[sa.ColumnElement[bool], ...]:
    return ENTRIES.c.state == RESERVED, ENTRIES.c.partition_id == partition
