"""Two living clients with one client id: the counter in ZooKeeper went back, or a tree was copied (safety
E5)."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import settings_for, until
from client_tests.test_conformance import StaticDiscovery
from waltz_client import Committed, LockId, WaltzClient
from waltz_client._internal.req_ids import NEAR
from waltz_client.testing.producers import LogProducers
from waltz_protocol.frames.append import Append as WireAppend
from waltz_protocol.types import Endpoint, ReqId
from waltz_testkit.client_peers import make_append
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate
from waltz_testkit.loopback_server import LoopbackServer


class OneId(StaticDiscovery):
    """Gives every client the same id."""

    producers = LogProducers()

    async def new_client_id(self) -> int:
        return 7


def numbers(appends: list[WireAppend]) -> list[int]:
    return [ReqId.unpack(append.req_id).seq_num for append in appends]


async def test_safety_e5_two_clients_with_one_id_work_side_by_side() -> None:
    """Neither keeps the other from mounting, and each is told of its own appends only. (Two of these three
    begin so close to each other that the server keeps the later one's first numbers for the earlier one; it
    counts on from elsewhere.)"""
    async with LoopbackServer({0: 1, 1: 1, 2: 1}) as server, AsyncExitStack() as stack:
        keys = settings_for(FakeCluster(1), maxConcurrentTransactions=50)
        discovery = OneId(Endpoint("127.0.0.1", server.listener.port))
        clients = [
            await stack.enter_async_context(
                WaltzClient.connect(keys, discovery=discovery, random=random.Random(seed))
            )
            for seed in range(3)
        ]
        assert {client.client_id for client in clients} == {7}

        async def run(client: WaltzClient, data: bytes) -> None:
            done = await client.append(partition=0, data=data, deadline_seconds=30)
            assert await client.get_data(0, done.transaction_id) == data

        async with asyncio.TaskGroup() as group:
            for n in range(150):
                for number, client in enumerate(clients):
                    group.create_task(run(client, b"%d:%d" % (number, n)))
        assert len(server.backend.stores[0].log) == 450


async def test_safety_e5_a_client_that_comes_to_the_numbers_of_another_moves_away(
    cluster: FakeCluster, connect: ConnectClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect()
    partition = cluster.partitions[0]
    await client.append(partition=0, data=b"1")
    mounts = len(partition.mounts)
    near = numbers(partition.received)[-1] + 1000
    partition.commit(make_append(ReqId(client.client_id, 1, 0, near), data=b"a stranger's"))
    await until(lambda: len(partition.mounts) == mounts + 1)  # a mount says where the numbers go on
    assert "the id was given out twice" in caplog.text
    assert await client.append(partition=0, data=b"2", deadline_seconds=10) == Committed(0, 2)
    assert abs(numbers(partition.received)[-1] - near) % 2**32 >= NEAR
    partition.commit(make_append(ReqId(client.client_id, 1, 0, near + 1), data=b"the stranger's next"))
    assert await client.append(partition=0, data=b"3", deadline_seconds=10) == Committed(0, 4)
    assert len(partition.mounts) == mounts + 1, "far away, it is let be"
    assert caplog.text.count("the id was given out twice") == 1


async def test_safety_e5_a_commit_of_another_client_under_an_own_request_id_is_not_believed(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """What the feed shows of a transaction is compared with what was sent; its payload is not in the feed."""
    client = await connect(longWaitThreshold=250)
    partition = cluster.partitions[0]
    await client.writable(0)
    partition.fate = lambda append: Fate.HOLD
    async with asyncio.TaskGroup() as group:
        held = group.create_task(client.append(partition=0, data=b"mine", header=5, deadline_seconds=10))
        await until(lambda: partition.held)
        mine = partition.held[0][1]
        partition.commit(make_append(ReqId.unpack(mine.req_id), header=6, data=b"a stranger's"))
        await until(lambda: len(partition.mounts) == 2)
        assert not held.done()
        partition.fate = lambda append: Fate.COMMIT
        partition.release()
    assert held.result() == Committed(0, 1)
    assert partition.log[1].data == b"mine"


async def test_a_server_that_keeps_the_numbers_for_another_client_is_asked_under_others(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """It drops in silence; the flush says that they failed, and the next mount counts from somewhere else."""
    client = await connect(longWaitThreshold=250)
    partition = cluster.partitions[0]
    await client.append(partition=0, data=b"1")
    taken = numbers(partition.received)[0]
    partition.fate = lambda append: Fate.DROP if abs(numbers([append])[0] - taken) < 2**20 else Fate.COMMIT
    done = await client.append(partition=0, data=b"2", write_locks=[LockId("a", 1)], deadline_seconds=20)
    assert done == Committed(0, 1)
