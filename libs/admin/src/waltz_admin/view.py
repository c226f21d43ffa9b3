"""Everything ZooKeeper knows about a cluster, read once, as values (docs/zookeeper-layout.md).

`read_view` is for those who know that the cluster is there; `probe` is for those who must not mistake
"not there" for "cannot be read": each of its answers is a positive one, and everything else is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from waltz_admin.errors import AdminError
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_admin.tree import NodeMaps, read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.errors import ClusterMismatchError, ClusterNotFoundError, NoNodeError, SerializationError
from waltz_cluster.membership import MembershipReader, Snapshot
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import (
    ClusterParams,
    PartitionAssignment,
    PartitionMetadata,
    ServerDescriptor,
    StoreParams,
)
from waltz_cluster.store import Watch, ZooKeeperReads, ZooKeeperStore
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

    def recorded(self, partition_id: int) -> PartitionMetadata | None:
        """What ZooKeeper holds of a partition, to be compared with what nodes know: of one that it never saw
        started that there was no session. None: its metadata were lost, or cannot be read."""
        found = self.metadata.get(PartitionId(partition_id))
        if found is None and partition_id in self.never_started:
            return PartitionMetadata()
        return found if isinstance(found, PartitionMetadata) else None

    def owners(self, partition_id: int) -> list[int]:
        """Servers the assignment gives the partition to."""
        return [
            server_id
            for server_id, partitions in self.assignment.servers.items()
            if any(partition_id == listed for listed, _ in partitions)
        ]


MAX_PARALLEL_READS = 64


async def read_view(store: ZooKeeperStore, root: str) -> ClusterView:
    """Read it; nothing is written. ClusterNotFoundError, ClusterMismatchError, AdminError when parts are
    missing."""
    paths = ClusterPaths(root)
    params, store_params = await read_params(store, root)
    snapshot = await MembershipReader(store, paths, lambda: None).snapshot(watch=False)
    metadata = MetadataReads(store, root)
    await metadata.read_names(store, paths)
    await metadata.read([PartitionId(p) for p in range(params.num_partitions)], lambda _: None)
    return view_of(params, store_params, snapshot, await read_maps(store, paths), metadata)


def view_of(
    params: ClusterParams,
    store_params: StoreParams,
    snapshot: Snapshot,
    maps: NodeMaps,
    metadata: MetadataReads,
) -> ClusterView:
    """The view of what was read. Pure."""
    servers = sorted(snapshot.members.values(), key=lambda descriptor: descriptor.server_id)
    return ClusterView(
        params,
        store_params,
        tuple(servers),
        snapshot.assignment,
        snapshot.consistent and bool(servers),
        maps,
        {PartitionId(p): metadata.found[PartitionId(p)] for p in range(params.num_partitions)},
        dict(metadata.versions),
        metadata.never_started,
        dict(metadata.written),
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


class MetadataReads:
    """The metadata of all partitions, as read: a partition is read again only when that was asked for.

    The proof that one never was started is read first: metadata can only come, not have gone, after it.
    """

    def __init__(self, store: ZooKeeperStore, root: str) -> None:
        self._reader = StoreMetadata(store, root)
        self.names: frozenset[str] = frozenset()
        self.never_deleted = False
        self.found: dict[PartitionId, PartitionMetadata | str | None] = {}
        self.versions: dict[PartitionId, int] = {}
        self.written: dict[PartitionId, float] = {}

    async def read_names(self, store: ZooKeeperReads, paths: ClusterPaths) -> frozenset[str]:
        """Which partitions have metadata, and whether there ever were more."""
        names, stat = await store.get_children(paths.partitions)
        self.names, self.never_deleted = frozenset(names), stat.cversion == len(names)
        return self.names

    async def read(
        self, partitions: Sequence[PartitionId], watch: Callable[[PartitionId], Watch | None]
    ) -> None:
        """Read these, `MAX_PARALLEL_READS` at a time; `watch` gives the watch to set."""
        for start in range(0, len(partitions), MAX_PARALLEL_READS):
            await asyncio.gather(
                *(self._one(p, watch(p)) for p in partitions[start : start + MAX_PARALLEL_READS])
            )

    async def _one(self, partition_id: PartitionId, watch: Watch | None) -> None:
        found: PartitionMetadata | str | None
        try:
            found, stat = await self._reader.read_partition_stat(partition_id, watch)
        except SerializationError as error:
            found, stat = str(error), None
        self.found[partition_id] = found
        self.versions.pop(partition_id, None)
        self.written.pop(partition_id, None)
        if stat is not None:
            self.versions[partition_id] = stat.version
            self.written[partition_id] = stat.modified_ms / 1000

    @property
    def never_started(self) -> frozenset[PartitionId]:
        """Partitions of which ZooKeeper proves that they never had metadata."""
        if not self.never_deleted:
            return frozenset()
        return frozenset(p for p, one in self.found.items() if one is None and str(p) not in self.names)
