"""A server: the shipped code, with the bounds of its replication core drawn by the seed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.sim.cluster.role import Role, Unexpected
from tests.sim.cluster.shape import SERVER_PORT, Shape
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.zookeeper import SimZooKeeper
from tests.sim.kernel.zookeeper_session import SimSession
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.codec import (
    NEWEST_CLIENT_VERSION,
    NEWEST_OF_0_13_2,
    NEWEST_STORAGE_VERSION,
    STORAGE_OF_0_13_2,
)
from waltz_server.quorum_backend import QuorumBackend
from waltz_server.server import WaltzServer
from waltz_server.settings import ServerSettings
from waltz_server.store.api import PartitionStore

CLUSTER_ROOT = "/waltz"


REPEAT_WINDOW = 40
"""Transactions: appends that are sent again late are older than that now and then."""


def _storage_version(newest: int) -> int:
    """What a server speaks with storage nodes that speaks up to this version with clients."""
    return NEWEST_STORAGE_VERSION if newest > NEWEST_OF_0_13_2 else STORAGE_OF_0_13_2


class ServerRole(Role):
    """One server."""

    def __init__(
        self, loop: SimLoop, name: str, unexpected: Unexpected, shape: Shape, zookeeper: SimZooKeeper
    ) -> None:
        super().__init__(loop, name, unexpected)
        self.server: WaltzServer | None = None
        self.session: SimSession | None = None
        self._evictions = 0
        self._saved_bytes = 0
        self._shape = shape
        self._zookeeper = zookeeper
        self._settings = ServerSettings.from_mapping(
            {
                "zookeeper.connectString": "zookeeper:2181",
                "zookeeper.sessionTimeout": int(shape.session_timeout_seconds * 1000),
                "cluster.root": CLUSTER_ROOT,
                "server.port": SERVER_PORT,
                "server.bind.host": name,
                "server.ssl.enabled": False,
                **dict(shape.server_keys),
            }
        )

    async def main(self, stop: asyncio.Event) -> None:
        """As `waltz_server.__main__.serve`, without TLS and HTTP."""
        rng = self.loop.rng(f"{self.name}/{self.incarnation}")
        bounds = dict(self._shape.store_bounds)
        newest = self._newest_version()
        store_settings = replace(
            self._settings.store_settings(), newest_version=_storage_version(newest), **bounds
        )

        def make_backend(zookeeper: ZooKeeperStore, params: StoreParams) -> QuorumBackend:
            metadata = StoreMetadata(zookeeper, CLUSTER_ROOT)
            return QuorumBackend(metadata=metadata, params=params, tls=None, settings=store_settings, rng=rng)

        session = self.session = await self._zookeeper.connect(self._shape.session_timeout_seconds)
        try:
            watches = self._settings.peer_watch and newest > NEWEST_OF_0_13_2
            settings = self._settings.model_copy(
                update={
                    "max_protocol_version": newest,
                    "peer_watch": watches,
                    "repeat_window": REPEAT_WINDOW,
                    "feed_compression": self._compression(),
                }
            )
            server = self.server = WaltzServer(
                settings, zookeeper=session, make_backend=make_backend, rng=rng
            )
            await server.serve(stop)
        finally:
            await session.close()

    def _compression(self) -> str:
        """In this life: most compress blocks for those who ask."""
        rng = self.loop.rng(f"{self.name}/{self.incarnation}/compression")
        return "none" if rng.random() < 0.2 else "zstd"

    def _newest_version(self) -> int:
        """Of the client-server protocol, in this life: a rolling upgrade and its way back change it between
        two of them."""
        rng = self.loop.rng(f"{self.name}/{self.incarnation}/version")
        if not self._shape.always_ours(self.name) and rng.random() < self._shape.old_servers:
            return NEWEST_OF_0_13_2
        return NEWEST_CLIENT_VERSION

    def served(self) -> list[int]:
        """Partitions that are open to clients now."""
        try:
            open_ones = self.server.registry.partitions if self.server is not None else {}
        except RuntimeError:
            return []
        return sorted(partition_id for partition_id, one in open_ones.items() if not one.closed)

    def store(self, partition: int) -> PartitionStore | None:
        """The store of a partition that is its own now."""
        try:
            owned = self.server.registry.partitions.get(partition) if self.server is not None else None
        except RuntimeError:
            return None
        return None if owned is None else owned.store

    def committed_mark(self, partition: int) -> int | None:
        """The largest id that this server takes for committed in a partition of its own."""
        store = self.store(partition)
        return None if store is None else store.high_water_mark

    def evicted(self) -> int:
        """How many other servers this one has evicted, in all its lives."""
        return self._evictions + (self.server.evictions if self.server is not None else 0)

    def saved_bytes(self) -> int:
        """What compressed blocks have saved, in all its lives."""
        if self.server is None:
            return self._saved_bytes
        before, after = (
            self.server.metrics.meter(f"waltz-server.feed-bytes-{side}-compression").count
            for side in ("before", "after")
        )
        return self._saved_bytes + before - after

    def died(self) -> None:
        """Whoever looks at the server's memory now would see a ghost."""
        self._evictions = self.evicted()
        self._saved_bytes = self.saved_bytes()
        self.server = None
        self.session = None
