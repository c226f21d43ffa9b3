"""A cluster of fake servers: partitions, listeners, and the in-memory ZooKeeper that publishes who serves
what."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams, Counter, PartitionAssignment, ServerDescriptor
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import ServerTls
from waltz_protocol.types import Generation, PartitionId
from waltz_testkit.fake_server import FakePartition, FakeServer


class FakeCluster:
    """Servers, partitions and the in-memory ZooKeeper that publishes them."""

    def __init__(self, num_partitions: int, root: str = "/fake") -> None:
        self.root = root
        self.partitions = {p: FakePartition(p) for p in range(num_partitions)}
        self.servers: list[FakeServer] = []
        self.zookeeper = MemoryZooKeeper()
        self._paths = ClusterPaths(root)
        self._store: ZooKeeperStore | None = None
        self._descriptors: dict[int, str] = {}

    async def start(
        self,
        num_servers: int = 1,
        *,
        versions: tuple[int, ...] = (0, 1, 2, 3, 4),
        tls: ServerTls | None = None,
    ) -> None:
        """Listen, write the tree, give all partitions to the first server."""
        store = self._store = self.zookeeper.session()
        params = ClusterParams("fake cluster", len(self.partitions))
        await store.create(self.root, params.to_bytes(), make_parents=True)
        await store.create(self._paths.ids, b"")
        await store.create(self._paths.client_ids, Counter(0).to_bytes())
        await store.create(self._paths.server_ids, Counter(0).to_bytes())
        await store.create(self._paths.server_descriptors, PartitionAssignment().to_bytes())
        for number in range(num_servers):
            server = FakeServer(self.partitions, number + 1)
            await server.start(versions=versions, tls=tls)
            self.servers.append(server)
        for partition in self.partitions.values():
            partition.owner = self.servers[0]
        await self.publish()

    def session(self) -> ZooKeeperStore:
        """A ZooKeeper session for a client."""
        return self.zookeeper.session()

    async def publish(self, *, absent: tuple[FakeServer, ...] = ()) -> None:
        """Write who serves what now; servers in `absent` are gone from discovery."""
        store = self._store
        if store is None:
            raise RuntimeError("start the cluster first")
        for server in self.servers:
            listed = server.server_id in self._descriptors
            if server in absent and listed:
                await store.delete(self._descriptors.pop(server.server_id))
            elif server not in absent and not listed:
                descriptor = ServerDescriptor(server.server_id, server.endpoint)
                self._descriptors[server.server_id] = await store.create(
                    self._paths.new_server_descriptor, descriptor.to_bytes(), ephemeral=True, sequential=True
                )
        owned = {
            server.server_id: tuple(
                (PartitionId(p.partition_id), Generation(p.generation))
                for p in self.partitions.values()
                if p.owner is server
            )
            for server in self.servers
            if server.server_id in self._descriptors
        }
        _, stat = await store.get(self._paths.server_descriptors)
        assignment = PartitionAssignment(stat.cversion, len(self.partitions), owned)
        await store.set(self._paths.server_descriptors, assignment.to_bytes())

    async def move(self, partition_id: int, to: FakeServer, *, absent: tuple[FakeServer, ...] = ()) -> None:
        """Give a partition to another server, in the next generation, and publish it."""
        partition = self.partitions[partition_id]
        if partition.owner is not None:
            partition.closed_by(partition.owner)
        partition.owner = to
        partition.generation += 1
        partition.table_mark = partition.high_water_mark
        await self.publish(absent=absent)

    async def close(self) -> None:
        """Stop everything."""
        for server in self.servers:
            await server.kill()


@contextlib.asynccontextmanager
async def fake_cluster(
    num_partitions: int = 1,
    num_servers: int = 1,
    *,
    versions: tuple[int, ...] = (0, 1, 2, 3, 4),
    tls: ServerTls | None = None,
) -> AsyncIterator[FakeCluster]:
    """A running `FakeCluster`, closed at the end."""
    cluster = FakeCluster(num_partitions)
    await cluster.start(num_servers, versions=versions, tls=tls)
    try:
        yield cluster
    finally:
        await cluster.close()
