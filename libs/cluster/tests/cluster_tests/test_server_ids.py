"""Ids: server ids when the counter in ZooKeeper was put back, many at once."""

import random

import pytest

from cluster_tests.manager_helpers import ROOT, memory_cluster, start_server, until
from waltz_cluster.errors import IdsExhaustedError
from waltz_cluster.ids import take_ids
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.serializers import MAX_ID, Counter


async def test_a_counter_of_server_ids_that_was_put_back_gives_nobody_a_living_servers_id() -> None:
    """Two servers of one id would delete each other's descriptors, again and again."""
    zookeeper = await memory_cluster()
    first, second = await start_server(zookeeper, 1), await start_server(zookeeper, 2)
    store = zookeeper.session()
    await store.set(f"{ROOT}/ids/server", Counter(0).to_bytes())
    third = await start_server(zookeeper, 3)
    assert len({server.joined.server_id for server in (first, second, third)}) == 3
    await until(lambda: sum(len(server.partitions) for server in (first, second, third)) == 4)
    names, _ = await store.get_children(f"{ROOT}/serverDescriptors")
    assert len(names) == 3
    for server in (first, second, third):
        await server.stop()
    await store.close()


async def test_many_ids_in_one_write_and_as_many_as_are_left() -> None:
    store = MemoryZooKeeper().session()
    await store.create("/ids", Counter(3).to_bytes())
    assert await take_ids(store, "/ids", random.Random(1), 4) == range(4, 8)
    assert (await store.get("/ids"))[1].version == 1
    await store.set("/ids", Counter(MAX_ID - 2).to_bytes())
    assert await take_ids(store, "/ids", random.Random(1), 4) == range(MAX_ID - 1, MAX_ID + 1)
    with pytest.raises(IdsExhaustedError):
        await take_ids(store, "/ids", random.Random(1), 4)
