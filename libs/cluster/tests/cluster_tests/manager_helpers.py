"""A small cluster tree, and managers to put on it."""

import asyncio
import random
from collections.abc import Callable

from waltz_cluster.manager import ClusterManager
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.registration import ServerRegistration
from waltz_cluster.serializers import ClusterParams, Counter, PartitionAssignment
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.types import Endpoint, Generation, PartitionId

ROOT = "/waltz"
Partitions = dict[PartitionId, Generation]


async def seed(store: ZooKeeperStore, root: str, num_partitions: int) -> None:
    """What a manager needs of a fresh cluster."""
    await store.create(root, ClusterParams("test", num_partitions).to_bytes())
    await store.create(f"{root}/serverDescriptors", PartitionAssignment().to_bytes())
    await store.create(f"{root}/ids", None)
    await store.create(f"{root}/ids/client", Counter().to_bytes())
    await store.create(f"{root}/ids/server", Counter().to_bytes())
    await store.create(f"{root}/store", None)
    await store.create(f"{root}/store/partition", None)


async def until(condition: Callable[[], bool], timeout_seconds: float = 10.0) -> None:
    """Wait for something other tasks bring about; AssertionError when it does not come."""
    async with asyncio.timeout(timeout_seconds):
        while not condition():
            await asyncio.sleep(0.005)


class Server:
    """One server process: a session, a manager, a registration; remembers every partition set it was
    given."""

    def __init__(self, store: ZooKeeperStore, root: str, port: int) -> None:
        self.store = store
        self.manager = ClusterManager(store, root, rng=random.Random(port))
        self.endpoint = Endpoint("h", port)
        self.history: list[Partitions] = []
        self.registration: ServerRegistration | None = None

    async def start(self) -> "Server":
        await self.manager.__aenter__()
        self.registration = await self.manager.register_server(self.endpoint, self.history.append)
        return self

    async def stop(self) -> None:
        await self.manager.__aexit__(None, None, None)

    @property
    def joined(self) -> ServerRegistration:
        assert self.registration is not None
        return self.registration

    @property
    def partitions(self) -> Partitions:
        return self.history[-1] if self.history else {}

    @property
    def memory(self) -> MemoryStore:
        assert isinstance(self.store, MemoryStore)
        return self.store


async def memory_cluster(num_partitions: int = 4) -> MemoryZooKeeper:
    zookeeper = MemoryZooKeeper()
    store = zookeeper.session()
    await seed(store, ROOT, num_partitions)
    await store.close()
    return zookeeper


async def start_server(zookeeper: MemoryZooKeeper, port: int, timeout_seconds: float = 10.0) -> Server:
    return await Server(zookeeper.session(timeout_seconds), ROOT, port).start()


def assignment_of(zookeeper: MemoryZooKeeper) -> PartitionAssignment:
    return PartitionAssignment.from_bytes(zookeeper.tree()[f"{ROOT}/serverDescriptors"][0])
