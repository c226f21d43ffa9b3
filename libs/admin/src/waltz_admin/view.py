"""Everything ZooKeeper knows about a cluster, read once, as values (ZooKeeper layout, list)."""

from collections.abc import Mapping
from dataclasses import dataclass

from waltz_admin.tree import NodeMaps, read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.errors import SerializationError
from waltz_cluster.membership import MembershipReader
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import (
    ClusterParams,
    PartitionAssignment,
    PartitionMetadata,
    ServerDescriptor,
    StoreParams,
)
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.types import PartitionId


@dataclass(frozen=True, slots=True)
class ClusterView:
    """``metadata`` holds None for a partition whose metadata znode is missing, a text for one that is unreadable."""

    params: ClusterParams
    store: StoreParams
    servers: tuple[ServerDescriptor, ...]
    assignment: PartitionAssignment
    assignment_current: bool
    """False: the assignment was made for other servers than those present (also: there are none)."""
    nodes: NodeMaps
    metadata: Mapping[PartitionId, PartitionMetadata | str | None]

    def owners(self, partition_id: int) -> list[int]:
        """Servers the assignment gives the partition to."""
        return [
            server_id
            for server_id, partitions in self.assignment.servers.items()
            if any(partition_id == listed for listed, _ in partitions)
        ]


async def read_view(store: ZooKeeperStore, root: str) -> ClusterView:
    """Read it; nothing is written. ClusterNotFoundError, ClusterMismatchError, AdminError when parts are missing."""
    paths = ClusterPaths(root)
    params, store_params = await read_params(store, root)
    snapshot = await MembershipReader(store, paths, lambda: None).snapshot(watch=False)
    metadata: dict[PartitionId, PartitionMetadata | str | None] = {}
    reader = StoreMetadata(store, root)
    for partition_id in map(PartitionId, range(params.num_partitions)):
        try:
            metadata[partition_id], _ = await reader.read_partition(partition_id)
        except SerializationError as error:
            metadata[partition_id] = str(error)
    servers = sorted(snapshot.members.values(), key=lambda descriptor: descriptor.server_id)
    return ClusterView(
        params,
        store_params,
        tuple(servers),
        snapshot.assignment,
        snapshot.consistent and bool(servers),
        await read_maps(store, paths),
        metadata,
    )
