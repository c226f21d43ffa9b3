"""Reading `serverDescriptors` as one consistent picture, with watches that say when it is out of date.

The znode's data (the assignment) and its children (the members) are separate in ZooKeeper. A snapshot is
handed out only when the child version was the same before the children were read and after: so an assignment
is never computed for members that do not belong to the child version it is recorded with.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from waltz_cluster.errors import NoNodeError, SerializationError, VersionConflictError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.watching import Watches

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Member:
    """One descriptor znode."""

    name: str
    descriptor: ServerDescriptor
    version: int
    owner: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`serverDescriptors` at one moment: data version, child version, assignment, descriptor znodes."""

    version: int
    cversion: int
    assignment: PartitionAssignment
    znodes: tuple[Member, ...]

    @property
    def number(self) -> int:
        """Larger than that of every earlier snapshot of this tree; the same for all who take one."""
        return self.version << 32 | self.cversion

    @property
    def consistent(self) -> bool:
        """The assignment was made for these members."""
        return self.assignment.cversion == self.cversion

    @property
    def members(self) -> dict[int, ServerDescriptor]:
        """Descriptors by server id; of two with one id (a left-over of a lost reply) the newer one."""
        return {znode.descriptor.server_id: znode.descriptor for znode in self.znodes}

    def of(self, server_id: int) -> list[Member]:
        return [znode for znode in self.znodes if znode.descriptor.server_id == server_id]


class MembershipReader:
    """Takes snapshots; `changed` is called when one is out of date."""

    def __init__(self, store: ZooKeeperStore, paths: ClusterPaths, changed: Callable[[], None]) -> None:
        self._store = store
        self._paths = paths
        self._watches = Watches(changed)
        self._watching = True

    async def _get(self, path: str) -> tuple[bytes | None, int, int, int]:
        if self._watching:
            data, stat = await self._watches.read("data", path, lambda own: self._store.get(path, own))
        else:
            data, stat = await self._store.get(path)
        return data, stat.version, stat.cversion, stat.ephemeral_owner

    async def _children(self) -> tuple[list[str], int]:
        path = self._paths.server_descriptors
        if self._watching:
            names, stat = await self._watches.read(
                "children", path, lambda own: self._store.get_children(path, own)
            )
        else:
            names, stat = await self._store.get_children(path)
        return names, stat.cversion

    async def snapshot(self, *, watch: bool = True) -> Snapshot:
        """A consistent picture, with watches unless `watch` is False; NoNodeError when the cluster is gone,
        SerializationError when the assignment cannot be read (nothing is put in its place: it holds the
        generations), VersionConflictError when members keep changing faster than they can be read."""
        self._watching = watch
        for _ in range(_MAX_ATTEMPTS):
            names, cversion = await self._children()
            znodes = await self._members(names)
            if znodes is None:
                continue
            data, version, cversion_after, _ = await self._get(self._paths.server_descriptors)
            if cversion_after == cversion:
                assignment = PartitionAssignment.from_bytes(data) if data else PartitionAssignment()
                return Snapshot(version, cversion, assignment, znodes)
        raise VersionConflictError("the servers change faster than they can be read")

    async def descriptors(self) -> tuple[Member, ...]:
        """The descriptor znodes alone, whatever the assignment is; no watches."""
        self._watching = False
        for _ in range(_MAX_ATTEMPTS):
            names, _ = await self._children()
            znodes = await self._members(names)
            if znodes is not None:
                return znodes
        raise VersionConflictError("the servers change faster than they can be read")

    async def _members(self, names: list[str]) -> tuple[Member, ...] | None:
        """The readable descriptors; None when one disappeared meanwhile."""
        znodes = []
        for name in names:
            try:
                data, version, _, owner = await self._get(self._paths.server_descriptor(name))
            except NoNodeError:
                return None
            try:
                znodes.append(Member(name, ServerDescriptor.from_bytes(data), version, owner))
            except SerializationError as error:
                _log.error("server descriptor %s is ignored: %s", name, error)
        return tuple(znodes)
