"""Server ids when the counter in ZooKeeper was put back."""

from cluster_tests.manager_helpers import ROOT, memory_cluster, start_server, until
from waltz_cluster.serializers import Counter


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
