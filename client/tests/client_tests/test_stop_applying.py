"""StopApplyingError out of a callback: the partition stops, once and for all, and everything else goes on."""

import asyncio

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import Application, until
from client_tests.test_sql_with_clients import Write
from waltz_client import Committed, StopApplyingError, Transaction
from waltz_testkit.fake_cluster import FakeCluster


class Stopping(Application):
    """Stops at one transaction, or before the first."""

    def __init__(self, at: int | None) -> None:
        super().__init__()
        self.at = at

    def client_high_water_mark(self, partition_id: int) -> int:
        mark = super().client_high_water_mark(partition_id)
        if self.at is None and partition_id == 0:
            raise StopApplyingError("no table")
        return mark

    async def apply_transaction(self, transaction: Transaction) -> None:
        if transaction.partition_id == 0 and transaction.transaction_id == self.at:
            raise StopApplyingError("poison")
        await super().apply_transaction(transaction)


async def test_a_partition_stops_and_the_others_go_on(cluster: FakeCluster, connect: ConnectClient) -> None:
    application = Stopping(at=2)
    for partition in cluster.partitions.values():
        partition.fill(5)
    client = await connect(application)
    await until(lambda: application.errors and len(application.applied) == 7)
    await asyncio.sleep(0.1)
    assert application.errors == [(0, 2, "poison")]  # told once, not tried again
    for context, ended in ((Write(0), StopApplyingError), (Write(1), None)):
        if ended is None:
            await client.submit(context)
            await until(lambda context=context: context.ends == [True, "applied"])  # type: ignore[misc]
        else:
            with pytest.raises(ended, match="poison"):
                await client.submit(context)
    assert application.marks_asked == [0, 1]
    # Reading and plain appends have nothing to do with it.
    done = await client.append(partition=0, data=b"x")
    assert cluster.partitions[0].received[-1].client_high_water_mark == 1  # what stopped it is not applied
    assert [one.transaction_id async for one in client.feed(0, after=4, until=5)] == [done.transaction_id]


async def test_chosen_again_it_starts_again(cluster: FakeCluster, connect: ConnectClient) -> None:
    application = Stopping(at=2)
    cluster.partitions[0].fill(5)
    client = await connect(application, autoMount=False)
    await client.set_partitions([0])
    await until(lambda: application.errors)
    application.at = -1
    application.mark = 1
    await client.set_partitions([])
    await client.set_partitions([0])
    await until(lambda: len(application.applied) == 5)
    assert application.applied == [(0, number) for number in range(5)]


async def test_a_mark_that_cannot_be_told_stops_too(
    cluster: FakeCluster, connect: ConnectClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition takes appends, with a view of nothing, as one that stops later does."""
    application = Stopping(at=None)
    for partition in cluster.partitions.values():
        partition.fill(3)
    client = await connect(application, mountWait=200)
    await until(lambda: "partition 0: it is not applied: no table" in caplog.text)
    with pytest.raises(StopApplyingError, match="no table"):
        await client.submit(Write(0))
    with pytest.raises(StopApplyingError, match="no table"):
        await client.transact(0, lambda builder: None)
    assert await client.append(partition=0, data=b"x", deadline_seconds=10) == Committed(0, 3)
    assert cluster.partitions[0].received[-1].client_high_water_mark == -1
    assert client.status().partitions[0].available
    await client.submit(Write(1))
    assert caplog.text.count("is not applied") == 1
    assert application.marks_asked.count(0) == 1
