"""Mounting, remounting, moving, generations (safety rules E2 and the client's state machine)."""

import asyncio

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import Application, settings_for, until
from waltz_client import (
    AppendFailedError,
    ClientAheadError,
    Committed,
    DeadlineExceededError,
    LockId,
    Outcome,
    WaltzClient,
)
from waltz_protocol.frames.append import Append as WireAppend
from waltz_protocol.messages.client import MountResponse, MountState
from waltz_testkit.fake_cluster import FakeCluster, fake_cluster
from waltz_testkit.fake_server import Fate


async def test_client_server_13_29_not_ready_is_retried_soon_and_blocks_nobody(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].mount_answers.extend([MountState.NOT_READY] * 4)
    client = await connect()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    first = asyncio.gather(client.append(partition=0, data=b"x", deadline_seconds=5))
    await client.append(partition=1, data=b"y", deadline_seconds=5)
    await first
    assert len(cluster.partitions[0].mounts) == 5
    assert loop.time() - begun < 1.5  # 20 + 40 + 80 + 160 ms at most


async def test_client_server_13_02_not_ready_for_an_established_mount_makes_the_client_mount_again(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """A server that closed and reopened a partition says so this way: nothing else on the wire would tell."""
    partition = cluster.partitions[0]
    client = await connect()
    await client.append(partition=0, data=b"0")
    connection, request_id = partition.forget_mounts()
    connection.send(MountResponse(request_id, MountState.NOT_READY))
    await client.append(partition=0, data=b"1", deadline_seconds=2)
    assert len(partition.mounts) == 2


async def test_a_mount_that_was_asked_for_twice_is_withdrawn_by_either_name(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """The first answer comes late, after the question was repeated: the server goes by the newer mount from
    then on.

    Who only reads would never hear of a partition that was closed and reopened: no append of his goes
    unanswered.
    """
    partition = cluster.partitions[0]
    partition.mount_answers.extend([None, None])
    client = await connect()
    async with asyncio.TaskGroup() as group:
        mounted = group.create_task(client.writable(0))
        await until(lambda: len(partition.mounts) == 2)
        connection, second = partition.forget_mounts()
        first = second._replace(seq_num=second.seq_num - 1)
        connection.send(MountResponse(first, MountState.READY))
        await mounted
    connection.send(MountResponse(second, MountState.READY))
    connection.send(MountResponse(second, MountState.NOT_READY))
    await until(lambda: len(partition.mounts) == 3)
    assert await client.append(partition=0, data=b"x", deadline_seconds=5) == Committed(0, 0)


async def test_appends_dropped_in_silence_make_the_client_mount_again(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """A server that forgot the mount drops every append and answers every flush: only mounting again gets
    through."""
    partition = cluster.partitions[0]
    client = await connect(longWaitThreshold=300)
    await client.append(partition=0, data=b"0")
    partition.forget_mounts()
    assert await client.append(partition=0, data=b"1", deadline_seconds=5) == Committed(0, 1)
    assert len(partition.mounts) == 2


async def test_a_lost_connection_is_replaced_and_the_flush_decides(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    client = await connect()
    await client.append(partition=0, data=b"0")
    partition.fate = lambda append: Fate.DROP
    pending = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=5))
    await until(lambda: len(partition.received) == 2)
    partition.fate = lambda append: Fate.COMMIT
    cluster.servers[0].cut_connections()
    assert (await pending)[0] == Committed(0, 1)
    assert [e.data for e in partition.log] == [b"0", b"1"]
    seqs = [seq for _, seq, _ in partition.mounts]
    assert seqs == sorted(set(seqs)), "a connection number was used twice"
    assert partition.mounts[-1][0] == 0, "a remount is at what was received"


async def test_a_commit_during_the_outage_is_seen_before_the_flush(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    client = await connect()
    await client.append(partition=0, data=b"0")
    partition.feed_held = True
    pending = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=5))
    await until(lambda: partition.high_water_mark == 1)
    cluster.servers[0].cut_connections()
    await until(lambda: not partition._feeds)
    partition.release_feed()
    assert (await pending)[0] == Committed(0, 1)
    assert len(partition.log) == 2


async def test_server_move_resumes_at_once(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    await client.append(partition=0, data=b"0")
    mounts = len(cluster.partitions[0].mounts)
    await cluster.move(0, cluster.servers[1])
    await client.append(partition=0, data=b"1", deadline_seconds=30)
    assert len(cluster.partitions[0].mounts) == mounts + 1  # no attempt was in vain
    assert client.endpoint_of(0) == cluster.servers[1].endpoint
    assert cluster.partitions[0].received[-1].generation == 2
    await client.append(partition=1, data=b"still on the first server")


async def test_a_killed_server_and_its_partitions_on_another(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    feed = client.feed(0, after=-1)
    await client.append(partition=0, data=b"0")
    assert (await anext(feed)).data == b"0"
    await cluster.servers[0].kill()
    pending = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=10))
    await asyncio.sleep(0.05)
    for partition in cluster.partitions.values():
        partition.generation += 1
        partition.owner = cluster.servers[1]
    await cluster.publish(absent=(cluster.servers[0],))
    assert (await pending)[0] == Committed(0, 1)
    assert (await anext(feed)).data == b"1"


async def test_generation_bump_without_a_move_remounts_and_appends_carry_it(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    client = await connect()
    await client.append(partition=0, data=b"0")
    await cluster.move(
        0, cluster.servers[0]
    )  # closed and opened again by the same server: it forgot who mounted it
    await client.append(partition=0, data=b"1", deadline_seconds=5)
    assert [a.generation for a in partition.received][-1] == 2
    assert partition.mounts[-1][2] == 2


async def test_storage_7_27_an_append_dropped_for_its_old_generation_is_retried_with_the_new_one(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    client = await connect()
    await client.append(partition=0, data=b"0")
    partition.generation += 1  # the server knows before the client does
    pending = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=10))
    await until(lambda: len(partition.received) == 2)
    await cluster.publish()
    assert (await pending)[0] == Committed(0, 1)
    assert [a.generation for a in partition.received] == [1, 1, 2]


async def test_safety_e2_a_smaller_generation_is_never_mounted(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    await cluster.move(0, cluster.servers[1])
    await client.append(partition=0, data=b"0", deadline_seconds=5)
    partition = cluster.partitions[0]
    mounts = len(partition.mounts)
    partition.generation = 1
    partition.owner = cluster.servers[0]
    await cluster.publish()
    await until(lambda: client.endpoint_of(0) is None)
    with pytest.raises(DeadlineExceededError, match="no server owns it") as caught:
        await client.append(partition=0, data=b"1", deadline_seconds=0.3)
    assert caught.value.outcome is Outcome.FAILED
    assert len(partition.mounts) == mounts
    partition.generation = 3
    await cluster.publish()
    await client.append(partition=0, data=b"2", deadline_seconds=5)


async def test_safety_e2_a_request_id_is_never_used_twice(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    partition = cluster.partitions[0]
    client = await connect(longWaitThreshold=250)
    drop_every_second = iter([Fate.COMMIT, Fate.DROP] * 20)
    partition.fate = lambda append: next(drop_every_second)
    for i in range(6):
        if i % 2:
            cluster.servers[0].cut_connections()
        if i == 3:
            await cluster.move(0, cluster.servers[1])
        pending = asyncio.gather(client.append(partition=0, data=str(i).encode(), deadline_seconds=10))
        await asyncio.sleep(0.02)
        if not pending.done():
            cluster.servers[0].cut_connections()
            cluster.servers[1].cut_connections()
        await pending
    ids = [a.req_id for a in partition.received]
    assert len(ids) == len(set(ids))
    assert [e.data for e in partition.log] == [str(i).encode() for i in range(6)]
    other = await connect()
    assert other.client_id != client.client_id


async def test_client_ahead_is_told_and_recovers(cluster: FakeCluster, connect: ConnectClient) -> None:
    partition = cluster.partitions[0]
    partition.fill(5)
    client = await connect()
    await client.append(partition=0, data=b"5")
    feed = client.feed(0, after=None)
    lost = partition.log[3:]
    del partition.log[3:]
    await cluster.move(0, cluster.servers[1])
    await until(lambda: client.endpoint_of(0) == cluster.servers[1].endpoint)
    with pytest.raises(ClientAheadError, match="client is ahead of the log"):
        await client.append(partition=0, data=b"6", deadline_seconds=5)
    with pytest.raises(ClientAheadError):
        await anext(feed)
    partition.log.extend(lost)
    await cluster.move(0, cluster.servers[0])
    await until(lambda: client.endpoint_of(0) == cluster.servers[0].endpoint)
    await client.append(partition=0, data=b"6", deadline_seconds=5)


@pytest.mark.usefixtures("ahead_at_once")
async def test_a_reader_beyond_the_log_is_told(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].fill(3)
    client = await connect()
    with pytest.raises(ClientAheadError, match="log ends at 2"):
        await anext(client.feed(0, after=10))


async def test_callbacks_ahead_of_the_log(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(Application(mark=10))
    with pytest.raises(ClientAheadError):
        await client.append(partition=0, data=b"x", deadline_seconds=5)


async def test_a_recovering_partition_is_waited_for(cluster: FakeCluster, connect: ConnectClient) -> None:
    partition = cluster.partitions[0]
    partition.fill(4)
    partition.recovering = True
    client = await connect()
    pending = asyncio.gather(client.append(partition=0, data=b"x", deadline_seconds=10))
    await asyncio.sleep(0.1)
    assert not pending.done()
    partition.recovering = False
    assert (await pending)[0] == Committed(0, 4)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_every_protocol_version(version: int) -> None:
    async with fake_cluster(1, versions=(version,)) as cluster:
        cluster.partitions[0].fill(2)
        async with WaltzClient.connect(settings_for(cluster), store=cluster.session()) as client:
            lock = LockId("a", 1)
            await client.append(partition=0, data=b"x", write_locks=[lock], deadline_seconds=5)
            got = [t.data async for t in client.feed(0, after=1, until=2)]
            assert got == [b"x"]


async def test_a_swallowed_mount_is_sent_again(cluster: FakeCluster, connect: ConnectClient) -> None:
    cluster.partitions[0].mount_answers.append(None)
    client = await connect()
    await client.append(partition=0, data=b"x", deadline_seconds=10)
    assert len(cluster.partitions[0].mounts) == 2


async def test_silence_is_nudged(cluster: FakeCluster, connect: ConnectClient) -> None:
    partition = cluster.partitions[0]
    fates = iter([Fate.DROP])
    partition.fate = lambda append: next(fates, Fate.COMMIT)
    client = await connect(longWaitThreshold=500)
    await client.append(partition=0, data=b"x", deadline_seconds=10)
    assert len(partition.received) == 2
    assert len(cluster.servers[0].flushes) >= 1


async def test_a_dead_feed_is_noticed(cluster: FakeCluster, connect: ConnectClient) -> None:
    partition = cluster.partitions[0]
    client = await connect(longWaitThreshold=500)
    await client.append(partition=0, data=b"0")
    partition._feeds.clear()  # the server lost the feed; the connection lives
    result = await client.append(partition=0, data=b"1", deadline_seconds=10)
    assert result == Committed(0, 1)
    assert len(partition.log) == 2


async def test_overtaking_answers_decide_nothing_early(cluster: FakeCluster, connect: ConnectClient) -> None:
    """Lock failure and flush response arrive before the feed has got there; nothing may happen until it
    has."""
    partition = cluster.partitions[0]
    client = await connect(longWaitThreshold=500)
    await client.append(partition=0, data=b"0")
    arrived: list[WireAppend] = []

    def fate(append: WireAppend) -> Fate:
        arrived.append(append)
        return Fate.COMMIT

    partition.fate = fate
    partition.feed_held = True
    pending = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=10))
    await until(lambda: len(cluster.servers[0].flushes) >= 1)  # the nudge was answered with mark 1
    await asyncio.sleep(0.05)
    assert not pending.done()
    partition.release_feed()
    assert (await pending)[0] == Committed(0, 1)
    assert len(arrived) == 1


async def test_client_server_13_41_overtaking_answers_are_deferred(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """A retry while the commit is still on its way would write the transaction twice."""
    partition = cluster.partitions[0]
    client = await connect(longWaitThreshold=250)
    await client.append(partition=0, data=b"0")
    partition.feed_held = True
    pending = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=10))
    await until(lambda: len(cluster.servers[0].flushes) >= 2)
    partition.release_feed()
    assert (await pending)[0] == Committed(0, 1)
    await asyncio.sleep(0.05)
    assert [e.data for e in partition.log] == [b"0", b"1"]


async def test_client_server_13_09_a_late_commit_is_reported(
    cluster: FakeCluster, connect: ConnectClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A 0.13.2 server may commit what its flush has failed. Nothing can undo it; it must not pass
    unnoticed."""
    partition = cluster.partitions[0]
    client = await connect(longWaitThreshold=250)
    fates = iter([Fate.DROP])
    partition.fate = lambda append: next(fates, Fate.COMMIT)
    assert await client.append(partition=0, data=b"1", deadline_seconds=10) == Committed(0, 0)
    partition.commit(partition.received[0])
    await until(lambda: client._open.partitions.streams[0].received == 1)
    assert "reported as failed before" in caplog.text


async def test_locks_an_old_server_cannot_carry_are_refused() -> None:
    async with (
        fake_cluster(1, versions=(0,)) as cluster,
        WaltzClient.connect(settings_for(cluster), store=cluster.session()) as client,
    ):
        with pytest.raises(AppendFailedError, match="version 0"):
            await client.append(partition=0, data=b"x", read_locks=[LockId("a", 1)], deadline_seconds=5)
        await client.append(partition=0, data=b"x", write_locks=[LockId("a", 1)], deadline_seconds=5)
        assert len(cluster.servers[0].connections) == 2, "the connections live"
