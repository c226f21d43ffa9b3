"""Seeds and changes a local cluster with `waltz_admin`, the way an administrator would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from waltz_admin import assignments, nodes, seeding, storage_admin
from waltz_admin.errors import UnsafeChangeError
from waltz_cluster import zk_client
from waltz_cluster.config.settings import CliSettings
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint
from waltz_tools.errors import LocalClusterError
from waltz_tools.local.configs import CLUSTER_NAME

_SETTLE_SECONDS = 60.0
_POLL_SECONDS = 0.1


class ClusterAdmin:
    """The administrator of one local cluster. Every step can be repeated after a crash."""

    def __init__(self, store: ZooKeeperStore, root: str, tls: TlsSettings) -> None:
        self._store = store
        self._root = root
        self._tls = tls

    async def create(self, partitions: int, recorded_key: str | None) -> str:
        """Create the cluster (nothing when it is there); its key. A recorded key must be found again, never
        replaced."""
        result = await seeding.create(
            self._store,
            self._root,
            CLUSTER_NAME,
            partitions,
            recorded_cluster_key=UUID(recorded_key) if recorded_key else None,
            exist_ok=True,
        )
        return str(result.params.cluster_key)

    async def add_node(self, endpoint: Endpoint, admin_port: int, group: int, *, assign: bool) -> None:
        """Make a node known in a group of its own; with `assign`, with a replica of every partition."""
        await nodes.add_storage_node(self._store, self._root, str(endpoint), admin_port, group)
        if assign:
            await assignments.auto_assign(self._store, self._root, group, tls=self._tls)

    async def sync_partitions(self) -> None:
        """Assign every node its partitions."""
        report = await storage_admin.sync_partitions(self._store, self._root, tls=self._tls)
        if not report.complete:
            raise LocalClusterError("; ".join(f"{node}: {reason}" for node, reason in report.failed.items()))

    async def join_node(self, endpoint: Endpoint, admin_port: int, group: int) -> None:
        """Give a running new node a replica of every partition: first the node is informed, then the servers
        (through ZooKeeper), so that they find it ready."""
        await self.add_node(endpoint, admin_port, group, assign=False)
        partitions = range((await StoreMetadata(self._store, self._root).store_params()).num_partitions)
        admin = Endpoint(endpoint.host, admin_port)
        await storage_admin.set_assignment(self._store, self._root, admin, partitions, True, tls=self._tls)
        async with asyncio.timeout(_SETTLE_SECONDS):
            while True:
                try:
                    await assignments.auto_assign(
                        self._store, self._root, group, tls=self._tls, allow_pause=True
                    )
                    return
                except UnsafeChangeError:
                    # A partition is between two store sessions, or an earlier change is not complete yet.
                    await asyncio.sleep(_POLL_SECONDS)

    async def remove_node(self, endpoint: Endpoint, admin_port: int) -> None:
        """Take all replicas of a node away, wait until servers work without them, then forget the node."""
        metadata = StoreMetadata(self._store, self._root)
        partitions = range((await metadata.store_params()).num_partitions)
        name = str(endpoint)
        async with asyncio.timeout(_SETTLE_SECONDS):
            while True:
                try:
                    await assignments.unassign(
                        self._store, self._root, partitions, name, tls=self._tls, keep_group_copy=False
                    )
                    break
                except UnsafeChangeError:
                    await asyncio.sleep(_POLL_SECONDS)
            for partition in partitions:
                while name in await _replicas(metadata, partition):
                    await asyncio.sleep(_POLL_SECONDS)
        await storage_admin.set_assignment(
            self._store, self._root, Endpoint(endpoint.host, admin_port), partitions, False, tls=self._tls
        )
        await nodes.remove_storage_node(self._store, self._root, name)


async def _replicas(metadata: StoreMetadata, partition: int) -> frozenset[str]:
    value, _ = await metadata.read_partition(partition)
    return frozenset() if value is None else frozenset(value.replicas)


@asynccontextmanager
async def open_admin(config: Path) -> AsyncIterator[ClusterAdmin]:
    """Connect with the configuration file that the cluster rendered."""
    settings = CliSettings.from_file(config)
    store = await zk_client.connect(settings)
    try:
        yield ClusterAdmin(store, settings.cluster_root, settings.tls_settings("ssl"))
    finally:
        await store.close()
