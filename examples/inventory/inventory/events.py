"""What is in the log: JSON, one event per transaction, and the locks under which it is decided.

All of a warehouse is in one partition, because locks, and the order of transactions, hold within a partition.
Three things have a lock: an id (was it sent, and what has become of it), an item (how many pieces can be
reserved) and the clock of the partition.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from waltz_client import JSON, HeaderNamespace, LockId, TransactionBuilder

HEADERS = HeaderNamespace("inventory")
CLOCK_LOCK = LockId.of("clock", "inventory")


def id_lock(warehouse: str, id: str) -> LockId:
    """The lock that represents what was sent under one id."""
    return LockId.of("id", f"{warehouse}/{id}")


def item_lock(warehouse: str, item: str) -> LockId:
    """The lock that represents the pieces of an item that can be reserved."""
    return LockId.of("item", f"{warehouse}/{item}")


@dataclass(frozen=True)
class Pieces:
    """So many pieces of an item. `id` is the sender's: sent twice, it counts once."""

    warehouse: str
    id: str
    item: str
    quantity: int

    def lock(self, builder: TransactionBuilder) -> None:
        """A delivery and the end of a reservation: the item has only more pieces afterwards, so many of them
        may be decided at the same time."""
        builder.set_write_locks([id_lock(self.warehouse, self.id)])
        builder.set_append_locks([item_lock(self.warehouse, self.item)])


@dataclass(frozen=True)
class Delivered(Pieces):
    """They came in."""


@dataclass(frozen=True)
class Reserved(Pieces):
    """An order holds them until it is shipped or cancelled, or the clock has ticked more than `hold_ticks`
    times."""

    hold_ticks: int

    def lock(self, builder: TransactionBuilder) -> None:
        """Depends on the item having enough pieces, and takes them."""
        builder.set_write_locks([id_lock(self.warehouse, self.id), item_lock(self.warehouse, self.item)])


@dataclass(frozen=True)
class Refused(Pieces):
    """Too few were there. In the log, because an earlier attempt at the same order may still be on its way:
    the lock on the id lets only one of them be the answer."""

    def lock(self, builder: TransactionBuilder) -> None:
        """Depends on the same, and leaves the pieces where they are."""
        builder.set_write_locks([id_lock(self.warehouse, self.id)])
        builder.set_read_locks([item_lock(self.warehouse, self.item)])


@dataclass(frozen=True)
class Shipped(Pieces):
    """They have left. They could not be reserved before either: the item is not touched."""

    def lock(self, builder: TransactionBuilder) -> None:
        """Depends on the order being open."""
        builder.set_write_locks([id_lock(self.warehouse, self.id)])


@dataclass(frozen=True)
class Cancelled(Pieces):
    """The order gave them back."""


@dataclass(frozen=True)
class Ticked:
    """The clock of the partition has ticked, and ended these reservations."""

    tick: int
    expired: list[Pieces]

    def lock(self, builder: TransactionBuilder) -> None:
        """Depends on the clock, and on each of the orders being open."""
        builder.set_write_locks([CLOCK_LOCK, *(id_lock(one.warehouse, one.id) for one in self.expired)])
        builder.set_append_locks({item_lock(one.warehouse, one.item) for one in self.expired})


Event = Delivered | Reserved | Refused | Shipped | Cancelled | Ticked
_HEADERS: dict[int, type[Event]] = {
    HEADERS.header(kind): event
    for kind, event in enumerate((Delivered, Reserved, Refused, Shipped, Cancelled, Ticked), 1)
}


def fill(builder: TransactionBuilder, event: Event) -> None:
    """Let the transaction be this event."""
    (header,) = (header for header, kind in _HEADERS.items() if kind is type(event))
    builder.set_header(header).set_transaction_data(asdict(event), JSON)
    event.lock(builder)


def decode(header: int, data: bytes) -> Event:
    """The event of a transaction of ours."""
    fields, kind = JSON.deserialize(data), _HEADERS[header]
    if kind is Ticked:
        return Ticked(fields["tick"], [Pieces(**one) for one in fields["expired"]])
    return kind(**fields)
