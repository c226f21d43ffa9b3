"""A service that keeps balances in a database with `waltz_client.sql`; killed and started again by
test_sql_kills.

python -m tests.integration.sql_service CLIENT.yaml DATABASE_URL (feeds|callbacks)
"""

import asyncio
import json
import sys

import sqlalchemy as sa

from waltz_client import FeedTransaction, WaltzClient
from waltz_client.sql import SqlApplier, SqlCallbacks

METADATA = sa.MetaData()
BALANCES = sa.Table(
    "balances",
    METADATA,
    sa.Column("account", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
)
COUNTS = sa.Table(
    "counts",
    METADATA,
    sa.Column("partition_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("transactions", sa.BigInteger, nullable=False),
)


def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
    """Add an amount to an account: nothing here would notice that it was done before."""
    entry = json.loads(transaction.data or b"")
    _add(connection, BALANCES.c.account, entry["account"], BALANCES.c.amount, entry["amount"])
    _add(connection, COUNTS.c.partition_id, transaction.partition_id, COUNTS.c.transactions, 1)


def _add(
    connection: sa.Connection, key: sa.Column[int], which: int, column: sa.Column[int], amount: int
) -> None:
    table = key.table
    assert isinstance(table, sa.Table)
    row = connection.scalar(sa.select(column).where(key == which))
    if row is None:
        connection.execute(sa.insert(table).values({key: which, column: amount}))
    else:
        connection.execute(sa.update(table).where(key == which).values({column: row + amount}))


async def main(config: str, url: str, way: str) -> None:
    engine = sa.create_engine(url)
    METADATA.create_all(engine)
    if way == "feeds":
        async with SqlApplier(engine, apply) as applier, WaltzClient.connect(config) as client:
            await applier.create_tables()
            await applier.run(client)
    else:
        async with SqlCallbacks(engine, apply) as callbacks:
            await callbacks.create_tables()
            async with WaltzClient.connect(config, callbacks):
                await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
