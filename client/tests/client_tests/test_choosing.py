"""Choosing partitions: calls that cross or are given up; readers whose place cannot be checked yet."""

import asyncio

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import until
from waltz_client import Committed, PartitionInactiveError
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate


async def test_crossing_choices_end_with_the_later_one(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(autoMount=False)
    await client.set_partitions([0])
    await client.append(partition=0, data=b"x")
    cluster.partitions[0].fate = lambda append: Fate.HOLD
    client.append_nowait(partition=0, data=b"y", on_done=lambda pending: None)
    async with asyncio.TaskGroup() as group:
        group.create_task(client.set_partitions([1], deadline_seconds=0.5))
        await asyncio.sleep(0.1)
        group.create_task(client.set_partitions([0, 1], deadline_seconds=0.5))
    assert client.get_partitions() == [0, 1]
    cluster.partitions[0].release()
    cluster.partitions[0].fate = lambda append: Fate.COMMIT
    assert await client.append(partition=0, data=b"z", deadline_seconds=3) == Committed(0, 2)


async def test_a_choice_that_was_given_up_can_be_taken_back(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(autoMount=False)
    await client.set_partitions([0])
    await client.append(partition=0, data=b"x")
    cluster.partitions[0].fate = lambda append: Fate.HOLD
    client.append_nowait(partition=0, data=b"y", on_done=lambda pending: None)
    leaving = asyncio.gather(client.set_partitions([1], deadline_seconds=5), return_exceptions=True)
    await asyncio.sleep(0.1)
    leaving.cancel()
    await asyncio.wait([leaving])
    cluster.partitions[0].release()
    cluster.partitions[0].fate = lambda append: Fate.COMMIT
    await client.set_partitions([0])
    assert await client.append(partition=0, data=b"z", deadline_seconds=3) == Committed(0, 2)


async def test_a_choice_that_was_given_up_leaves_its_partitions_in_use(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(autoMount=False)
    await client.set_partitions([0, 1])
    await client.writable(0)
    cluster.partitions[0].fate = lambda append: Fate.HOLD
    client.append_nowait(partition=0, data=b"x", on_done=lambda pending: None)
    leaving = asyncio.gather(client.set_partitions([1], deadline_seconds=5), return_exceptions=True)
    await until(lambda: cluster.partitions[0].held)
    waiting = asyncio.gather(client.writable(0))  # behind the choice
    await asyncio.sleep(0.05)
    leaving.cancel()
    await asyncio.wait([leaving])
    async with asyncio.timeout(3):
        await waiting
    assert client.get_partitions() == [0, 1]
    cluster.partitions[0].release()
    cluster.partitions[0].fate = lambda append: Fate.COMMIT
    assert await client.append(partition=0, data=b"y", deadline_seconds=3) == Committed(0, 1)
    await client.set_partitions([1])
    with pytest.raises(PartitionInactiveError):
        await client.append(partition=0, data=b"z", deadline_seconds=3)


async def test_a_reader_ahead_of_a_silent_server_waits(cluster: FakeCluster, connect: ConnectClient) -> None:
    """Whether its place exists is not known while the server does not answer: no reason to end the feed."""
    client = await connect(requestDeadline=200)
    partition = cluster.partitions[0]
    await client.writable(0)
    partition.silent_reads = 1_000_000
    feed = client.feed(0, after=5, headers_only=True)
    reading = asyncio.gather(anext(feed), return_exceptions=True)
    await asyncio.sleep(0.6)
    partition.fill(8)
    async with asyncio.timeout(5):
        (transaction,) = await reading
    assert not isinstance(transaction, BaseException), transaction
    assert transaction.transaction_id == 6
