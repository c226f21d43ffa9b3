"""What our administration and our cluster manager write to ZooKeeper is what release 0.13.2 wrote, stage by
stage."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.test_zookeeper_trees import reader_of
from tests.interop.trees import ROOT, Znode, golden_tree, read_tree
from waltz_admin import assignments, nodes, seeding
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.manager import ClusterManager
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import connect
from waltz_protocol.types import Endpoint
from waltz_testkit.zookeeper import EmbeddedZooKeeper, ZooKeeperUnavailableError

PATHS = ClusterPaths(ROOT)
KEY = uuid.UUID(bytes=golden_tree("01-created")[PATHS.store].data[1:17])
NODES = (("localhost:56285", 56286), ("localhost:56295", 56296), ("localhost:56305", 56306))
SERVER = ServerDescriptor.from_bytes(
    golden_tree("04-server-started")[f"{PATHS.server_descriptors}/s_0000000000"].data
).endpoint

NewSession = Callable[[], Awaitable[ZooKeeperStore]]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(Path(tmp_path_factory.mktemp("zookeeper")))
    try:
        server.start()
    except ZooKeeperUnavailableError as error:
        pytest.skip(f"no ZooKeeper on this machine: {error}")
    yield server
    server.stop()


@pytest.fixture(params=["memory", "zookeeper"])
async def new_session(request: pytest.FixtureRequest) -> AsyncIterator[NewSession]:
    """Opens sessions to one server, in memory or real."""
    memory = MemoryZooKeeper()
    async with AsyncExitStack() as stack:

        async def open_session() -> ZooKeeperStore:
            store: ZooKeeperStore
            if request.param == "memory":
                store = memory.session()
            else:
                server: EmbeddedZooKeeper = request.getfixturevalue("zookeeper")
                settings = {
                    "zookeeper.connectString": server.connect_string,
                    "zookeeper.sessionTimeout": 10_000,
                    "zookeeper.connectTimeout": 30_000,
                    "cluster.root": ROOT,
                }
                store = await connect(ZooKeeperSettings.from_mapping(settings))
            stack.push_async_callback(store.close)
            return store

        yield open_session
        await seeding.delete(await open_session(), ROOT, "gold", force=True)


def meaning(path: str, data: bytes) -> Any:
    """Content without the order of maps, which in 0.13.2 is that of a hash map, or of a shuffle."""
    reader = reader_of(path)
    if reader is None:
        return data
    value = reader(data)
    if isinstance(value, PartitionAssignment):
        servers = {server: sorted(owned) for server, owned in value.servers.items()}
        return value.cversion, value.num_partitions, servers
    return value


def differences(
    ours: dict[str, Znode], stage: str, *, below: str = ROOT, loose: frozenset[str] = frozenset()
) -> list[str]:
    """Znodes at or below a path that differ: content, children, ephemeral or not, and both versions.

    The versions of the paths in `loose` are not compared. What only ours has is reported as well.
    """
    golden = {path: znode for path, znode in golden_tree(stage).items() if path.startswith(below)}
    mine = {path: znode for path, znode in ours.items() if path.startswith(below)}
    found = [f"only in 0.13.2: {path}" for path in golden.keys() - mine.keys()]
    found += [f"only in ours: {path}" for path in mine.keys() - golden.keys()]
    for path in golden.keys() & mine.keys():
        new, old = mine[path], golden[path]
        if meaning(path, new.data) != meaning(path, old.data) or len(new.data) != len(old.data):
            found.append(f"{path}: content {new.data.hex()} instead of {old.data.hex()}")
        if (new.children, new.ephemeral) != (old.children, old.ephemeral):
            found.append(f"{path}: children {new.children} instead of {old.children}")
        if path not in loose and (new.version, new.cversion) != (old.version, old.cversion):
            found.append(f"{path}: versions {new} instead of {old}")
    return found


async def seed(store: ZooKeeperStore) -> AsyncIterator[str]:
    """Create, then add and assign the three nodes; gives the stage that has been reached."""
    await seeding.create(store, ROOT, "gold", 4, new_key=lambda: KEY)
    yield "01-created"
    for group, (connect_string, admin_port) in enumerate(NODES):
        await nodes.add_storage_node(store, ROOT, connect_string, admin_port, group)
        yield f"02-added-storage{group}"
        await assignments.auto_assign(store, ROOT, group)
        yield f"03-assigned-storage{group}"


async def test_seeding_writes_the_recorded_trees(new_session: NewSession) -> None:
    """Stages 01 to 03: create, and add and assign each node.

    Determined: paths, contents (byte for byte in stage 01), data versions, which count the writes that others
    watch, and children. Not determined: the order inside the three maps, and the child version of the store,
    which counts the lock znodes of 0.13.2's recipe.
    """
    store = await new_session()
    stages = 0
    async for stage in seed(store):
        ours = await read_tree(store)
        assert differences(ours, stage, loose=frozenset({PATHS.store})) == [], stage
        assert ours[PATHS.store].version == golden_tree(stage)[PATHS.store].version
        if stage == "01-created":
            assert {path: znode.data for path, znode in ours.items()} == {
                path: znode.data for path, znode in golden_tree(stage).items()
            }
        stages += 1
    assert stages == 7


async def test_servers_and_clients_write_the_recorded_trees(new_session: NewSession) -> None:
    """Stages 04 to 07: a server registers, clients take ids, preferred partitions come and go, a new server
    takes over.

    Determined: server and client ids and the counters behind them, name and bytes of the server's descriptor,
    that it is ephemeral, who owns which partition in which generation and that an assignment names the child
    version of its parent; in stages 04 and 05 all versions too.

    Not determined: the order of partitions inside an assignment; how often it is written on the way (in stage
    06 0.13.2 writes it again although nothing changes). Ours keeps preferred partitions in a znode of its own
    besides, which 0.13.2 does not look at. The partitions' metadata is that of the store sessions (see
    test_replay_store).
    """
    admin = await new_session()
    async for _stage in seed(admin):
        pass
    first = await new_session()
    async with ClusterManager(first, ROOT, rng=random.Random(1)) as manager:
        owned: list[dict[Any, Any]] = []
        registration = await manager.register_server(SERVER, owned.append)
        assert await reached(admin, "04-server-started") == []
        assert owned[-1] == dict.fromkeys(range(4), 1)
        async with ClusterManager(await new_session(), ROOT, rng=random.Random(2)) as client:
            seen: list[dict[Endpoint, dict[Any, Any]]] = []
            client.add_endpoints_listener(seen.append)
            assert [await client.new_client_id() for _ in range(3)] == [1, 2, 3]
            assert await reached(admin, "05-after-workload") == []
            assert [await client.new_client_id() for _ in range(5)] == [4, 5, 6, 7, 8]
            assert seen[-1] == {SERVER: dict.fromkeys(range(4), 1)}
        await registration.add_preferred({2})
        await registration.remove_preferred({2})
        assert await reached(admin, "06-after-preferred", stages_of_writes=True) == []
    await first.close()
    async with ClusterManager(await new_session(), ROOT, rng=random.Random(3)) as manager:
        await manager.register_server(SERVER, owned.append)
        assert await reached(admin, "07-server-restarted", stages_of_writes=True) == []
        assert owned[-1] == dict.fromkeys(range(4), 2)


async def reached(store: ZooKeeperStore, stage: str, *, stages_of_writes: bool = False) -> list[str]:
    """What differs from a stage below ids and serverDescriptors, once nothing changes any longer (at most 5
    s)."""
    descriptors = frozenset(
        path for path in golden_tree(stage) if stages_of_writes and path.startswith(PATHS.server_descriptors)
    )
    found: list[str] = []
    for _ in range(100):
        ours = await read_tree(store)
        found = [
            line
            for below in (PATHS.ids, PATHS.server_descriptors)
            for line in differences(ours, stage, below=below, loose=descriptors)
        ]
        if not found:
            break
        await asyncio.sleep(0.05)
    return found
