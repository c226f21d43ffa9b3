"""Store metadata: parameters, replica assignments, and the metadata of each partition under version checks.

PartitionMetadata is precious: it says which copies of a partition may decide what was committed. Its one
writer is the server that owns the partition; every write names the version it was based on.
ConnectionLostError from a write means that it may or may not have happened: the caller reads again, and never
reuses a session id it tried to take. A missing znode is reported as such (None), never replaced silently:
only the caller can distinguish a partition that never was started from one whose metadata was lost.
"""

from collections.abc import Callable

from waltz_cluster.cluster_params import read_store_params
from waltz_cluster.errors import NoNodeError
from waltz_cluster.joined_listings import JoinedListings
from waltz_cluster.joined_writes import JoinedWrites
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.replica_assignment import ReplicaAssignmentWatcher
from waltz_cluster.serializers import (
    ConnectionMetadata,
    GroupDescriptor,
    PartitionMetadata,
    ReplicaAssignments,
    StoreParams,
)
from waltz_cluster.store import CheckOp, Watch, ZnodeStat, ZooKeeperStore

NO_VERSION = -2
"""Version given for a znode that does not exist (-1 would mean "any" to ZooKeeper)."""


class StoreMetadata:
    """The znodes below `store` of one cluster."""

    def __init__(self, store: ZooKeeperStore, root: str) -> None:
        self._store = store
        self._paths = ClusterPaths(root)
        self._writes = JoinedWrites(store)
        self._names = JoinedListings(store, self._paths.partitions)

    async def store_params(self) -> StoreParams:
        """Cluster key and number of partitions; ClusterNotFoundError."""
        return await read_store_params(self._store, self._paths.root)

    async def read_partition(self, partition_id: int) -> tuple[PartitionMetadata | None, int]:
        """Metadata and version; (None, NO_VERSION) when the znode is missing; SerializationError when
        unreadable."""
        found, stat = await self.read_partition_stat(partition_id)
        return found, NO_VERSION if stat is None else stat.version

    async def read_partition_stat(
        self, partition_id: int, watch: Watch | None = None
    ) -> tuple[PartitionMetadata | None, ZnodeStat | None]:
        """The same with everything that ZooKeeper knows about the znode; (None, None) when it is missing,
        and then without a watch."""
        try:
            data, stat = await self._store.get(self._paths.partition(partition_id), watch)
        except NoNodeError:
            return None, None
        return PartitionMetadata.from_bytes(data), stat

    async def create_partition(self, partition_id: int, metadata: PartitionMetadata) -> None:
        """Create the znode (its first version is 0); NodeExistsError."""
        await self._store.create(self._paths.partition(partition_id), metadata.to_bytes())

    async def write_partition(self, partition_id: int, metadata: PartitionMetadata, version: int) -> int:
        """Write with a version check and return the new version. Writes of one turn of the loop travel
        together (`joined_writes`), and each has an outcome of its own.

        VersionConflictError: nothing written. ConnectionLostError: outcome unknown. NoNodeError: the znode is
        gone.
        """
        if version < 0:
            raise ValueError(
                f"version {version}: partition metadata is never written without a version check"
            )
        return await self._writes.set(self._paths.partition(partition_id), metadata.to_bytes(), version)

    async def check_partition(self, partition_id: int, version: int) -> None:
        """Return if this is the version of the metadata now, by the word of ZooKeeper's leader: reads may lag
        behind.

        VersionConflictError, NoNodeError. Nothing is written.
        """
        await self._store.transaction([CheckOp(self._paths.partition(partition_id), version)])

    async def never_started(self, partition_id: int) -> bool:
        """Positive proof by ZooKeeper that the partition never had metadata: none is there and none was ever
        deleted. All who ask at once share a listing that begins after they asked (`joined_listings`)."""
        names, stat = await self._names.get()
        return str(partition_id) not in names and stat.cversion == len(names)

    async def replica_assignments(self) -> ReplicaAssignments:
        """The replicas of every partition."""
        data, _ = await self._store.get(self._paths.assignment)
        return ReplicaAssignments.from_bytes(data)

    def watch_replica_assignments(
        self, callback: Callable[[ReplicaAssignments], None]
    ) -> ReplicaAssignmentWatcher:
        """A watcher to `run()`: calls back with the assignments now and after every change."""
        return ReplicaAssignmentWatcher(self._store, self._paths.assignment, callback)

    async def groups(self) -> GroupDescriptor:
        data, _ = await self._store.get(self._paths.group)
        return GroupDescriptor.from_bytes(data)

    async def connections(self) -> ConnectionMetadata:
        data, _ = await self._store.get(self._paths.connection)
        return ConnectionMetadata.from_bytes(data)
