"""The readers: feeds that write down what they see, and a consumer that keeps a database."""

import asyncio
import json
import sqlite3
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self

from tests.integration.nemesis.load.context import Context
from tests.integration.nemesis.load.journal import digest
from tests.integration.nemesis.load.payload import Replica, decode
from waltz_client import FeedTransaction, WaltzClient

_SLOW_SECONDS = 0.3


async def feed(client: WaltzClient, context: Context) -> None:
    """From the beginning, all partitions in one feed, for as long as it lives."""
    await _follow(client, context, slow=False)


async def slow_feed(client: WaltzClient, context: Context) -> None:
    """The same, by a reader that lets the transactions pile up."""
    await _follow(client, context, slow=True)


async def _follow(client: WaltzClient, context: Context, *, slow: bool) -> None:
    context.journal.feeds_begin()

    async def read() -> None:
        async with client.feed(range(client.num_partitions), after=-1) as transactions:
            async for batch in transactions.batches():
                context.journal.delivered(
                    [
                        (each.partition_id, each.transaction_id, digest(each.header, each.data or b""))
                        for each in batch
                    ]
                )
                if slow:
                    await context.pause(_SLOW_SECONDS)

    await _until_stopped(context, read())


async def consumer(client: WaltzClient, context: Context) -> None:
    """Applies every transaction to SQLite, with the mark of its partition, in one transaction of the
    database."""
    with Database(context.directory / f"{context.role}.sqlite", client.num_partitions) as database:

        async def read() -> None:
            async with client.feed(range(client.num_partitions), after=database.marks()) as transactions:
                async for batch in transactions.batches():
                    for each in batch:
                        database.apply(each)

        await _until_stopped(context, read())


async def _until_stopped(context: Context, reading: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reading)
        await context.stop.wait()
        task.cancel()


class Database:
    """One row per partition: mark, chained digest of all transactions, balances, counts. One file, many
    lives.

    Invariant: a row changes in one transaction of the database, so a SIGKILL leaves what one mark says.
    """

    def __init__(self, path: Path, partitions: int) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        execute = self._connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=NORMAL")  # processes die here, not machines
        execute("CREATE TABLE IF NOT EXISTS state (partition INTEGER PRIMARY KEY, row TEXT NOT NULL)")
        stored = dict(execute("SELECT partition, row FROM state"))
        self._rows = {p: Row.decode(stored[p]) if p in stored else Row() for p in range(partitions)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def marks(self) -> dict[int, int]:
        """Id of the last transaction applied, per partition."""
        return {partition: row.replica.applied for partition, row in self._rows.items()}

    def row(self, partition: int) -> "Row":
        return self._rows[partition]

    def apply(self, transaction: FeedTransaction) -> None:
        partition = transaction.partition_id
        row = self._rows[partition]
        row.apply(transaction.transaction_id, transaction.header, transaction.data or b"")
        self._connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (partition, row.encode()))


class Row:
    """State of one partition."""

    def __init__(self) -> None:
        self.replica = Replica()
        self.chain = ""

    def apply(self, transaction_id: int, header: int, data: bytes) -> None:
        self.replica.apply(transaction_id, decode(data))
        self.chain = digest(0, f"{self.chain} {transaction_id} {digest(header, data)}".encode())

    def encode(self) -> str:
        replica = self.replica
        return json.dumps([replica.applied, self.chain, replica.balances, replica.counts])

    @classmethod
    def decode(cls, text: str) -> Self:
        row = cls()
        row.replica.applied, row.chain, row.replica.balances, row.replica.counts = json.loads(text)
        return row
