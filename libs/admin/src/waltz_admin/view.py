"""Everything ZooKeeper knows about a cluster, read once, as values (docs/zookeeper-layout.md).

`read_view` is for those who know that the cluster is there; `probe` is for those who must not mistake
"not there" for "cannot be read": each of its answers is a positive one, and everything else is an error.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from waltz_admin.errors import AdminError
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_admin.tree import NodeMaps, read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.errors import ClusterMismatchError, ClusterNotFoundError, NoNodeError, SerializationError
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
    """`metadata` holds None for a partition whose metadata znode is missing, a text for one that is
    unreadable."""

    params: ClusterParams
    store: StoreParams
    servers: tuple[ServerDescriptor, ...]
    assignment: PartitionAssignment
    assignment_current: bool
    """False: the assignment was made for other servers than those present (also: there are none)."""
    nodes: NodeMaps
    metadata: Mapping[PartitionId, PartitionMetadata | str | None]
    metadata_versions: Mapping[PartitionId, int] = field(default_factory=dict)
    """Data versions of the metadata that were read."""
    never_started: frozenset[PartitionId] = frozenset()
    """Partitions of which ZooKeeper proves that they never had metadata."""
    metadata_written: Mapping[PartitionId, float] = field(default_factory=dict)
    """When the metadata were written last: Unix time by ZooKeeper's clock; 0 = not known."""

    def owners(self, partition_id: int) -> list[int]:
        """Servers the assignment gives the partition to."""
        return [
            server_id
            for server_id, partitions in self.assignment.servers.items()
            if any(partition_id == listed for listed, _ in partitions)
        ]


_PARALLEL_READS = 64


async def read_view(store: ZooKeeperStore, root: str) -> ClusterView:
    """Read it; nothing is written. ClusterNotFoundError, ClusterMismatchError, AdminError when parts are
    missing."""
    paths = ClusterPaths(root)
    params, store_params = await read_params(store, root)
    snapshot = await MembershipReader(store, paths, lambda: None).snapshot(watch=False)
    metadata, versions, never, written = await _read_metadata(store, paths, params.num_partitions)
    servers = sorted(snapshot.members.values(), key=lambda descriptor: descriptor.server_id)
    return ClusterView(
        params,
        store_params,
        tuple(servers),
        snapshot.assignment,
        snapshot.consistent and bool(servers),
        await read_maps(store, paths),
        metadata,
        versions,
        never,
        written,
    )


async def probe(store: ZooKeeperStore, root: str) -> ClusterView | NoTree | BrokenTree:
    """What is at the root. Only ZooKeeper's own errors (no connection, no permission) are raised: they say
    nothing about it."""
    try:
        data, stat = await store.get(root)
    except NoNodeError:
        return NoTree()
    if not data and not stat.num_children:
        return NoTree()
    try:
        return await read_view(store, root)
    except (ClusterNotFoundError, ClusterMismatchError, AdminError, SerializationError, NoNodeError) as error:
        reason = str(error) or type(error).__name__
        return BrokenTree(reason, _name(data), await _key(store, root), not stat.num_children)


def _name(data: bytes | None) -> str | None:
    try:
        return ClusterParams.from_bytes(data).name if data else None
    except SerializationError:
        return None


async def _key(store: ZooKeeperStore, root: str) -> UUID | None:
    try:
        data, _ = await store.get(ClusterPaths(root).store)
        return StoreParams.from_bytes(data).cluster_key if data else None
    except (NoNodeError, SerializationError):
        return None


async def _read_metadata(
    store: ZooKeeperStore, paths: ClusterPaths, num_partitions: int
) -> tuple[
    dict[PartitionId, PartitionMetadata | str | None],
    dict[PartitionId, int],
    frozenset[PartitionId],
    dict[PartitionId, float],
]:
    """Of every partition: metadata, versions, those never started, times. The proof that one never was
    started is read first: metadata can only come, not have gone, after it."""
    names, stat = await store.get_children(paths.partitions)
    never_deleted = stat.cversion == len(names)
    reader = StoreMetadata(store, paths.root)
    metadata: dict[PartitionId, PartitionMetadata | str | None] = {}
    versions: dict[PartitionId, int] = {}
    written: dict[PartitionId, float] = {}

    async def one(partition_id: PartitionId) -> None:
        try:
            found, stat = await reader.read_partition_stat(partition_id)
        except SerializationError as error:
            metadata[partition_id] = str(error)
            return
        metadata[partition_id] = found
        if stat is not None:
            versions[partition_id] = stat.version
            written[partition_id] = stat.modified_ms / 1000

    everything = [PartitionId(partition_id) for partition_id in range(num_partitions)]
    for start in range(0, num_partitions, _PARALLEL_READS):
        await asyncio.gather(*(one(p) for p in everything[start : start + _PARALLEL_READS]))
    never = frozenset(p for p in everything if never_deleted and str(p) not in names and metadata[p] is None)
    return {p: metadata[p] for p in everything}, versions, never, written
