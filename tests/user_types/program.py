"""A program that uses the whole public API of the client, as a user of its wheel type-checks it. It is never
run."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, assert_type

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

import waltz_client as wc
from waltz_client.blocking import (
    BlockingDataFeed,
    BlockingDataRangeRead,
    BlockingFeed,
    BlockingRangeRead,
    BlockingWaltzClient,
)
from waltz_client.sql import (
    BlockingSqlApplier,
    DatabaseUnavailableError,
    HighWaterMarkMovedError,
    SqlApplier,
    SqlApplyError,
    SqlCallbacks,
    SqlTableMissingError,
    SqlTables,
)
from waltz_client.testing import InProcessLog, LoggedTransaction, LogPartition

ORDERS = wc.HeaderNamespace("orders")
PLACED = ORDERS.header(1)


class Order:
    """A value with a serializer of the application's own."""

    def __init__(self, text: str) -> None:
        self.text = text


class OrderSerializer:
    """Fits `Serializer[Order]` by its shape."""

    def serialize(self, value: Order) -> bytes:
        return value.text.encode()

    def deserialize(self, data: bytes) -> Order:
        return Order(data.decode())


async def plain(client: wc.WaltzClient) -> None:
    """Appends, reads."""
    assert_type(client.num_partitions, int)
    assert_type(client.partition_for("alice"), int)
    assert_type(wc.partition_for("alice", 8), int)
    lock = wc.LockId.of("account", "alice")
    committed = await client.append(partition=0, data=b"x", header=PLACED, write_locks=[lock], as_of=None)
    assert_type(committed, wc.Committed)
    assert_type(committed.transaction_id, int)
    results = await client.append_many([wc.Append(0, b"x", read_locks=[lock])], deadline_seconds=1.0)
    assert_type(results, Sequence[wc.Committed | wc.AppendError])

    def done(pending: wc.PendingAppend) -> None:
        assert_type(pending.outcome, wc.Outcome | None)
        assert_type(pending.result(), wc.Committed)

    await client.writable(0, deadline_seconds=1.0)
    assert_type(client.append_nowait(partition=0, data=b"x", on_done=done), wc.PendingAppend)
    assert_type(await client.high_water_mark(0), int)
    assert_type(await client.get_data(0, 0), bytes)
    assert_type(await client.get_data(0, 0, wc.STRING), str)
    assert_type(await client.get_data(0, 0, OrderSerializer()), Order)
    await client.flush_transactions(deadline_seconds=1.0)
    assert_type(client.has_pending_transactions(), bool)
    assert_type(client.get_partitions(), list[int])
    for server in client.servers.endpoints():
        assert_type(await client.servers.health(server), dict[int, bool])


async def feeds(client: wc.WaltzClient) -> None:
    """A payload is there where it was asked for."""
    async with client.feed([0, 1], after={0: 3, 1: None}, where=ORDERS.owns, until=9) as feed:
        assert_type(feed, wc.DataFeed)
        async for transaction in feed:
            assert_type(transaction, wc.DataTransaction)
            assert_type(transaction.data, bytes)
            assert_type(transaction.header, int)
            assert_type(transaction.value(OrderSerializer()), Order)
    assert_type(feed.batches(), AsyncIterator[list[wc.DataTransaction]])
    async for bare in client.feed(0, headers_only=True):
        assert_type(bare, wc.FeedTransaction)
        assert_type(bare.data, bytes | None)
    async with client.read_range(0, 0, 9) as read:
        assert_type(read, wc.DataRangeRead)
        async for batch in read:
            assert_type(batch, wc.DataRangeBatch)
            assert_type(batch.data, bytes)
            assert_type(batch.data[batch.offsets[0] : batch.offsets[1]], bytes)
            for transaction_id in batch.transaction_ids:
                assert_type(transaction_id, int)
            assert_type(batch.transactions(), list[wc.DataTransaction])
    async with client.read_range(0, 0, 9, with_data=False) as bare_read:
        assert_type(bare_read, wc.RangeRead)
        async for bare_batch in bare_read:
            assert_type(bare_batch, wc.RangeBatch)
            assert_type(bare_batch.data, bytes | None)


async def decisions(client: wc.WaltzClient) -> None:
    """`transact` keeps the type of the decision."""

    def decide(builder: wc.TransactionBuilder) -> int:
        builder.set_transaction_data(Order("tea"), OrderSerializer()).set_header(PLACED)
        return 3

    async def decide_later(builder: wc.TransactionBuilder) -> str:
        await asyncio.sleep(0)
        builder.set_transaction_data({"a": 1}, wc.JSON).set_write_locks([wc.LockId("a", 1)])
        return "done"

    result = await client.transact(0, decide)
    assert_type(result, wc.Transacted[int])
    assert_type(result.committed, wc.Committed | None)
    assert_type((await client.transact(0, decide_later, deadline_seconds=1.0)).value, str)
    await client.submit(Write())


class Write(wc.TransactionContext):
    """A context."""

    def partition_id(self, num_partitions: int) -> int:
        return 0

    async def execute(self, builder: wc.TransactionBuilder) -> bool:
        builder.set_transaction_data(b"x", wc.BYTES)
        return True

    async def on_completion(self, committed: bool) -> None:
        assert_type(committed, bool)


class Applied:
    """Fits `WaltzClientCallbacks` by its shape; methods may be plain or coroutine functions."""

    def client_high_water_mark(self, partition_id: int) -> int:
        return -1

    async def apply_transaction(self, transaction: wc.Transaction) -> None:
        assert_type(await transaction.raw_data(), bytes)
        assert_type(await transaction.data(wc.STRING), str)

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: Exception) -> None:
        raise error


def apply(connection: sa.Connection, transaction: wc.DataTransaction) -> None:
    """For synchronous engines."""
    connection.execute(sa.text("insert into t values (:data)"), {"data": transaction.data})


def apply_headers(connection: sa.Connection, transaction: wc.FeedTransaction) -> None:
    """Where payloads are left out."""
    connection.execute(sa.text("insert into t values (:header)"), {"header": transaction.header})


async def apply_async(connection: AsyncConnection, transaction: wc.DataTransaction) -> None:
    """For asynchronous engines."""
    await connection.execute(sa.text("insert into t values (:data)"), {"data": transaction.data})


async def databases(engine: sa.Engine, asynchronous: AsyncEngine, client: wc.WaltzClient) -> None:
    """The SQL helper."""
    SqlApplier(engine, apply_headers, with_data=False)
    async with SqlApplier(asynchronous, apply_async, tables=SqlTables(marks="marks")) as applier:
        await applier.create_tables()
        await applier.run(client, [0, 1], until={0: 3, 1: 4})
        await applier.applied(0, 3, timeout_seconds=1.0)
        assert_type(await applier.lag(client), dict[int, int])
        assert_type(await applier.high_water_mark(0), int)
        assert_type(applier.stopped, dict[int, wc.StopApplyingError])
    async with SqlCallbacks(engine, apply) as callbacks, wc.WaltzClient.connect("client.yaml", callbacks):
        pass
    async with wc.WaltzClient.connect({"cluster.root": "/waltz"}, Applied()) as other:
        assert_type(other, wc.WaltzClient)


def without_a_loop(engine: sa.Engine) -> None:
    """The blocking client."""
    callbacks = SqlCallbacks(engine, apply, where=ORDERS.owns, on_application_error="dead-letter")
    with BlockingWaltzClient.connect("client.yaml", callbacks) as client:
        assert_type(client, BlockingWaltzClient)
        assert_type(client.append(partition=0, data=b"x"), wc.Committed)
        assert_type(client.get_data(0, 0, OrderSerializer()), Order)
        assert_type(client.transact(0, lambda builder: 3), wc.Transacted[int])
        with client.feed(0, until=3) as feed:
            assert_type(feed, BlockingDataFeed)
            for transaction in feed:
                assert_type(transaction.data, bytes)
        assert_type(iter(client.feed(0)), Iterator[wc.DataTransaction])
        assert_type(client.feed(0, headers_only=True), BlockingFeed)
        with client.read_range(0, 0, 3) as read:
            assert_type(read, BlockingDataRangeRead)
            for batch in read:
                assert_type(batch, wc.DataRangeBatch)
                assert_type(batch.data, bytes)
        assert_type(client.read_range(0, 0, 3, with_data=False), BlockingRangeRead)
        with BlockingSqlApplier(client, SqlApplier(engine, apply)) as applier:
            applier.run(0, until=3)
            assert_type(applier.lag(), dict[int, int])


def errors(error: Exception) -> str:
    """Each says what it says."""
    match error:
        case wc.LockConflictError():
            assert_type(error.conflicting_high_water_mark, int)
        case wc.NotAppliedError():
            assert_type(error.committed, wc.Committed)
        case wc.AppendError():
            assert_type(error.outcome, wc.Outcome)
            assert_type(error.retriable, bool)
        case SqlApplyError() | DatabaseUnavailableError() | HighWaterMarkMovedError():
            assert_type(error.partition_id, int)
        case SqlTableMissingError() | wc.PayloadError() | wc.WaltzClientError():
            assert_type(error.user_error, bool)
        case _:
            return "not ours"
    return str(error)


@pytest.mark.waltz_log(num_partitions=2)
async def test_of_an_application(waltz_log: InProcessLog) -> None:
    """The log of tests."""
    partition = waltz_log.partition(1)
    assert_type(partition, LogPartition)
    partition.commit(b"x", write_locks=[wc.LockId("a", 1)])
    partition.fail_next(2)
    assert_type(partition.transactions, list[LoggedTransaction])
    async with waltz_log.client() as client:
        assert_type(client, wc.WaltzClient)


def anything(value: Any) -> wc.Serializer[Any]:
    """Serializers are a protocol."""
    serializer: wc.Serializer[Order] = OrderSerializer()
    reader: wc.Deserializer[Order] = serializer
    assert_type(reader.deserialize(b""), Order)
    return wc.JSON if value is None else serializer
