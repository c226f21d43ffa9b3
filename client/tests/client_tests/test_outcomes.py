"""What a caller is told: committed, failed, unknown (safety rule E1)."""

import asyncio

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import until
from waltz_client import (
    Append,
    AppendFailedError,
    AttemptsExhaustedError,
    ClientClosedError,
    Committed,
    DeadlineExceededError,
    LockConflictError,
    LockId,
    Outcome,
    OutcomeUnknownError,
    PendingAppend,
)
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate


async def test_safety_e1_deadline_before_sending_is_a_failure(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(maxConcurrentTransactions=1)
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.HOLD
    first = asyncio.gather(client.append(partition=0, data=b"first", deadline_seconds=10))
    await until(lambda: partition.held)
    with pytest.raises(
        DeadlineExceededError, match=r"was not sent within 0\.1 s: too many appends"
    ) as caught:
        await client.append(partition=0, data=b"second", deadline_seconds=0.1)
    assert caught.value.outcome is Outcome.FAILED
    partition.release()
    await first
    assert [e.data for e in partition.log] == [b"first"]


async def test_safety_e1_deadline_after_sending_is_unknown(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.HOLD
    await client.writable(0)
    with pytest.raises(OutcomeUnknownError, match=r"outcome did not come within 1 s") as caught:
        await client.append(partition=0, data=b"x", deadline_seconds=1)
    assert caught.value.outcome is Outcome.UNKNOWN
    assert not caught.value.retriable
    assert client.has_pending_transactions(), "it is still on its way"
    partition.release()
    await until(lambda: not client.has_pending_transactions())
    assert [e.data for e in partition.log] == [b"x"]


async def test_safety_e1_close_is_unknown(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.HOLD
    done: list[PendingAppend] = []
    await client.writable(0)
    client.append_nowait(partition=0, data=b"a", on_done=done.append)
    pending = asyncio.gather(client.append(partition=0, data=b"b"), return_exceptions=True)
    feed = client.feed(0)
    reading = asyncio.gather(anext(feed), return_exceptions=True)
    await until(lambda: len(partition.held) == 2)
    await client.close()
    (error,) = await pending
    assert isinstance(error, OutcomeUnknownError)
    assert done[0].outcome is Outcome.UNKNOWN
    assert isinstance((await reading)[0], ClientClosedError)
    with pytest.raises(ClientClosedError):
        await client.append(partition=0, data=b"c")


async def test_safety_e1_a_younger_commit_fails_the_older(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    partition = cluster.partitions[0]
    await client.writable(0)
    fates = iter([Fate.DROP, Fate.COMMIT])
    partition.fate = lambda append: next(fates)
    done: list[PendingAppend] = []
    client.append_nowait(partition=0, data=b"a", on_done=done.append)
    client.append_nowait(partition=0, data=b"b", on_done=done.append)
    await until(lambda: len(done) == 2)
    assert [d.outcome for d in done] == [Outcome.FAILED, Outcome.COMMITTED]
    assert isinstance(done[0].error, AppendFailedError)
    assert [e.data for e in partition.log] == [b"b"]


async def test_safety_e1_a_lock_failure_takes_effect_when_the_feed_is_there(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    partition = cluster.partitions[0]
    lock = LockId("a", 1)
    await client.append(partition=0, data=b"0", write_locks=[lock])
    partition.feed_held = True
    await client.append_many([Append(0, b"1")], deadline_seconds=0.5)
    pending = asyncio.gather(
        client.append(partition=0, data=b"2", read_locks=[lock], as_of=-1), return_exceptions=True
    )
    await until(lambda: len(partition.received) == 3)
    partition.lock_failure(next(iter(partition._feeds)).connection, partition.received[-1], 1)
    (error,) = await pending  # mark 0 was reached already: the true lock failure took effect first
    assert isinstance(error, LockConflictError)
    assert error.conflicting_high_water_mark == 0
    partition.release_feed()


@pytest.mark.parametrize("overtaking", ["flush", "lock failure"])
async def test_safety_e1_a_flush_or_lock_failure_that_overtakes_the_feed_fails_nothing_that_commits(
    overtaking: str, cluster: FakeCluster, connect: ConnectClient
) -> None:
    """The append is in the log, and the answer names its mark, but the feed has not brought it yet."""
    client = await connect(longWaitThreshold=250)
    partition, server = cluster.partitions[0], cluster.servers[0]
    await client.append(partition=0, data=b"0")
    partition.feed_held = True
    pending = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=10))
    await until(lambda: len(partition.log) == 2)
    flushes = len(server.flushes)
    if overtaking == "lock failure":
        partition.lock_failure(next(iter(partition._feeds)).connection, partition.received[-1], 1)
    # The client asks again after a while: by then the answers sent before have arrived.
    await until(lambda: pending.done() or len(server.flushes) > flushes + 1)
    assert not pending.done()
    partition.release_feed()
    ((committed),) = await pending
    assert committed.transaction_id == 1
    assert [e.data for e in partition.log] == [b"0", b"1"], "nothing was written twice"


async def test_attempt_limit(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(longWaitThreshold=250)
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.DROP
    with pytest.raises(AttemptsExhaustedError, match="failed 2 times") as caught:
        await client.append(partition=0, data=b"x", deadline_seconds=20, max_attempts=2)
    assert caught.value.outcome is Outcome.FAILED
    assert len(partition.received) == 2


async def test_a_retried_append_that_runs_out_of_time_is_a_failure(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    await client.append(partition=0, data=b"0")
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.DROP
    pending = asyncio.gather(
        client.append(partition=0, data=b"1", deadline_seconds=1.0), return_exceptions=True
    )
    await until(lambda: len(partition.received) == 2)
    await cluster.servers[0].kill()
    await cluster.publish(absent=(cluster.servers[0],))
    (error,) = await pending
    # It was sent once and not answered: nobody has decided it, so the outcome is unknown, not failed.
    assert isinstance(error, OutcomeUnknownError)


async def test_append_many_at_the_deadline(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(maxConcurrentTransactions=2)
    partition = cluster.partitions[0]
    fates = iter([Fate.COMMIT])
    partition.fate = lambda append: next(fates, Fate.HOLD)
    await client.writable(0)
    results = await client.append_many([Append(0, b"%d" % i) for i in range(5)], deadline_seconds=1)
    assert results[0] == Committed(0, 0)
    assert [type(r) for r in results[1:]] == [OutcomeUnknownError, OutcomeUnknownError, DeadlineExceededError]


async def test_an_append_of_a_batch_that_had_to_wait_has_the_view_of_its_sending(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Before the mount nothing is known of the partition: such a view would lose to every lock."""
    partition = cluster.partitions[0]
    partition.fill(3)
    client = await connect()
    await client.append_many([Append(0, b"x"), Append(0, b"y", as_of=1)])
    assert [append.client_high_water_mark for append in partition.received] == [2, 1]


async def test_cancelling_an_append_leaves_the_window_right(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(maxConcurrentTransactions=1)
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.HOLD
    async with asyncio.timeout(5):
        task = asyncio.gather(client.append(partition=0, data=b"a"))
        await until(lambda: partition.held)
        waiting = asyncio.gather(client.append(partition=0, data=b"b"))
        await asyncio.sleep(0)
        task.cancel()
        waiting.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)
        partition.release()
        partition.fate = lambda append: Fate.COMMIT
        await client.append(partition=0, data=b"c")
    assert [e.data for e in partition.log] == [b"a", b"c"]
