"""append, append_nowait, append_many and feed against a fake server."""

import asyncio

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import until
from waltz_client import (
    Append,
    ClientAheadError,
    Committed,
    Feed,
    FeedTransaction,
    LockConflictError,
    LockId,
    PartitionNotFoundError,
    PendingAppend,
    WaltzClientError,
    WindowFullError,
)
from waltz_client.testing import InProcessLog
from waltz_cluster.serializers import ClusterParams
from waltz_protocol.aio.tasks import spawn
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate


async def test_append_and_read_back(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    assert await client.append(partition=0, data=b"one", header=7) == Committed(0, 0)
    assert await client.append(partition=0, data=b"two", header=-1) == Committed(0, 1)
    assert await client.append(partition=1, data=b"") == Committed(1, 0)
    got = [t async for t in client.feed(0, after=-1, until=1)]
    assert [(t.transaction_id, t.header, t.data, t.req_id.client_id) for t in got] == [
        (0, 7, b"one", client.client_id),
        (1, -1, b"two", client.client_id),
    ]
    assert await client.high_water_mark(0) == 1
    assert await client.get_data(0, 1) == b"two"
    assert client.cluster_name == "fake cluster"
    assert client.num_partitions == 2
    assert client.get_partitions() == [0, 1]


async def test_client_server_13_35_the_number_of_partitions_is_that_of_the_start(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Locks and keys that depend on the number would move if it changed: a client keeps what it read."""
    client = await connect()
    admin = cluster.session()
    raw, _ = await admin.get(cluster.root)
    params = ClusterParams.from_bytes(raw or b"")
    await admin.set(cluster.root, ClusterParams(params.name, 7).to_bytes())
    assert client.num_partitions == 2
    assert (await client.append(partition=1, data=b"")).transaction_id == 0
    with pytest.raises(PartitionNotFoundError, match="2"):
        await client.append(partition=2, data=b"")


async def test_an_appender_mounts_at_the_high_water_mark_and_reads_nothing_old(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(1000)
    client = await connect()
    assert (await client.append(partition=0, data=b"x")).transaction_id == 1000
    assert [mark for mark, _, _ in cluster.partitions[0].mounts] == [999]


async def test_lock_conflict_carries_the_mark_and_as_of_decides(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    lock = LockId("acct", 7)
    first = await client.append(partition=0, data=b"1", write_locks=[lock])
    second = await client.append(partition=0, data=b"2", write_locks=[lock], as_of=first.transaction_id)
    with pytest.raises(LockConflictError) as caught:
        await client.append(partition=0, data=b"3", read_locks=[lock], as_of=first.transaction_id)
    assert caught.value.conflicting_high_water_mark == second.transaction_id
    assert caught.value.retriable
    await client.append(partition=0, data=b"4", append_locks=[lock], as_of=-1)
    with pytest.raises(LockConflictError):
        await client.append(partition=0, data=b"5", write_locks=[lock], as_of=second.transaction_id)
    await client.append(partition=0, data=b"6", write_locks=[lock])  # as_of: everything received


async def test_append_nowait_window_and_callbacks(cluster: FakeCluster, connect: ConnectClient) -> None:
    partition = cluster.partitions[0]
    client = await connect(maxConcurrentTransactions=2)
    await client.writable(0)
    done: list[PendingAppend] = []
    partition.fate = lambda append: Fate.HOLD
    client.append_nowait(partition=0, data=b"a", on_done=done.append, context="a")
    client.append_nowait(partition=0, data=b"b", on_done=done.append, context="b")
    with pytest.raises(WindowFullError):
        client.append_nowait(partition=0, data=b"c", on_done=done.append)
    assert client.has_pending_transactions()
    await until(lambda: len(partition.held) == 2)
    partition.release()
    await client.writable(0)
    await client.flush_transactions(deadline_seconds=5)
    assert [(p.context, p.committed, p.transaction_id, p.error) for p in done] == [
        ("a", True, 0, None),
        ("b", True, 1, None),
    ]
    assert done[0].result() == Committed(0, 0)
    assert not client.has_pending_transactions()


async def test_append_many_is_pipelined_and_ordered(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(maxConcurrentTransactions=500)
    appends = [Append(i % 2, str(i).encode()) for i in range(3000)]
    results = await client.append_many(appends, deadline_seconds=30)
    assert results == [Committed(i % 2, i // 2) for i in range(3000)]
    for p in (0, 1):
        assert [int(e.data) for e in cluster.partitions[p].log] == list(range(p, 3000, 2))


async def test_append_many_reports_each_failure_in_its_place(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    lock = LockId("a", 1)
    await client.append(partition=0, data=b"0", write_locks=[lock])
    results = await client.append_many(
        [Append(0, b"1"), Append(0, b"2", write_locks=[lock], as_of=-1), Append(0, b"3")], deadline_seconds=10
    )
    assert results[0] == Committed(0, 1)
    assert isinstance(results[1], LockConflictError)
    assert results[2] == Committed(0, 2)


async def test_feed_follows_and_several_partitions(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(250)
    cluster.partitions[1].fill(50)
    client = await connect()
    seen: dict[int, list[int]] = {0: [], 1: []}
    async with client.feed([0, 1], after={0: 99, 1: -1}) as feed:
        async for transaction in feed:
            seen[transaction.partition_id].append(transaction.transaction_id)
            assert (transaction.data or b"").startswith(str(transaction.transaction_id).encode())
            if len(seen[0]) == 150 and len(seen[1]) == 50:
                break
        cluster.partitions[1].fill(3)
        assert [(await anext(feed)).transaction_id for _ in range(3)] == [50, 51, 52]
    assert seen == {0: list(range(100, 250)), 1: list(range(50))}


async def test_feed_from_now_on(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(10)
    client = await connect()
    feed = client.feed(0, after=None, headers_only=True)
    await until(lambda: bool(cluster.partitions[0].feed_requests))
    cluster.partitions[0].fill(1)
    transaction = await anext(feed)
    assert transaction.transaction_id == 10
    assert transaction.data is None
    assert cluster.partitions[0].reads == []


async def test_two_feeds_and_an_appender_share_one_mount(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(300)
    client = await connect()
    first = client.feed(0, after=-1, until=302)
    second = client.feed(0, after=199, headers_only=True, until=302)

    async def read(feed: Feed) -> list[int]:
        return [t.transaction_id async for t in feed]

    reading = asyncio.gather(read(first), read(second))
    for _ in range(3):
        await client.append(partition=0, data=b"own")
    ids = await reading
    assert list(ids) == [list(range(303)), list(range(200, 303))]
    assert len(cluster.partitions[0].mounts) == 1


async def test_credit_is_renewed_at_once(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(maxConcurrentTransactions=50)
    feed = client.feed(0, after=-1, headers_only=True, until=999)
    await client.append_many([Append(0, b"x")] * 1000, deadline_seconds=30)
    assert [t.transaction_id async for t in feed] == list(range(1000))
    assert cluster.partitions[0].feed_requests == list(range(-1, 1000, 100))


async def test_a_slow_reader_holds_up_nobody_and_misses_nothing(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(feedBufferTransactions=1024, maxConcurrentTransactions=200)
    slow = client.feed(0, after=-1, headers_only=True)
    await client.append_many(
        [Append(0, b"x")] * 5000, deadline_seconds=30
    )  # outcomes come although nobody reads
    fast = [t.transaction_id async for t in client.feed(0, after=-1, headers_only=True, until=4999)]
    assert fast == list(range(5000))
    got: list[int] = []
    async for transaction in slow:
        got.append(transaction.transaction_id)
        if transaction.transaction_id == 4999:
            break
    assert got == list(range(5000))


async def test_appending_from_inside_a_feed_loop(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(3000)
    client = await connect(feedBufferTransactions=1024)
    appended = 0
    async for transaction in client.feed(0, after=-1, headers_only=True, until=2999):
        if transaction.transaction_id % 100 == 0:
            await client.append(partition=0, data=b"x", deadline_seconds=10)
            appended += 1
    assert appended == 30


async def test_batches_hand_over_lists(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(5000)
    client = await connect()
    batches: list[list[FeedTransaction]] = []
    async for batch in client.feed(0, after=-1, headers_only=True, until=4999).batches():
        batches.append(batch)
    assert [t.transaction_id for batch in batches for t in batch] == list(range(5000))
    assert len(batches) < 50


async def test_data_arrives_in_order_though_answers_do_not(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    partition.fill(20)
    partition.reads_held = True
    client = await connect()
    feed = client.feed(0, after=-1, until=19)
    reading = asyncio.gather(anext(feed))
    await until(lambda: len(partition.reads) == 20)
    partition.release_reads()  # newest first
    (first,) = await reading
    assert [first.transaction_id] + [t.transaction_id async for t in feed] == list(range(20))


async def test_prefetch_is_bounded_in_bytes(cluster: FakeCluster, connect: ConnectClient) -> None:
    partition = cluster.partitions[0]
    partition.fill(200, size_bytes=10_000)
    client = await connect(prefetchBytes=100_000)
    feed = client.feed(0, after=-1, until=199)
    await anext(feed)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(partition.reads) < 150  # 97 guessed at first, then by the sizes seen
    assert len([t async for t in feed]) == 199


@pytest.mark.parametrize("headers_only", [False, True])
async def test_a_wait_for_the_next_batch_can_be_given_up(headers_only: bool) -> None:
    """Nothing is lost by it, and it is not the end."""
    log = InProcessLog(num_partitions=1)
    async with log.client() as client, asyncio.timeout(20):
        feed = client.feed(0, after=-1, headers_only=headers_only)
        batches = feed.batches()

        async def following() -> list[FeedTransaction]:
            return await anext(batches)

        for number in range(3):
            waiting = spawn(following(), "next batch")
            await asyncio.sleep(0)
            await until(lambda: client.status().partitions[0].available)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            log.partition(0).commit(b"x")
            assert [one.transaction_id for one in await anext(batches)] == [number]
        await feed.aclose()
        for _ in range(2):
            with pytest.raises(StopAsyncIteration):
                await anext(batches)


async def test_batches_and_single_transactions_may_be_mixed() -> None:
    log = InProcessLog(num_partitions=1)
    for number in range(4):
        log.partition(0).commit(b"%d" % number)
    async with log.client() as client, asyncio.timeout(20):
        feed = client.feed(0, after=-1, until=3)
        batches = feed.batches()
        assert (await anext(feed)).transaction_id == 0
        rest = [one.transaction_id for one in await anext(batches)]
        assert [*rest, *[one.transaction_id async for one in feed]] == [1, 2, 3]


@pytest.mark.usefixtures("ahead_at_once")
@pytest.mark.parametrize("how", ["blocks", "payloads", "headers"])
async def test_the_error_of_one_partition_ends_a_feed_though_another_one_brings_more(how: str) -> None:
    log = InProcessLog(2)
    if how == "payloads":
        log._newest_version = 4
    async with log.client() as client:
        feed = client.feed([0, 1], after={0: 7, 1: -1}, headers_only=how == "headers")
        with pytest.raises(ClientAheadError):
            async with asyncio.timeout(10):
                while True:
                    log.partition(1).commit(b"more")
                    await asyncio.sleep(0.01)  # it is there when the next one is asked for
                    assert (await anext(feed)).partition_id == 1


async def test_payloads_that_came_before_an_error_are_handed_over_first() -> None:
    log = InProcessLog(1)
    log._newest_version = 4
    for _ in range(3):
        log.partition(0).commit(b"x")
    async with log.client() as client, asyncio.timeout(20):
        feed = client.feed(0)

        async def following() -> list[FeedTransaction]:
            return list(await anext(feed.batches()))

        waiting = spawn(following(), "next batch")
        while not feed._calls:
            await asyncio.sleep(0)
        waiting.cancel()
        await until(lambda: len(feed._ready) == 3)
        feed._error = WaltzClientError("the next payload cannot be had")
        assert [one.transaction_id for one in await following()] == [0, 1, 2]
        with pytest.raises(WaltzClientError, match="cannot be had"):
            await following()
