"""A service that keeps balances in a database with `waltz_client.sql`; killed and started again by
test_sql_kills.

python -m tests.integration.sql_service CLIENT.yaml DATABASE_URL (feeds|callbacks)

With asyncpg in the address it applies through an asynchronous engine, by a coroutine function.
"""

import asyncio
import json
import sys

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from waltz_client import FeedTransaction, WaltzClient
from waltz_client.sql import ApplyFunction, AsyncApplyFunction, SqlApplier, SqlCallbacks

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


async def apply_in_loop(connection: AsyncConnection, transaction: FeedTransaction) -> None:
    """The same on the loop."""
    await connection.run_sync(apply, transaction)


async def main(config: str, url: str, way: str) -> None:
    engine: sa.Engine | AsyncEngine
    function: ApplyFunction | AsyncApplyFunction
    if "asyncpg" in url:
        engine, function = create_async_engine(url), apply_in_loop
        async with engine.begin() as connection:
            await connection.run_sync(METADATA.create_all)
    else:
        engine, function = sa.create_engine(url), apply
        METADATA.create_all(engine)
    if way == "feeds":
        async with SqlApplier(engine, function) as applier, WaltzClient.connect(config) as client:
            await applier.create_tables()
            await applier.run(client)
    else:
        async with SqlCallbacks(engine, function) as callbacks:
            await callbacks.create_tables()
            async with WaltzClient.connect(config, callbacks):
                await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
