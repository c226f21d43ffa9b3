"""One registered server: its descriptor znode and its preferred partitions.

One writer: the server itself, inside the manager's lock. Invariants
  1. At most one descriptor with this server id stays: before creating one the children are looked through;
     the one of the present session is kept, left-overs (of a lost reply or of an earlier session) are
     deleted.
  2. When it registers, once, it deletes what an earlier process at its endpoint left behind: that one crashed
     (the port is ours now), and until its session ends its partitions would have no server. It is challenged
     first (see `eviction`): one that lives, on another machine that was given our address, answers. Never
     later, and
     never a descriptor that came after our own: of two processes that were given one endpoint by mistake each
     puts its own back, and neither continues deleting the other's.
  3. A server whose descriptor is gone though it did not leave (it was evicted, see `eviction`) gives up its
     partitions before it registers again: others have them.
  4. The preferred partitions are kept in ZooKeeper per endpoint (`preferredPartitions/<endpoint>`), so that
     a server that restarts, and gets a new server id, prefers what it preferred.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from waltz_cluster.errors import AuthError, ClusterError, NodeExistsError, NoNodeError, SerializationError
from waltz_cluster.eviction import Challenges
from waltz_cluster.membership import Member, Snapshot
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import Preferences, ServerDescriptor
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.types import Endpoint, Generation, PartitionId

_log = logging.getLogger(__name__)

GHOST_ANSWER_SECONDS = 0.2
"""So long has a process at our address to show that it lives, before its descriptor is deleted."""

OnPartitions = Callable[[dict[PartitionId, Generation]], None]


class Registrar(Protocol):
    """What a registration asks of the cluster manager that made it."""

    async def change_preferred(
        self,
        registration: "ServerRegistration",
        choose: Callable[[frozenset[PartitionId]], Iterable[int]],
        timeout_seconds: float,
    ) -> None:
        """`choose` gets the present set and gives the new one; see `ServerRegistration.add_preferred`."""

    async def leave(self, registration: "ServerRegistration", timeout_seconds: float) -> None:
        """See `ServerRegistration.unregister`."""


class ServerRegistration:
    """A server that takes part. Made by `ClusterManager.register_server`."""

    def __init__(
        self,
        registrar: Registrar,
        store: ZooKeeperStore,
        paths: ClusterPaths,
        descriptor: ServerDescriptor,
        on_partitions: OnPartitions,
    ) -> None:
        self._registrar = registrar
        self._store = store
        self._paths = paths
        self._on_partitions = on_partitions
        self._delivered: dict[PartitionId, Generation] | None = {}
        self._arrived = False
        self.descriptor = descriptor

    @property
    def server_id(self) -> int:
        return self.descriptor.server_id

    @property
    def preferred(self) -> frozenset[PartitionId]:
        return frozenset(self.descriptor.preferred)

    async def add_preferred(self, partitions: Iterable[int], *, timeout_seconds: float = 30.0) -> None:
        """Prefer these partitions too from now on, also after a restart.

        Serialised with every other change of this manager; the new assignment is version-checked and tried
        again, with growing pauses, until `timeout_seconds` have passed (then the last error is raised).
        ClusterError for an unknown id. Cancellation may leave the preference stored and the assignment to the
        next evaluation.
        """
        added = [PartitionId(partition_id) for partition_id in partitions]
        await self._registrar.change_preferred(self, lambda present: present.union(added), timeout_seconds)

    async def remove_preferred(self, partitions: Iterable[int], *, timeout_seconds: float = 30.0) -> None:
        """Prefer these no longer; else as `add_preferred`."""
        removed = [PartitionId(partition_id) for partition_id in partitions]
        await self._registrar.change_preferred(
            self, lambda present: present.difference(removed), timeout_seconds
        )

    async def unregister(self, *, timeout_seconds: float = 5.0) -> None:
        """Leave in order: delete the descriptor, so that the others take over at once; then
        `on_partitions({})`.

        When ZooKeeper cannot be reached in time the descriptor goes with the session. Idempotent.
        """
        await self._registrar.leave(self, timeout_seconds)

    def deliver(self, partitions: Mapping[PartitionId, Generation]) -> bool:
        """Inform the server of its partitions, if they are others than the last time, or if it has not
        taken those: False when it does not take these."""
        if partitions != self._delivered:
            self._delivered = None
            try:
                self._on_partitions(dict(partitions))
            except Exception:
                _log.exception("server %d failed to adopt its partitions", self.server_id)
                return False
            self._delivered = dict(partitions)
        return True

    # -- the znodes; all called under the manager's lock

    async def ensure_descriptor(self, snapshot: Snapshot) -> bool:
        """Make the snapshot show exactly one descriptor of ours, of this session; True when something was
        written."""
        mine = snapshot.of(self.server_id)
        session_id = self._store.session_id
        keep = next((znode for znode in mine if znode.owner == session_id), None)
        changed = False
        if keep is None:
            if self._delivered != {}:
                _log.warning(
                    "server %d is not registered any longer: it gives up its partitions and registers again",
                    self.server_id,
                )
                self.deliver({})
            await self._store.create(
                self._paths.new_server_descriptor,
                self.descriptor.to_bytes(),
                ephemeral=True,
                sequential=True,
            )
            changed = True
        elif keep.descriptor != self.descriptor:
            await self._store.set(
                self._paths.server_descriptor(keep.name), self.descriptor.to_bytes(), version=keep.version
            )
            changed = True
        for znode in mine:
            if znode is not keep:
                await self._delete(self._paths.server_descriptor(znode.name))
                changed = True
        if not self._arrived:
            for znode in snapshot.znodes:
                if self._is_ghost(znode) and (keep is None or znode.name < keep.name):
                    changed = await self._delete_ghost(znode) or changed
            self._arrived = True
        return changed

    def _is_ghost(self, znode: Member) -> bool:
        """Of an earlier process that served where we serve now."""
        theirs, ours = znode.descriptor, self.descriptor
        return (
            theirs.endpoint == ours.endpoint
            and theirs.server_id != ours.server_id
            and znode.owner != self._store.session_id
        )

    async def _delete_ghost(self, znode: Member) -> bool:
        """Unless it answers a challenge: then two servers were given one address. One of 0.13.2 never
        answers."""
        try:
            if not await Challenges(self._store, self._paths.root).delete_unanswered(
                znode.name, GHOST_ANSWER_SECONDS
            ):
                _log.error(
                    "server %d is at %s as well, and lives: two servers must not have one address",
                    znode.descriptor.server_id,
                    znode.descriptor.endpoint,
                )
                return False
        except AuthError as error:
            _log.warning(
                "the descriptor of server %d goes with its session: %s", znode.descriptor.server_id, error
            )
            return False
        _log.warning(
            "server %d, which was at %s before this one, has not left in order: its descriptor is deleted",
            znode.descriptor.server_id,
            znode.descriptor.endpoint,
        )
        return True

    async def delete_descriptors(self, znodes: Iterable[Member]) -> None:
        for znode in znodes:
            if znode.descriptor.server_id == self.server_id:
                await self._delete(self._paths.server_descriptor(znode.name))

    async def _delete(self, path: str) -> None:
        try:
            await self._store.delete(path)
        except NoNodeError:
            _log.debug("%s was gone already", path)


async def load_preferred(
    store: ZooKeeperStore, paths: ClusterPaths, endpoint: Endpoint, num_partitions: int
) -> tuple[PartitionId, ...]:
    """What a server at this endpoint preferred before; nothing when there is no, or no readable, record."""
    try:
        data, _ = await store.get(paths.preference(str(endpoint)))
        stored = Preferences.from_bytes(data).partitions
    except NoNodeError:
        return ()
    except SerializationError as error:
        _log.warning("the stored preferred partitions of %s are ignored: %s", endpoint, error)
        return ()
    return tuple(partition_id for partition_id in stored if 0 <= partition_id < num_partitions)


async def store_preferred(
    store: ZooKeeperStore, paths: ClusterPaths, endpoint: Endpoint, partitions: tuple[PartitionId, ...]
) -> None:
    """Write the record (or take it away when there is nothing to remember). Idempotent."""
    path = paths.preference(str(endpoint))
    if not partitions:
        try:
            await store.delete(path)
        except NoNodeError:
            _log.debug("%s was gone already", path)
        return
    data = Preferences(partitions).to_bytes()
    try:
        await store.set(path, data)
    except NoNodeError:
        try:
            await store.create(path, data, make_parents=True)
        except NodeExistsError:
            await store.set(path, data)


def check_preferred(partitions: Iterable[int], num_partitions: int) -> tuple[PartitionId, ...]:
    """The ids, ascending; ClusterError naming one that does not exist."""
    chosen = tuple(sorted({PartitionId(partition_id) for partition_id in partitions}))
    for partition_id in chosen:
        if not 0 <= partition_id < num_partitions:
            raise ClusterError(
                f"there is no partition {partition_id}: the cluster has 0 to {num_partitions - 1}"
            )
    return chosen
