"""The service's database: which accounts there are. Written by `apply` only."""

from __future__ import annotations

import sqlalchemy as sa

from ledger.events import Opened, decode
from waltz_client import DataTransaction

METADATA = sa.MetaData()

NAMES = sa.Table(
    "names",
    METADATA,
    sa.Column("book", sa.String(64), primary_key=True),
    sa.Column("account", sa.String(64), primary_key=True),
)


def apply(connection: sa.Connection, transaction: DataTransaction) -> None:
    """One event, one database transaction with the high-water mark."""
    event = decode(transaction.header, transaction.data)
    if isinstance(event, Opened):
        connection.execute(sa.insert(NAMES).values(book=event.book, account=event.account))


def names(engine: sa.Engine, book: str) -> set[str]:
    """The accounts of a book."""
    with engine.connect() as connection:
        return set(connection.scalars(sa.select(NAMES.c.account).where(NAMES.c.book == book)))
