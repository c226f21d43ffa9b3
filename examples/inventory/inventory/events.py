"""What is in the log: what happened, each event a JSON payload whose header says of which kind it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from waltz_client import JSON, DataTransaction, HeaderNamespace, TransactionBuilder

INVENTORY = HeaderNamespace("inventory")


@dataclass(frozen=True, slots=True)
class Delivered:
    """Pieces of an item came in; `delivery` makes it one when it is sent twice."""

    warehouse: str
    delivery: str
    item: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """An order holds pieces until it is shipped, cancelled, or the clock of the log has gone on by more than
    `hold_ticks`."""

    warehouse: str
    order: str
    item: str
    quantity: int
    hold_ticks: int


@dataclass(frozen=True, slots=True)
class Refused:
    """There were too few pieces for the order. This is its answer for good."""

    warehouse: str
    order: str
    item: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Shipped:
    """The pieces that the order held have left."""

    warehouse: str
    order: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The order gave its pieces back."""

    warehouse: str
    order: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """The clock of a partition, one further, and the reservations that this ends: [warehouse, order] each."""

    tick: int
    expired: list[list[str]]


Event = Delivered | Reserved | Refused | Shipped | Cancelled | Ticked
KINDS: dict[int, type[Event]] = {
    1: Delivered,
    2: Reserved,
    3: Refused,
    4: Shipped,
    5: Cancelled,
    6: Ticked,
}  # for ever: these numbers are in the log
HEADERS = {kind: INVENTORY.header(number) for number, kind in KINDS.items()}


def fill(builder: TransactionBuilder, event: Event) -> TransactionBuilder:
    """Let a transaction be this event."""
    return builder.set_header(HEADERS[type(event)]).set_transaction_data(asdict(event), JSON)


def read(transaction: DataTransaction) -> Event:
    """The event of a transaction of ours; KeyError or TypeError for what this program does not know."""
    kind = INVENTORY.kind(transaction.header)
    if kind is None:
        raise KeyError(transaction.header)
    return KINDS[kind](**transaction.value(JSON))
