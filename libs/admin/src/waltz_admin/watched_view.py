"""Everything ZooKeeper knows about a cluster, for those who ask again and again: what has not changed is not
read again.

Each part (parameters, servers with the assignment, the maps of storage nodes, the metadata of each partition)
is read with watches and kept until one of them fires. A read of the view costs one `sync`, after which the
watches of everything that was changed before it have fired or are about to. So a view may be a moment older
than one of `waltz_admin.view.read_view`: it is for those who describe, or find that nothing is to be done; no
write may depend on it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from waltz_admin.tree import NodeMaps, read_maps
from waltz_admin.view import ClusterView, MetadataReads, view_of
from waltz_cluster.cluster_params import read_params
from waltz_cluster.membership import MembershipReader, Snapshot
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams, StoreParams
from waltz_cluster.store import Watch, ZooKeeperStore
from waltz_cluster.watching import WatchingReads
from waltz_protocol.types import PartitionId

T = TypeVar("T")


class _Part(Generic[T]):
    """A part of the view. `fresh` becomes true before the part is read: a watch that fires while the answer
    is on its way counts."""

    def __init__(self) -> None:
        self.fresh = False
        self._value: T | None = None

    def changed(self) -> None:
        """A watch has fired."""
        self.fresh = False

    async def get(self, read: Callable[[], Awaitable[T]]) -> T:
        """As it is, read if need be."""
        if not self.fresh or self._value is None:
            self.fresh = True
            try:
                self._value = await read()
            except BaseException:
                self.fresh = False
                raise
        return self._value


class WatchedView:
    """Owner of the watches on one session of a store. Not for two tasks at a time."""

    def __init__(self, store: ZooKeeperStore, root: str) -> None:
        self._store = store
        self._root = root
        self._paths = ClusterPaths(root)
        self._params = _Part[tuple[ClusterParams, StoreParams]]()
        self._snapshot = _Part[Snapshot]()
        self._maps = _Part[NodeMaps]()
        self._names = _Part[frozenset[str]]()
        self._stale: set[PartitionId] = set()
        self._watched: set[PartitionId] = set()  # whose metadata have a watch
        self._metadata = MetadataReads(store, root)
        self._view: ClusterView | None = None
        self._params_reads = WatchingReads(store, self._params.changed)
        self._maps_reads = WatchingReads(store, self._maps.changed)
        self._names_reads = WatchingReads(store, self._names.changed)
        self._members = MembershipReader(store, self._paths, self._snapshot.changed)

    def doubt(self, partitions: Iterable[int]) -> None:
        """Read the metadata of these again with the next view."""
        self._stale.update(PartitionId(p) for p in partitions)

    def doubt_everything(self) -> None:
        """Read everything again with the next view. A watch cannot be taken back, so whoever wants to begin
        anew on the same session does it so: what has a watch gets no second one."""
        for part in (self._params, self._snapshot, self._maps, self._names):
            part.changed()
        self._stale.update(self._metadata.found)

    async def read(self) -> ClusterView:
        """The view now: the same object while nothing has changed. Errors of `read_view`; after one, what
        was not read is read by the next call."""
        await self._store.sync(self._paths.store)
        parts = self._params, self._snapshot, self._maps, self._names
        if self._view is not None and not self._stale and all(part.fresh for part in parts):
            return self._view
        self._view = None
        params, store_params = await self._params.get(lambda: read_params(self._params_reads, self._root))
        snapshot = await self._snapshot.get(self._members.snapshot)
        await self._read_metadata(params.num_partitions)
        maps = await self._maps.get(lambda: read_maps(self._maps_reads, self._paths))
        self._view = view_of(params, store_params, snapshot, maps, self._metadata)
        return self._view

    async def _read_metadata(self, num_partitions: int) -> None:
        """Those whose watch has fired. A znode that is missing has no watch but its parent's."""
        if not self._names.fresh:
            await self._names.get(lambda: self._metadata.read_names(self._names_reads, self._paths))
            found = self._metadata.found
            everything = (PartitionId(p) for p in range(num_partitions))
            self._stale.update(p for p in everything if found.get(p) is None)
        stale = sorted(self._stale)
        self._stale.difference_update(stale)  # before they are read: a watch that fires meanwhile counts
        unwatched = set(stale) - self._watched
        try:
            await self._metadata.read(stale, self._watch)
        except BaseException:
            self._stale.update(stale)
            self._watched -= unwatched
            raise
        self._watched.difference_update(p for p in stale if self._metadata.found[p] is None)

    def _watch(self, partition_id: PartitionId) -> Watch | None:
        if partition_id in self._watched:
            return None
        self._watched.add(partition_id)

        def fired() -> None:
            self._watched.discard(partition_id)
            self._stale.add(partition_id)

        return fired
