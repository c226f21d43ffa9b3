"""The service's database: a line per movement with the balance after it, and totals per book. Written by
`apply` only.

The engine is an asynchronous one, used on the event loop without threads; `apply` is a plain function all the
same, and runs as in `AsyncConnection.run_sync`.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ledger.events import Opened, Transferred, decode
from waltz_client import DataTransaction

METADATA = sa.MetaData()

LINES = sa.Table(
    "lines",
    METADATA,
    sa.Column("book", sa.String(64), primary_key=True),
    sa.Column("account", sa.String(64), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("text", sa.String(160), nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("balance", sa.BigInteger, nullable=False),
)

BOOKS = sa.Table(
    "books",
    METADATA,
    sa.Column("book", sa.String(64), primary_key=True),
    sa.Column("accounts", sa.BigInteger, nullable=False),
    sa.Column("transfers", sa.BigInteger, nullable=False),
    sa.Column("volume", sa.BigInteger, nullable=False),
    sa.Column("total", sa.BigInteger, nullable=False),
)


def apply(connection: sa.Connection, transaction: DataTransaction) -> None:
    """One event, one database transaction with the high-water mark."""
    event = decode(transaction.header, transaction.data)
    if isinstance(event, Opened):
        _line(connection, event.book, event.account, "opened", event.balance)
        _count(connection, event.book, accounts=1, total=event.balance)
    elif isinstance(event, Transferred):
        _line(connection, event.book, event.source, f"to {event.target}, {event.id}", -event.amount)
        _line(connection, event.book, event.target, f"from {event.source}, {event.id}", event.amount)
        _count(connection, event.book, transfers=1, volume=event.amount)


def _line(connection: sa.Connection, book: str, account: str, text: str, amount: int) -> None:
    last = connection.execute(
        sa.select(LINES.c.number, LINES.c.balance)
        .where(LINES.c.book == book, LINES.c.account == account)
        .order_by(LINES.c.number.desc())
        .limit(1)
    ).one_or_none()
    number, balance = (0, 0) if last is None else (last.number, last.balance)
    connection.execute(
        sa.insert(LINES).values(
            book=book, account=account, number=number + 1, text=text, amount=amount, balance=balance + amount
        )
    )


def _count(connection: sa.Connection, book: str, **more: int) -> None:
    changed = connection.execute(
        sa.update(BOOKS)
        .where(BOOKS.c.book == book)
        .values({BOOKS.c[name]: BOOKS.c[name] + number for name, number in more.items()})
    )
    if changed.rowcount == 0:
        row = {"accounts": 0, "transfers": 0, "volume": 0, "total": 0, **more}
        connection.execute(sa.insert(BOOKS).values(book=book, **row))


class Store:
    """Reading."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def summary(self, book: str) -> dict[str, object] | None:
        """Totals of a book."""
        async with self._engine.connect() as connection:
            found = await connection.execute(sa.select(BOOKS).where(BOOKS.c.book == book))
        row = found.one_or_none()
        return None if row is None else dict(row._mapping)

    async def statement(self, book: str, account: str) -> list[dict[str, object]]:
        """The lines of an account, oldest first."""
        async with self._engine.connect() as connection:
            rows = await connection.execute(
                sa.select(LINES.c.number, LINES.c.text, LINES.c.amount, LINES.c.balance)
                .where(LINES.c.book == book, LINES.c.account == account)
                .order_by(LINES.c.number)
            )
        return [dict(row._mapping) for row in rows]
