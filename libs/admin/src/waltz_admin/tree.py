"""Reading and changing the three maps of storage nodes (groups, assignments, connections) together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from waltz_admin.errors import AdminError, StorageNodeError
from waltz_cluster.errors import NoNodeError, SerializationError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ConnectionMetadata, GroupDescriptor, ReplicaAssignments
from waltz_cluster.store import Op, SetOp, ZooKeeperReads
from waltz_protocol.types import Endpoint, PartitionId

BATCH_OPS = 200
"""Of one transaction, beside BATCH_BYTES of data."""


_Map = TypeVar("_Map")
_RESTORE = (
    "restore the cluster's records, from an export (`waltz zk import`), or from what the storage nodes hold "
    "(`waltz zk rebuild`)"
)
HOW_TO_REMOVE = (
    "no storage node can be there: `waltz zk unassign-partition` with what it has, then `waltz zk remove-storage-node`, "
    "both with exactly this text"
)
REMOVE_SURPLUS = "waltz storage sync-partitions --remove-surplus"
"""Un-assigns copies that ZooKeeper does not assign, where no session needs them."""


@dataclass(frozen=True, slots=True)
class NodeMaps:
    """The maps as read, with their data versions."""

    groups: Mapping[str, int]
    partitions: Mapping[str, tuple[PartitionId, ...]]
    admin_ports: Mapping[str, int]
    versions: tuple[int, int, int]

    @property
    def names(self) -> list[str]:
        """Of all nodes that are known, completely or in part."""
        return sorted({*self.groups, *self.partitions, *self.admin_ports})

    def changes(
        self,
        paths: ClusterPaths,
        *,
        groups: Mapping[str, int] | None = None,
        partitions: Mapping[str, tuple[PartitionId, ...]] | None = None,
        admin_ports: Mapping[str, int] | None = None,
    ) -> list[Op]:
        """The version-checked writes that turn the maps into these; none for what is unchanged."""
        ops: list[Op] = []
        if groups is not None and groups != self.groups:
            ops.append(SetOp(paths.group, GroupDescriptor(groups).to_bytes(), self.versions[0]))
        if partitions is not None and partitions != self.partitions:
            ops.append(SetOp(paths.assignment, ReplicaAssignments(partitions).to_bytes(), self.versions[1]))
        if admin_ports is not None and admin_ports != self.admin_ports:
            ops.append(SetOp(paths.connection, ConnectionMetadata(admin_ports).to_bytes(), self.versions[2]))
        return ops


async def read_maps(store: ZooKeeperReads, paths: ClusterPaths) -> NodeMaps:
    """All three, as they are now; AdminError, with the next step, when one is missing or unreadable.

    A member of the ensemble that lags behind would show what was assigned before the last command, and a
    command that brings storage nodes in line with the tree (`sync_partitions`) would leave its change out.
    """
    await store.sync(paths.store)
    group, group_version = await _read(store, paths.group, GroupDescriptor.from_bytes)
    assignment, assignment_version = await _read(store, paths.assignment, ReplicaAssignments.from_bytes)
    connection, connection_version = await _read(store, paths.connection, ConnectionMetadata.from_bytes)
    versions = (group_version, assignment_version, connection_version)
    return NodeMaps(group.groups, assignment.nodes, connection.admin_ports, versions)


async def _read(store: ZooKeeperReads, path: str, decode: Callable[[bytes | None], _Map]) -> tuple[_Map, int]:
    """One map, and its data version."""
    try:
        data, stat = await store.get(path)
    except NoNodeError:
        data = None
    if not data:
        raise AdminError(
            f"the cluster is not complete, {path} is missing or empty: if the cluster was never used, `waltz zk create` "
            f"completes it; else {_RESTORE}"
        )
    try:
        return decode(data), stat.version
    except SerializationError as error:
        raise AdminError(f"{path} cannot be read ({error}): {_RESTORE}") from None


def parse_connect_string(text: str) -> Endpoint:
    """`host:port` or `[IPv6 address]:port`; StorageNodeError otherwise."""
    try:
        endpoint = Endpoint.parse(text)
    except ValueError as error:
        raise StorageNodeError(f"{text!r} is not a connect string (host:port): {error}") from None
    bracketed = endpoint.host.startswith("[") and endpoint.host.endswith("]")
    if ":" in endpoint.host and not bracketed:
        raise StorageNodeError(f"{text!r} is not a connect string: write an IPv6 address as [address]:port")
    return endpoint


def admin_endpoint(connect_string: str, admin_port: int) -> Endpoint:
    """Where the admin port of a storage node is: on the host of its connect string. StorageNodeError, with
    the next step, for one that is none: any text can be in ZooKeeper."""
    try:
        return Endpoint(parse_connect_string(connect_string).host, admin_port)
    except StorageNodeError as error:
        raise StorageNodeError(f"{error}; {HOW_TO_REMOVE}") from None
