"""Choosing partitions: calls that cross or are given up; readers whose place cannot be checked yet."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import Application, until
from waltz_client import (
    Committed,
    Outcome,
    PartitionInactiveError,
    PendingAppend,
    Transaction,
    WaltzClient,
)
from waltz_client.testing import InProcessLog
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


async def test_what_had_no_outcome_when_its_partition_was_let_go_says_so_and_alarms_nobody_later(
    cluster: FakeCluster, connect: ConnectClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the error named a client that was closed, and the commit was logged as that of an append that
    had been reported as failed."""
    client = await connect(autoMount=False)
    await client.set_partitions([0])
    await client.append(partition=0, data=b"x")
    cluster.partitions[0].fate = lambda append: Fate.HOLD
    ended: list[PendingAppend] = []
    client.append_nowait(partition=0, data=b"y", on_done=ended.append)
    await client.set_partitions([1], deadline_seconds=0.1)
    assert ended[0].outcome is Outcome.UNKNOWN
    assert str(ended[0].error) == (
        "the partition was let go before the outcome of an append to partition 0 was known"
    )
    await client.set_partitions([0, 1])
    await client.writable(0)
    cluster.partitions[0].release()
    await until(lambda: client.status().partitions[0].received == 1)
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


async def test_what_was_let_go_twice_alarms_nobody_later(
    cluster: FakeCluster, connect: ConnectClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect(autoMount=False)
    await client.set_partitions([0])
    await client.append(partition=0, data=b"x")
    cluster.partitions[0].fate = lambda append: Fate.HOLD
    ended: list[PendingAppend] = []
    for data in (b"y", b"z"):
        client.append_nowait(partition=0, data=data, on_done=ended.append)
        await client.set_partitions([1], deadline_seconds=0.1)
        await client.set_partitions([0, 1])
        await client.writable(0)
    assert [one.outcome for one in ended] == [Outcome.UNKNOWN] * 2
    cluster.partitions[0].release()
    await until(lambda: client.status().partitions[0].received == 2)
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


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


class Leaving(Application):
    """Of partition 0: `leave` runs in `apply_transaction` when that is cancelled for the first time."""

    def __init__(self, leave: Callable[[], Awaitable[object]] | None = None) -> None:
        super().__init__()
        self.leave = leave
        self.inside = self.most_inside = 0

    def client_high_water_mark(self, partition_id: int) -> int:
        self.most_inside = max(self.most_inside, self.inside + (partition_id == 0))
        return super().client_high_water_mark(partition_id)

    async def apply_transaction(self, transaction: Transaction) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await asyncio.sleep(1)
            await super().apply_transaction(transaction)
        except asyncio.CancelledError:
            leave, self.leave = self.leave, None
            if leave is not None:
                await leave()
            raise
        finally:
            self.inside -= 1


def of_two_partitions(application: Leaving) -> WaltzClient:
    log = InProcessLog(2)
    log.partition(0).commit(b"x")
    return log.client(application, {"client.autoMount": False})


@pytest.mark.looptime
@pytest.mark.parametrize("times", [1, 3])
async def test_a_callback_that_was_cancelled_ends_before_the_next_one(times: int) -> None:
    """As one that rolls back does, however often its partition is let go and chosen again meanwhile."""
    application = Leaving(lambda: asyncio.sleep(5))
    client = of_two_partitions(application)
    async with client, asyncio.timeout(20):
        await client.set_partitions([0])
        await until(lambda: application.inside)
        for _ in range(times):
            await client.set_partitions([1])
            await asyncio.sleep(0.5)
            await client.set_partitions([0, 1])
            await asyncio.sleep(0.5)
        assert application.inside == 1
        await until(lambda: application.applied)
    assert application.most_inside == 1


@pytest.mark.looptime
async def test_a_callback_that_waits_for_the_next_one_is_waited_for_to_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    application = Leaving(lambda: until(lambda: application.applied))
    client = of_two_partitions(application)
    async with client, asyncio.timeout(50):
        await client.set_partitions([0])
        await until(lambda: application.inside)
        await client.set_partitions([])
        await client.set_partitions([0])
        await until(lambda: application.applied)
        await until(lambda: not application.inside)
    assert "a callback that was cancelled has not returned for 30 s" in caplog.text


@pytest.mark.looptime
async def test_a_callback_may_let_its_own_partition_go_and_choose_it_again() -> None:
    class Choosing(Leaving):
        async def apply_transaction(self, transaction: Transaction) -> None:
            if self.leave is not None:
                await client.set_partitions([1])
                await client.set_partitions([0, 1])
            await super().apply_transaction(transaction)

    application = Choosing(lambda: asyncio.sleep(1))
    client = of_two_partitions(application)
    async with client, asyncio.timeout(10):
        await client.set_partitions([0])
        await until(lambda: application.applied)
    assert (application.applied, application.most_inside) == ([(0, 0)], 1)


@pytest.mark.looptime
async def test_a_callback_that_was_cancelled_may_close_the_client() -> None:
    application = Leaving()
    client = of_two_partitions(application)
    application.leave = client.close
    async with client, asyncio.timeout(10):
        await client.set_partitions([0])
        await until(lambda: application.inside)
        await client.set_partitions([])
        await client.set_partitions([0])
        await until(lambda: not application.inside)
    assert application.marks_asked == [0]
