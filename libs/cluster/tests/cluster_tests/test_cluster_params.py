"""The start of a process while ZooKeeper comes and goes: reading the cluster's parameters, and everything
after it."""

import asyncio
import random

import pytest

from cluster_tests.manager_helpers import ROOT, Partitions, memory_cluster, seed, until
from waltz_cluster.cluster_params import START_SECONDS, patiently, read_cluster_params
from waltz_cluster.errors import ClusterNotFoundError, ConnectError
from waltz_cluster.manager import ClusterManager
from waltz_cluster.memory_store import Fault, MemoryStore, MemoryZooKeeper
from waltz_protocol.types import Endpoint

pytestmark = pytest.mark.looptime


async def a_store() -> MemoryStore:
    store = MemoryZooKeeper().session(timeout_seconds=60.0)
    await seed(store, ROOT, 4)
    return store


async def test_a_read_at_the_start_outlives_a_lost_connection_and_a_lost_session() -> None:
    store = await a_store()
    loop = asyncio.get_running_loop()
    store.suspend()
    loop.call_later(START_SECONDS / 4, store.resume)
    loop.call_later(START_SECONDS / 2, store.suspend)
    assert (await patiently(lambda: read_cluster_params(store, ROOT))).num_partitions == 4
    assert loop.time() < START_SECONDS / 2
    store.expire(reconnect_after_seconds=1.0)
    assert (await patiently(lambda: read_cluster_params(store, ROOT))).num_partitions == 4


async def test_a_manager_starts_while_the_connection_is_away() -> None:
    store = await a_store()
    store.suspend()
    asyncio.get_running_loop().call_later(START_SECONDS / 4, store.resume)
    async with ClusterManager(store, ROOT, rng=random.Random(0)) as manager:
        assert manager.cluster_params.num_partitions == 4


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_server_registers_whichever_operation_of_its_start_is_lost(fault: Fault) -> None:
    async def start(lost: int) -> int:
        """Lose the operation of this number; how many there were."""
        zookeeper = await memory_cluster(2)
        store = zookeeper.session()
        count = 0

        def lose(name: str, path: str) -> Fault | None:
            nonlocal count
            count += 1
            return fault if count == lost else None

        store.fault = lose
        async with ClusterManager(store, ROOT, rng=random.Random(0)) as manager:
            given: list[Partitions] = []
            await manager.register_server(Endpoint("h", 8001), given.append)
            await until(lambda: bool(given) and len(given[-1]) == 2)
        return count

    operations = await start(lost=0)
    assert operations > 5
    for number in range(1, operations + 1):
        await start(lost=number)


async def test_patience_ends_with_one_line_for_the_operator() -> None:
    store = await a_store()
    store.suspend()
    with pytest.raises(ConnectError, match="ZooKeeper gave no answer within 10 s: get /waltz") as caught:
        await patiently(lambda: read_cluster_params(store, ROOT))
    assert caught.value.user_error
    assert asyncio.get_running_loop().time() <= START_SECONDS


async def test_what_is_not_there_is_said_at_once() -> None:
    store = await a_store()
    with pytest.raises(ClusterNotFoundError):
        await patiently(lambda: read_cluster_params(store, "/other"))
    assert asyncio.get_running_loop().time() == 0.0


@pytest.mark.parametrize("server_id", [None, 7])
async def test_a_server_that_cannot_register_says_so_in_one_line(server_id: int | None) -> None:
    store = await a_store()
    async with ClusterManager(store, ROOT, rng=random.Random(0)) as manager:
        store.suspend(server_keeps_session=True)
        with pytest.raises(ConnectError, match="ZooKeeper") as caught:
            await manager.register_server(Endpoint("h", 8001), lambda _: None, server_id=server_id)
    assert caught.value.user_error
