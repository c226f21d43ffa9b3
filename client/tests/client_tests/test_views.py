"""What a caller says it has seen (`as_of`) against what the log holds.

The servers are fake ones that check nothing beyond their lock table, as release 0.13.2: what is refused here
the client refuses.
"""

import asyncio

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import until
from waltz_client import (
    Append,
    DeadlineExceededError,
    LockConflictError,
    LockId,
    Outcome,
    PendingAppend,
    ViewAheadError,
)
from waltz_protocol.frames.append import Append as WireAppend
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate

LOCKS = (LockId("account", 42),)


def not_expected(pending: PendingAppend) -> None:
    raise AssertionError("nothing was to be sent")


async def test_safety_e4_a_view_beyond_the_log_is_refused_and_nothing_is_sent(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """10**9, or the mark of a partition with a longer log: every lock check against it would pass."""
    cluster.partitions[1].fill(500)
    client = await connect()
    first = await client.append(partition=0, data=b"1", write_locks=LOCKS)
    for as_of in (first.transaction_id + 1, await client.high_water_mark(1), 10**9):
        with pytest.raises(ViewAheadError, match=rf"as_of {as_of} .* partition 0, .* mark is 0") as refused:
            await client.append(partition=0, data=b"2", write_locks=LOCKS, as_of=as_of)
        assert (refused.value.as_of, refused.value.high_water_mark) == (as_of, 0)
        assert refused.value.outcome is Outcome.FAILED
        with pytest.raises(ViewAheadError, match=rf"as_of {as_of} .* partition 0"):
            client.append_nowait(partition=0, data=b"2", on_done=not_expected, write_locks=LOCKS, as_of=as_of)
        results = await client.append_many([Append(0, b"2", write_locks=LOCKS, as_of=as_of)])
        assert [type(result) for result in results] == [ViewAheadError]
    assert len(cluster.partitions[0].received) == 1


async def test_a_view_that_somebody_else_has_seen_is_asked_for(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Services hand marks to each other: the one that appends may not have received that much yet."""
    client = await connect()
    await client.append(partition=0, data=b"1", write_locks=LOCKS)
    cluster.partitions[0].feed_held = True
    cluster.partitions[0].fill(5)
    async with asyncio.TaskGroup() as group:
        held = group.create_task(client.append(partition=0, data=b"2", write_locks=LOCKS, as_of=5))
        await until(lambda: len(cluster.partitions[0].received) == 2)
        cluster.partitions[0].release_feed()
    assert held.result().transaction_id == 6


async def test_a_view_that_was_told_is_not_asked_for_again(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """By `high_water_mark`, or by a conflict: its mark is the next view, also of `append_nowait`, before the
    feed is there."""
    client = await connect()
    await client.writable(0)
    cluster.partitions[0].feed_held = True
    cluster.partitions[0].fill(3)
    done: list[PendingAppend] = []
    seen = await client.high_water_mark(0)
    pending = client.append_nowait(partition=0, data=b"1", on_done=done.append, write_locks=LOCKS, as_of=seen)
    cluster.partitions[0].release_feed()
    await until(lambda: done)
    assert pending.result().transaction_id == 3
    with pytest.raises(LockConflictError) as conflict:
        await client.append(partition=0, data=b"2", write_locks=LOCKS, as_of=0)
    cluster.partitions[0].silent_reads = 100  # whoever asked now would wait
    mark = conflict.value.conflicting_high_water_mark
    assert (await client.append(partition=0, data=b"3", write_locks=LOCKS, as_of=mark)).transaction_id == 4


async def test_a_view_that_cannot_be_checked_in_time_is_not_sent(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    await client.writable(0)
    cluster.partitions[0].silent_reads = 100
    with pytest.raises(DeadlineExceededError, match="not sent"):
        await client.append(partition=0, data=b"1", write_locks=LOCKS, as_of=7, deadline_seconds=0.3)
    assert cluster.partitions[0].received == []


async def test_a_server_that_finds_the_view_ahead_is_believed(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """The client had been told of more than the server holds now: the server's mark, below the view, says
    what is wrong."""
    client = await connect()
    partition = cluster.partitions[0]
    partition.fill(5)
    await client.writable(0)

    def refuse(append: WireAppend) -> Fate:
        for connection in cluster.servers[0].connections:
            if partition.valid(connection, client.client_id):
                partition.lock_failure(connection, append, 2)
        return Fate.DROP

    partition.fate = refuse
    with pytest.raises(ViewAheadError, match=r"as_of 4 .* mark is 2"):
        await client.append(partition=0, data=b"1", write_locks=LOCKS, as_of=4)
