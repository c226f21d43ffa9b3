"""Removing partitions from a node with their data, when the others are proven to do without (`waltz storage
remove-partition --delete-storage-files`).

A node deletes what it is asked to delete: it knows nothing of the other copies. So they are asked first, or
the copies of a majority could be deleted one after another while their store session continues: none of
them could be counted by the next recovery, which then waits forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from waltz_admin.dry_run import DryRunStore
from waltz_admin.errors import AdminError, StorageNodeError, UnsafeChangeError
from waltz_admin.lock import AdminLock
from waltz_admin.safety import AdminPortProbe, check_deletion, check_no_later
from waltz_admin.same_node import identity
from waltz_admin.storage_admin import admin_connection, chosen_ids
from waltz_admin.tree import NodeMaps, admin_endpoint, read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint


async def delete_copies(
    store: ZooKeeperStore,
    root: str,
    admin: Endpoint,
    partitions: Iterable[int],
    *,
    tls: TlsSettings,
    dry_run: bool = False,
) -> None:
    """Remove partitions from a node with their data, all of them or none: UnsafeChangeError unless it is
    proven, now and for each, that the others can do without (`safety.check_deletion`, rule A8).

    The admin lock is held, so nobody deletes another copy, or changes the replicas, meanwhile. `dry_run`: the
    same answer, and neither ZooKeeper nor the node is changed.
    """
    _, params = await read_params(store, root)
    chosen, paths = chosen_ids(partitions, params), ClusterPaths(root)
    if dry_run:
        store = DryRunStore(store)
    metadata = StoreMetadata(store, root)
    async with AdminLock(store, paths) as lock, admin_connection(admin, params, tls) as connection:
        maps = await read_maps(store, paths)
        probe = AdminPortProbe(dict(maps.admin_ports), params.cluster_key, params.num_partitions, tls)
        node = await _name_of(connection, maps, params, tls)
        probe.distinguish(node, connection)
        held = await connection.partition_status()
        for number in chosen:
            holders = [name for name, has in maps.partitions.items() if number in has]
            try:
                session_id = await check_deletion(metadata, probe, number, node, holders)
                if session_id is not None and number in held:
                    await check_no_later(connection, node, number, session_id)
            except UnsafeChangeError as error:
                raise UnsafeChangeError(
                    f"{error}. Nothing was deleted; pass --accept-data-loss if what only this copy holds may be lost"
                ) from None
        lock.check()
        if chosen and not dry_run:
            await connection.assign(chosen, False, delete_files=True)


async def _name_of(
    connection: StorageAdminConnection, maps: NodeMaps, params: StoreParams, tls: TlsSettings
) -> str:
    """The name under which ZooKeeper has the node at the other end, which may be connected to by another one;
    that of its admin port when ZooKeeper does not have it."""
    endpoints = {}
    for node, port in maps.admin_ports.items():
        with suppress(StorageNodeError):  # a name that is no host:port
            endpoints[node] = admin_endpoint(node, port)
    for node, endpoint in endpoints.items():
        if endpoint == connection.endpoint:
            return node

    async def same(endpoint: Endpoint) -> bool:
        try:
            async with admin_connection(endpoint, params, tls) as other:
                return identity(other) == identity(connection)
        except AdminError:
            return False  # one that is silent is another one

    found = await asyncio.gather(*map(same, endpoints.values()))
    return next(
        (node for node, it_is in zip(endpoints, found, strict=True) if it_is), str(connection.endpoint)
    )
