"""What is in the log: JSON, one event per transaction, and the locks under which it is decided.

All accounts of a book are in one partition, because locks, and the order of transactions, hold within a
partition.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from waltz_client import HeaderNamespace, LockId
from waltz_client.serializers import JSON

HEADERS = HeaderNamespace("ledger")
"""The header of a transaction says whose it is and what it is: readers need no payload for either, and
whatever else is in the partition is passed over."""


class Locks(NamedTuple):
    """`write`: depends on it and changes it. `read`: depends on it. `append`: changes it without having
    looked."""

    write: tuple[LockId, ...] = ()
    read: tuple[LockId, ...] = ()
    append: tuple[LockId, ...] = ()


@dataclass(frozen=True)
class Opened:
    """An account was opened with a balance."""

    book: str
    account: str
    balance: int

    def locks(self) -> Locks:
        """Whoever opens the account must know that it is not there yet."""
        return Locks(write=(account_lock(self.book, self.account),))


@dataclass(frozen=True)
class Transfer:
    """An order: an amount from one account to another. `id` is the customer's, and is answered once,
    whatever happens."""

    book: str
    id: str
    source: str
    target: str
    amount: int


@dataclass(frozen=True)
class Transferred(Transfer):
    """It was carried out."""

    def locks(self) -> Locks:
        """Depends on the balance of the source and on the id having no answer. Many may pay into one account
        at the same time."""
        return Locks(
            write=(account_lock(self.book, self.source), order_lock(self.book, self.id)),
            append=(account_lock(self.book, self.target),),
        )


@dataclass(frozen=True)
class Refused(Transfer):
    """It could not be carried out, and `why`.

    A refusal is in the log because it is an answer too: an earlier attempt at the same order may still be on
    its way (its service was killed, say), or be in the log and not yet in the tables of this instance. The
    lock on the id lets only one of them be the answer.
    """

    why: str = "not enough money"

    def locks(self) -> Locks:
        """Depends on the accounts, and leaves them as they are."""
        accounts = (account_lock(self.book, self.source), account_lock(self.book, self.target))
        return Locks(write=(order_lock(self.book, self.id),), read=accounts)


Event = Opened | Transferred | Refused
_HEADERS: dict[type[Event], int] = {
    Opened: HEADERS.header(1),
    Transferred: HEADERS.header(2),
    Refused: HEADERS.header(3),
}


def encode(event: Event) -> tuple[int, bytes]:
    """Header and payload."""
    return _HEADERS[type(event)], JSON.serialize(asdict(event))


def decode(header: int, data: bytes) -> Event:
    """The event of a transaction; ValueError for one that is no event of the ledger."""
    for kind, number in _HEADERS.items():
        if number == header:
            return kind(**JSON.deserialize(data))
    raise ValueError(f"{header} is no event of the ledger")


def account_lock(book: str, account: str) -> LockId:
    """The lock that represents one account."""
    return LockId.of("account", f"{book}/{account}")


def order_lock(book: str, order_id: str) -> LockId:
    """The lock that represents the answer to one order."""
    return LockId.of("order", f"{book}/{order_id}")
