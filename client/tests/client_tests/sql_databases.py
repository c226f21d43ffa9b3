"""Databases for the tests of waltz_client.sql, and a small application that keeps sums in one."""

import asyncio
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from waltz_client import DataTransaction, FeedTransaction
from waltz_client.sql import ApplyFunction, SqlApplier, SqlTables

METADATA = sa.MetaData()
ENTRIES = sa.Table(
    "entries",
    METADATA,
    sa.Column("partition_id", sa.Integer, primary_key=True),
    sa.Column("transaction_id", sa.BigInteger, primary_key=True),
    sa.Column("data", sa.LargeBinary),
)
SUMS = sa.Table(
    "sums",
    METADATA,
    sa.Column("partition_id", sa.Integer, primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),
)


def record(connection: sa.Connection, transaction: FeedTransaction) -> None:
    """The application: an entry per transaction, and a sum that counts anything applied twice."""
    connection.execute(
        sa.insert(ENTRIES).values(
            partition_id=transaction.partition_id,
            transaction_id=transaction.transaction_id,
            data=transaction.data,
        )
    )
    amount = transaction.transaction_id + 1
    changed = connection.execute(
        sa.update(SUMS)
        .where(SUMS.c.partition_id == transaction.partition_id)
        .values(total=SUMS.c.total + amount)
    )
    if changed.rowcount == 0:
        connection.execute(sa.insert(SUMS).values(partition_id=transaction.partition_id, total=amount))


def contents(
    engine: sa.Engine, tables: SqlTables | None = None
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Ids of the entries and the mark, per partition; fails when a sum does not fit its entries."""
    tables = SqlTables() if tables is None else tables
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")  # one view for all that is read
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
        entries: dict[int, list[int]] = {}
        for partition_id, transaction_id in connection.execute(
            sa.select(ENTRIES.c.partition_id, ENTRIES.c.transaction_id).order_by(
                ENTRIES.c.partition_id, ENTRIES.c.transaction_id
            )
        ):
            entries.setdefault(partition_id, []).append(transaction_id)
        sums = {row.partition_id: row.total for row in connection.execute(sa.select(SUMS))}
        marks = {row.partition_id: row.high_water_mark for row in connection.execute(sa.select(tables.marks))}
    assert sums == {partition_id: sum(ids) + len(ids) for partition_id, ids in entries.items()}
    return entries, marks


def transactions(first: int, last: int, partition_id: int = 0) -> list[FeedTransaction]:
    """Transactions `first` to `last` as a feed gives them."""
    return [
        FeedTransaction((7, 1, partition_id, txid + 1, txid, 0), f"{txid}".encode())
        for txid in range(first, last + 1)
    ]


class Failing:
    """Wraps an apply function: raises what `plan` says at a transaction, as often as it says."""

    def __init__(self, apply: Callable[[sa.Connection, FeedTransaction], None] = record) -> None:
        self.plan: dict[int, tuple[Exception, int]] = {}
        self.calls: list[int] = []
        self._apply = apply

    def __call__(self, connection: sa.Connection, transaction: FeedTransaction) -> None:
        self.calls.append(transaction.transaction_id)
        self._apply(connection, transaction)
        error, left = self.plan.get(transaction.transaction_id, (None, 0))
        if error is not None and left:
            self.plan[transaction.transaction_id] = (error, left - 1)
            raise error


class Applying:
    """Makes appliers with one engine. With an asynchronous one, plain functions become coroutine
    functions."""

    def __init__(self, engine: sa.Engine | AsyncEngine) -> None:
        self.engine = engine
        self.dialect = (engine if isinstance(engine, sa.Engine) else engine.sync_engine).dialect

    def __call__(self, apply: ApplyFunction, **options: Any) -> SqlApplier:
        if isinstance(self.engine, sa.Engine):
            return SqlApplier(self.engine, apply, **options)

        async def in_loop(connection: AsyncConnection, transaction: DataTransaction) -> None:
            await connection.run_sync(apply, transaction)

        return SqlApplier(self.engine, in_loop, **options)


def wait_in_apply(wait: Callable[[], object]) -> None:
    """Blocks the thread that applies; with an asynchronous engine, the greenlet."""
    if in_greenlet():
        await_only(asyncio.to_thread(wait))
    else:
        wait()
