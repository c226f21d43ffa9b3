"""Databases for the tests of waltz_client.sql, and a small application that keeps sums in one."""

from collections.abc import Callable

import sqlalchemy as sa

from waltz_client import FeedTransaction
from waltz_client.sql import SqlTables

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
