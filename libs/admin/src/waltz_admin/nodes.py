"""Adding and removing storage nodes (docs/zookeeper-layout.md, *How it is used*): three znodes, changed in
one transaction."""

import asyncio

from waltz_admin.errors import StorageNodeError
from waltz_admin.lock import AdminLock
from waltz_admin.same_node import check_new_node
from waltz_admin.tree import NodeMaps, admin_endpoint, parse_connect_string, read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.errors import VersionConflictError
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

__all__ = ["add_storage_node", "check_entry", "remove_storage_node"]

_ATTEMPTS = 5


async def add_storage_node(
    store: ZooKeeperStore,
    root: str,
    connect_string: str,
    admin_port: int,
    group: int,
    *,
    tls: TlsSettings | None = None,
    lock_wait_seconds: float = 60.0,
) -> bool:
    """Make the node known, without partitions. False when it is known exactly like this already.

    Completes a partial entry. StorageNodeError as of `check_entry`; with `tls`, where the node may be one
    that is known under another name, as of `check_new_node` too, under the lock: another one adds none
    meanwhile.
    """
    paths = ClusterPaths(root)
    await read_params(store, root)
    for attempt in range(_ATTEMPTS):
        async with AdminLock(store, paths, wait_seconds=lock_wait_seconds) as lock:
            if tls is not None:
                await check_new_node(store, root, tls, connect_string, admin_port)
            maps = await read_maps(store, paths)
            check_entry(maps, connect_string, admin_port, group)
            ops = maps.changes(
                paths,
                groups={**maps.groups, connect_string: group},
                partitions={**maps.partitions, connect_string: maps.partitions.get(connect_string, ())},
                admin_ports={**maps.admin_ports, connect_string: admin_port},
            )
            if not ops:
                return False
            try:
                await lock.transaction(ops)
                return True
            except VersionConflictError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        await asyncio.sleep(0)
    return False


def check_entry(maps: NodeMaps, connect_string: str, admin_port: int, group: int) -> None:
    """StorageNodeError when the node cannot be known like this: its ports are no two ports, it is known with
    another admin port or group, or another node has one of the ports on the same host. Pure."""
    if not 0 < admin_port < 65536:
        raise StorageNodeError(f"the admin port must be a port number, not {admin_port}")
    if parse_connect_string(connect_string).port == admin_port:
        raise StorageNodeError(f"{connect_string}: the admin port must differ from the storage port")
    if maps.groups.get(connect_string, group) != group:
        raise StorageNodeError(
            f"{connect_string} is in group {maps.groups[connect_string]} already, not in {group}"
        )
    if maps.admin_ports.get(connect_string, admin_port) != admin_port:
        raise StorageNodeError(
            f"{connect_string} is known with admin port {maps.admin_ports[connect_string]} already, not "
            f"{admin_port}. If {admin_port} is right: unassign its partitions, remove it (`waltz zk "
            "remove-storage-node`) and add it again"
        )
    own = {parse_connect_string(connect_string), admin_endpoint(connect_string, admin_port)}
    for node in maps.names:
        taken = _ports(maps, node)
        if node != connect_string and own & taken:
            raise StorageNodeError(
                f"{min(own & taken)} is a port of the storage node {node} already: {connect_string} with admin "
                f"port {admin_port} cannot be another node"
            )


def _ports(maps: NodeMaps, node: str) -> set[Endpoint]:
    """Those of a node that is known; none where its name is no host:port."""
    port = maps.admin_ports.get(node)
    try:
        return {parse_connect_string(node), *([] if port is None else [admin_endpoint(node, port)])}
    except StorageNodeError:
        return set()


async def remove_storage_node(
    store: ZooKeeperStore, root: str, connect_string: str, *, lock_wait_seconds: float = 60.0
) -> None:
    """Forget the node, completely, also when only part of its entry is left.

    StorageNodeError when it is not known at all, still has partitions, or a partition's last store session
    still counts it among its replicas (its removal is not complete yet).
    """
    paths = ClusterPaths(root)
    for attempt in range(_ATTEMPTS):
        async with AdminLock(store, paths, wait_seconds=lock_wait_seconds) as lock:
            maps = await read_maps(store, paths)
            if not any(connect_string in known for known in (maps.groups, maps.partitions, maps.admin_ports)):
                raise StorageNodeError(f"{connect_string} is not a storage node of the cluster at {root}")
            if partitions := maps.partitions.get(connect_string):
                raise StorageNodeError(
                    f"{connect_string} still has partitions {', '.join(map(str, partitions))}: unassign them first"
                )
            await _check_unused(store, paths, connect_string)
            ops = maps.changes(
                paths,
                groups={node: group for node, group in maps.groups.items() if node != connect_string},
                partitions={node: held for node, held in maps.partitions.items() if node != connect_string},
                admin_ports={node: port for node, port in maps.admin_ports.items() if node != connect_string},
            )
            try:
                await lock.transaction(ops)
                return
            except VersionConflictError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        await asyncio.sleep(0)


async def check_unused(
    store: ZooKeeperStore, root: str, connect_string: str, *, lock_wait_seconds: float = 60.0
) -> None:
    """StorageNodeError unless ZooKeeper proves, now, that no partition needs what is on this node: none is
    assigned to it, and none counts it among the replicas of its last store session. Read under the admin
    lock, so not an old answer of a follower."""
    paths = ClusterPaths(root)
    async with AdminLock(store, paths, wait_seconds=lock_wait_seconds):
        maps = await read_maps(store, paths)
        if partitions := maps.partitions.get(connect_string):
            raise StorageNodeError(
                f"{connect_string} still has partitions {', '.join(map(str, partitions))}: unassign them first"
            )
        await _check_unused(store, paths, connect_string)


async def _check_unused(store: ZooKeeperStore, paths: ClusterPaths, connect_string: str) -> None:
    metadata = StoreMetadata(store, paths.root)
    names, _ = await store.get_children(paths.partitions)
    for partition_id in (int(name) for name in names if name.isdecimal()):
        state, _ = await metadata.read_partition(partition_id)
        if state is not None and connect_string in state.replicas:
            raise StorageNodeError(
                f"partition {partition_id} still counts {connect_string} among its replicas: "
                "wait until its servers have started a session without it"
            )
