"""Buffers are bounded, a slow reader is paused when alone and dropped back when somebody else needs the
connection."""

import asyncio
import random

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import until
from waltz_client import Append
from waltz_client._internal.stream.feed_cursor import CursorState, FeedCursor
from waltz_client._internal.stream.session import StreamSession
from waltz_client.client import WaltzClient
from waltz_client.transaction import FeedFields
from waltz_testkit.fake_cluster import FakeCluster


def fields(first: int, last: int) -> list[FeedFields]:
    return [(1, 1, 0, txid, txid, 0) for txid in range(first, last + 1)]


def stream_session(client: WaltzClient) -> StreamSession:
    session = client._open.partitions.streams[0].session
    assert session is not None
    return session


def test_a_cursor_never_exceeds_its_capacity() -> None:
    cursor = FeedCursor(0, -1, 1024, lambda: None)
    cursor.state = CursorState.LIVE
    cursor.accept_turn(fields(0, 999))
    cursor.accept_turn(fields(1000, 1999))
    assert cursor.state is CursorState.PARKED
    assert (cursor.count, cursor.tail) == (1024, 1023)
    got = [t for chunk in iter(lambda: cursor.take_at_most(100), ()) for _, _, _, _, t, _ in chunk]
    assert got == list(range(1024))
    assert cursor.drained


def test_a_cursor_ahead_of_the_stream_skips_what_it_has() -> None:
    cursor = FeedCursor(0, 5, 1024, lambda: None)
    cursor.state = CursorState.LIVE
    cursor.accept_turn(fields(0, 3))
    assert (cursor.count, cursor.tail) == (0, 5)
    cursor.accept_turn(fields(4, 9))
    assert (cursor.count, cursor.tail) == (4, 9)


async def test_a_lone_slow_reader_pauses_the_connection(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(100_000)
    client = await connect(feedBufferTransactions=16_384)
    feed = client.feed(0, after=-1, headers_only=True)
    await anext(feed)
    await until(lambda: stream_session(client).paused)
    got = [0]
    async for transaction in feed:
        got.append(transaction.transaction_id)
        if transaction.transaction_id == 99_999:
            break
    assert got == list(range(100_000))
    assert len(cluster.partitions[0].feed_requests) <= 4, (
        "paused by the socket, not by asking again and again"
    )


async def test_an_append_resumes_a_paused_connection(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(60_000)
    client = await connect(feedBufferTransactions=8192)
    feed = client.feed(0, after=-1, headers_only=True)
    await anext(feed)
    await until(lambda: stream_session(client).paused)
    await client.append(partition=0, data=b"x", deadline_seconds=10)
    await client.append(partition=1, data=b"x", deadline_seconds=10)
    got = [0]
    async for transaction in feed:
        got.append(transaction.transaction_id)
        if transaction.transaction_id == 60_000:
            break
    assert got == list(range(60_001))


async def test_a_starving_reader_resumes_a_paused_connection(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(60_000)
    cluster.partitions[1].fill(10)
    client = await connect(feedBufferTransactions=8192)
    slow = client.feed(0, after=-1, headers_only=True)
    await anext(slow)
    await until(lambda: stream_session(client).paused)
    other = client.feed(1, after=-1, headers_only=True)
    async with asyncio.timeout(10):
        assert [(await anext(other)).transaction_id for _ in range(10)] == list(range(10))


@pytest.mark.parametrize(("version", "with_data"), [(4, True), (4, False), (5, False)])
@pytest.mark.parametrize("wanted", [True, False])
async def test_a_range_is_read_next_to_a_reader_that_has_stopped(
    cluster: FakeCluster, connect: ConnectClient, version: int, with_data: bool, wanted: bool
) -> None:
    """Before, what it had read, less than a batch, kept it from being seen as starving, and so did a turn of
    which its filter left everything out."""
    partition = cluster.partitions[0]
    partition.fill(5000)
    client = await connect(feedBufferTransactions=1024, maxProtocolVersion=version)
    stopped = client.feed(0, after=4999, headers_only=True)
    await client.writable(0)
    partition.fill(600)
    await until(lambda: client._open.partitions.streams[0].received == 5599)
    batches = client.read_range(0, 0, 4999, with_data=with_data, where=lambda _: wanted, timeout_seconds=5)
    async with asyncio.timeout(10):
        found = [one async for batch in batches for one in batch.transaction_ids]
    assert found == (list(range(5000)) if wanted else [])
    assert (await anext(stopped)).transaction_id == 5000


async def test_one_partition_does_not_keep_the_others_of_a_feed_waiting(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """A reader that is slower than the writers of one partition, with a short window for payloads."""
    for number in (0, 1):
        cluster.partitions[number].fill(1000)
    client = await connect(prefetchTransactions=1)
    feed = client.feed([0, 1])
    seen = [(await anext(feed)).partition_id for _ in range(60)]
    await feed.aclose()
    assert seen[-20:].count(0) == seen[-20:].count(1) == 10


async def _first_of_a_long_log(client: WaltzClient, how: str, count: int) -> list[int]:
    match how:
        case "range":
            batches = client.read_range(0, 0, count - 1, with_data=False)
            return [transaction_id async for batch in batches for transaction_id in batch.transaction_ids]
        case "until":
            return [
                t.transaction_id async for t in client.feed(0, after=-1, until=count - 1, headers_only=True)
            ]
        case _:
            feed = client.feed(0, after=-1, headers_only=True)
            got = [(await anext(feed)).transaction_id for _ in range(count)]
            await feed.aclose()
            return got


@pytest.mark.parametrize("how", ["range", "until", "aclose"])
async def test_a_reader_that_ends_early_does_not_leave_the_server_feeding(
    cluster: FakeCluster, connect: ConnectClient, how: str
) -> None:
    """Before, each of them left a feed that ran to the end of the log."""
    partition = cluster.partitions[0]
    partition.fill(100_000)
    client = await connect()
    for _ in range(5):
        assert await _first_of_a_long_log(client, how, 1000) == list(range(1000))
    await until(lambda: not partition.busy)
    assert partition.fed < 250_000  # what was on its way; before, half a million
    assert len(partition.feeds) <= 2


async def test_bounded_readers_of_a_quiet_partition_leave_one_feed(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Before, each one left a feed, and at the hundredth the server cut the connection."""
    partition = cluster.partitions[0]
    partition.fill(50)
    client = await connect()
    for _ in range(150):
        got = [t.transaction_id async for t in client.feed(0, after=39, until=49, headers_only=True)]
        assert got == list(range(40, 50))
    assert len(partition.feeds) <= 2


@pytest.mark.parametrize("moves", [True, False])
async def test_readers_that_take_over_each_others_feeds_miss_and_repeat_nothing(
    cluster: FakeCluster, connect: ConnectClient, moves: bool
) -> None:
    """Readers come, end early and are dropped back, at random, under the few request ids that are reused, on
    a server of ours and on one of release 0.13.2 whose leftover feeds run on and are suspended under the id
    of somebody else's."""
    partition = cluster.partitions[0]
    partition.moves_feeds = moves
    partition.fill(20_000)
    client = await connect(feedBufferTransactions=1024)
    rng = random.Random(5)

    async def reader() -> None:
        for _ in range(12):
            after, count = rng.randrange(-1, 19_000), rng.randrange(1, 4000)
            feed = client.feed(0, after=after, headers_only=True)
            expected = after + 1
            while expected <= min(after + count, partition.high_water_mark):
                assert (await anext(feed)).transaction_id == expected
                expected += 1
                if rng.random() < 0.001:
                    await asyncio.sleep(0.01)
                    partition.fill(rng.randrange(30))
            await feed.aclose()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(reader())


async def test_no_credit_is_asked_for_while_every_reader_is_full(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    client = await connect(feedBufferTransactions=1024)
    feed = client.feed(0, after=-1, headers_only=True)
    await until(lambda: partition.feed_requests)
    for _ in range(200):  # a writer elsewhere
        partition.fill(10)
        await asyncio.sleep(0)
    await until(lambda: client._open.partitions.streams[0].received >= 500)
    await asyncio.sleep(0.05)
    asked = len(partition.feed_requests)
    partition.fill(2000)
    await asyncio.sleep(0.05)
    assert len(partition.feed_requests) <= asked + 1
    got: list[int] = []
    async for transaction in feed:
        got.append(transaction.transaction_id)
        if transaction.transaction_id == 3999:
            break
    assert got == list(range(4000))


async def test_no_task_and_no_future_per_transaction(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(maxConcurrentTransactions=1000)
    await client.writable(0)
    loop = asyncio.get_running_loop()
    made = {"tasks": 0, "futures": 0}
    create_future = loop.create_future

    def counting_future() -> "asyncio.Future[object]":
        made["futures"] += 1
        return create_future()

    def factory(loop: asyncio.AbstractEventLoop, coro: object, **kwargs: object) -> "asyncio.Task[object]":
        made["tasks"] += 1
        return asyncio.Task(coro, loop=loop, **kwargs)  # type: ignore[arg-type]

    loop.create_future = counting_future  # type: ignore[method-assign]
    loop.set_task_factory(factory)  # type: ignore[arg-type]
    try:
        await client.append_many([Append(0, b"x")] * 10_000, deadline_seconds=30)
        async for _ in client.feed(0, after=-1, headers_only=True, until=9_999).batches():
            pass
    finally:
        loop.set_task_factory(None)
        loop.create_future = create_future  # type: ignore[method-assign]
    assert made["tasks"] + made["futures"] < 500, made
