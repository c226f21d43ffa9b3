"""Whose transaction is it: header namespaces, and feeds and databases that pass over what is not theirs."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from client_tests.conftest import ConnectClient
from client_tests.helpers import until
from client_tests.sql_databases import ENTRIES, METADATA, SUMS, contents, record
from waltz_client import FeedTransaction, HeaderNamespace, UsageError
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.sql import SqlApplier, SqlCallbacks
from waltz_client.testing import InProcessLog
from waltz_testkit.fake_cluster import FakeCluster

LEDGER = HeaderNamespace("ledger")
STOCK = HeaderNamespace("stock")
CLAIM_OF_THE_SPARK_SINK = 1464028237


def test_the_headers_of_a_name_never_change() -> None:
    """They are in logs: 0xC07BA4 and 0x4B3656 are the first 24 bits of the CRC-32 of the two names."""
    assert [LEDGER.header(0), LEDGER.header(255), STOCK.header(7)] == [-1065638912, -1065638657, 1261852167]
    for namespace in (LEDGER, STOCK, HeaderNamespace("größer")):
        for kind in (0, 1, 127, 128, 255):
            header = namespace.header(kind)
            assert -(2**31) <= header < 2**31
            assert namespace.owns(header)
            assert namespace.kind(header) == kind
    assert not LEDGER.owns(STOCK.header(1))
    assert LEDGER.kind(STOCK.header(1)) is None
    for header in (0, 1, 255, CLAIM_OF_THE_SPARK_SINK):
        assert not LEDGER.owns(header)


def test_what_is_no_name_or_no_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a name"):
        HeaderNamespace("")
    for kind in (-1, 256):
        with pytest.raises(UsageError, match=f"from 0 to 255, not {kind}"):
            LEDGER.header(kind)


def test_nobody_gets_a_reserved_namespace() -> None:
    """A name that has the first 24 bits of nobody's headers, or of the claims, found by search."""
    for name, whose in (
        ("service-5653036", "headers that nobody has named"),
        ("service-14258888", "claims of the Spark sink"),
    ):
        with pytest.raises(UsageError, match=whose):
            HeaderNamespace(name)


# -- feeds ---------------------------------------------------------------------------------------------------


async def test_a_feed_passes_over_what_is_not_asked_for(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    headers = [LEDGER.header(1), 0, CLAIM_OF_THE_SPARK_SINK, LEDGER.header(2), STOCK.header(1)] * 40
    for number, header in enumerate(headers):
        await client.append(partition=0, data=b"%d" % number, header=header)
    own = [(n, header, b"%d" % n) for n, header in enumerate(headers) if LEDGER.owns(header)]
    last = len(headers) - 1
    got = [t async for t in client.feed(0, where=LEDGER.owns, until=last)]
    assert [(t.transaction_id, t.header, t.data) for t in got] == own
    bare = [t async for t in client.feed(0, where=LEDGER.owns, until=last, with_data=False)]
    assert [(t.transaction_id, t.header, t.data) for t in bare] == [(n, h, None) for n, h, _ in own]
    some = [t async for t in client.feed(0, with_data=LEDGER.owns, until=last)]
    assert [(t.transaction_id, t.data) for t in some] == [
        (n, b"%d" % n if LEDGER.owns(header) else None) for n, header in enumerate(headers)
    ]
    async with asyncio.timeout(20):
        none = [t async for t in client.feed(0, with_data=lambda header: False, until=last)]
    assert [(t.transaction_id, t.data) for t in none] == [(n, None) for n in range(len(headers))]


async def test_a_payload_that_is_passed_over_is_not_asked_for(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    for header in (0, LEDGER.header(1), 0, 0):
        await client.append(partition=0, data=b"x", header=header)
    before = len(cluster.partitions[0].reads)
    assert [t.transaction_id async for t in client.feed(0, where=LEDGER.owns, until=3)] == [1]
    assert len(cluster.partitions[0].reads) - before == 1


@pytest.mark.parametrize("with_data", [True, False])
async def test_a_feed_goes_past_more_strangers_than_a_batch_holds(
    cluster: FakeCluster, connect: ConnectClient, with_data: bool
) -> None:
    """Nothing wakes a reader whose buffer is full of what it passes over, but itself."""
    client = await connect()
    cluster.partitions[0].fill(5_000)
    await client.append(partition=0, data=b"own", header=LEDGER.header(1))
    async with asyncio.timeout(20):
        feed = client.feed(0, where=LEDGER.owns, with_data=with_data)
        async with feed:
            await until(lambda: feed._partitions[0].cursor.count == 5_001)
            assert (await anext(feed)).transaction_id == 5_000
        # bounded, and the end is somebody else's
        assert [t async for t in client.feed(0, where=LEDGER.owns, with_data=with_data, until=4_999)] == []


async def test_a_where_that_raises_ends_the_feed(cluster: FakeCluster, connect: ConnectClient) -> None:
    """What was taken from the buffer is gone: to continue would leave it out without a word."""
    client = await connect()
    for _ in range(3):
        await client.append(partition=0, data=b"x")

    def where(header: int) -> bool:
        raise KeyError(header)

    feed = client.feed(0, where=where)
    with pytest.raises(KeyError):
        await anext(feed)
    with pytest.raises(StopAsyncIteration):
        await anext(feed)


# -- databases -----------------------------------------------------------------------------------------------


def database(path: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{path}")
    METADATA.create_all(engine)
    return engine


def entries(engine: sa.Engine) -> list[tuple[int, bytes]]:
    with engine.connect() as connection:
        rows = connection.execute(sa.select(ENTRIES).order_by(ENTRIES.c.transaction_id)).all()
        assert connection.scalar(sa.select(SUMS.c.total)) == sum(row.transaction_id + 1 for row in rows)
    return [(row.transaction_id, row.data) for row in rows]


def shared_log() -> InProcessLog:
    """Own transactions at 1 and 3; the rest is other programs'."""
    log = InProcessLog(1)
    for number, header in enumerate([0, LEDGER.header(1), 3, LEDGER.header(2), CLAIM_OF_THE_SPARK_SINK]):
        log.partition(0).commit(b"%d" % number, header=header)
    return log


async def test_a_database_applies_its_own_and_the_mark_moves_past_the_rest(tmp_path: Path) -> None:
    engine = database(tmp_path / "a.db")
    async with shared_log().client() as client, SqlApplier(engine, record, where=LEDGER.owns) as applier:
        await applier.create_tables()
        await applier.run(client, until=4)
        assert entries(engine) == [(1, b"1"), (3, b"3")]
        assert await applier.high_water_mark(0) == 4
    engine.dispose()


async def test_callbacks_apply_their_own_and_read_no_other_payload(tmp_path: Path) -> None:
    engine = database(tmp_path / "a.db")
    log = shared_log()

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        assert LEDGER.owns(transaction.header)
        record(connection, transaction)

    async with SqlCallbacks(engine, apply, where=LEDGER.owns) as callbacks:
        await callbacks.create_tables()
        async with log.client(callbacks), asyncio.timeout(20):
            while await callbacks.high_water_mark(0) < 4:
                await asyncio.sleep(0.01)
        assert not callbacks.stopped
    assert entries(engine) == [(1, b"1"), (3, b"3")]
    engine.dispose()


async def test_a_where_that_raises_ends_the_run_and_nothing_is_left_out(tmp_path: Path) -> None:
    engine = database(tmp_path / "a.db")

    def where(header: int) -> bool:
        if header == 3:
            raise KeyError(header)
        return LEDGER.owns(header)

    async with shared_log().client() as client, SqlApplier(engine, record, where=where) as applier:
        await applier.create_tables()
        with pytest.raises(KeyError):
            await applier.run(client, until=4)
    engine.dispose()
    assert contents(engine)[1] == {0: -1}


def test_the_blocking_client_passes_over_too() -> None:
    with BlockingWaltzClient.connect({"client.mockDriver": shared_log()}) as client:
        assert [t.data for t in client.feed(0, where=LEDGER.owns, until=4)] == [b"1", b"3"]
