"""The service's database: balances and answered orders. Written from the log only, by `apply`."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa

from ledger.events import Opened, Transfer, Transferred, decode
from waltz_client import DataTransaction

METADATA = sa.MetaData()

ACCOUNTS = sa.Table(
    "accounts",
    METADATA,
    sa.Column("book", sa.String(64), primary_key=True),
    sa.Column("account", sa.String(64), primary_key=True),
    sa.Column("balance", sa.BigInteger, nullable=False),
)

ORDERS = sa.Table(
    "orders",
    METADATA,
    sa.Column("book", sa.String(64), primary_key=True),
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("source", sa.String(64), nullable=False),
    sa.Column("target", sa.String(64), nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("why", sa.String(64), nullable=False),
)


def apply(connection: sa.Connection, transaction: DataTransaction) -> None:
    """What a transaction does to the tables. Runs in one database transaction with the high-water mark:
    exactly once."""
    event = decode(transaction.header, transaction.data)
    if isinstance(event, Opened):
        connection.execute(
            sa.insert(ACCOUNTS).values(book=event.book, account=event.account, balance=event.balance)
        )
        return
    if isinstance(event, Transferred):
        _add(connection, event.book, event.source, -event.amount)
        _add(connection, event.book, event.target, event.amount)
    connection.execute(sa.insert(ORDERS).values({"why": "", **asdict(event)}))


def _add(connection: sa.Connection, book: str, account: str, amount: int) -> None:
    connection.execute(
        sa.update(ACCOUNTS)
        .where(ACCOUNTS.c.book == book, ACCOUNTS.c.account == account)
        .values(balance=ACCOUNTS.c.balance + amount)
    )


class Store:
    """Reading. Synchronous: call it in a thread."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def balances(self, book: str) -> dict[str, int]:
        """Every account of a book."""
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(ACCOUNTS).where(ACCOUNTS.c.book == book))
            return {row.account: row.balance for row in rows}

    def balance(self, book: str, account: str) -> int | None:
        """One balance; None when there is no such account."""
        with self._engine.connect() as connection:
            return connection.scalar(
                sa.select(ACCOUNTS.c.balance).where(ACCOUNTS.c.book == book, ACCOUNTS.c.account == account)
            )

    def answer(self, book: str, order_id: str) -> tuple[Transfer, str] | None:
        """An order that was answered, and why it was refused, empty when it was carried out; None for an id
        without an answer."""
        with self._engine.connect() as connection:
            row = connection.execute(
                sa.select(ORDERS).where(ORDERS.c.book == book, ORDERS.c.id == order_id)
            ).one_or_none()
        if row is None:
            return None
        return Transfer(row.book, row.id, row.source, row.target, row.amount), row.why
