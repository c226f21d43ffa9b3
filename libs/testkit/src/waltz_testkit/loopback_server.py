"""The client-facing half of a server on a loopback port, with in-memory stores and no ZooKeeper."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.producers import ZooKeeperProducers
from waltz_protocol.aio.channel import ChannelSettings
from waltz_protocol.aio.listener import Listener
from waltz_protocol.codec import CLIENT
from waltz_protocol.handshake import ZSTD_BLOCKS
from waltz_runtime.metrics import MetricsRegistry
from waltz_server.admin_rpc import AdminDesk
from waltz_server.connection import ClientConnection
from waltz_server.directory import DirectoryDesk
from waltz_server.partition.compressed_blocks import CompressedBlocks
from waltz_server.partition.feed_cache import FeedCache
from waltz_server.partition.metrics import cpu_rates
from waltz_server.partition.owned_partition import Partition, PartitionSettings
from waltz_server.partition.shared_caches import SharedCaches
from waltz_server.partition.transaction_cache import TransactionCache
from waltz_server.producers import ProducerDesk
from waltz_server.registry import PartitionRegistry
from waltz_testkit.client_peers import RawPeer
from waltz_testkit.fake_partition_store import FakeBackend


class LoopbackServer:
    """`async with LoopbackServer({0: 1}) as server` owns partition 0 in generation 1; `await server.peer()`
    connects."""

    def __init__(
        self,
        partitions: Mapping[int, int],
        *,
        num_partitions: int = 8,
        tls: ssl.SSLContext | None = None,
        settings: PartitionSettings | None = None,
        max_pending_bytes: int = 256 * 1024 * 1024,
        zookeeper: MemoryZooKeeper | None = None,
        compressed: CompressedBlocks | None = None,
    ) -> None:
        """`zookeeper`: where the named producers are, if several servers share them. `compressed`: of a
        server that compresses blocks for who asks for it."""
        self.backend = FakeBackend()
        self.metrics = MetricsRegistry(lambda: 0.0)
        self.listener = Listener()
        self.registry = PartitionRegistry(num_partitions, self._make_partition, self.listener.turns)
        self.admin = AdminDesk(self.registry, self._check, cpu_rates(self.metrics))
        self.check: Callable[[], Awaitable[dict[str, bool]]] = self.backend.check_connectivity
        self._partitions = dict(partitions)
        self._tls = tls
        self._settings = settings or PartitionSettings()
        self._max_pending_bytes = max_pending_bytes
        self._caches = SharedCaches(
            FeedCache(1 << 20), TransactionCache(1 << 20), compressed or CompressedBlocks()
        )
        self._features = (ZSTD_BLOCKS,) if compressed is not None else ()
        self._stack = AsyncExitStack()
        self.directory = DirectoryDesk(self.listener.turns, self._take_ids)
        self.zookeeper = (zookeeper or MemoryZooKeeper()).session()
        self.producers = ProducerDesk(
            ZooKeeperProducers(self.zookeeper, ClusterPaths("/loopback"), random.Random(0)), num_partitions
        )
        self.client_ids = 0
        """The last one that was given out."""

    async def _take_ids(self, count: int, _: float) -> range:
        first, self.client_ids = self.client_ids + 1, self.client_ids + count
        return range(first, self.client_ids + 1)

    async def _check(self) -> dict[str, bool]:
        return await self.check()

    def _make_partition(self, partition_id: int, generation: int) -> Partition:
        return Partition(
            partition_id,
            generation,
            make_store=self.backend.make_store,
            settings=self._settings,
            caches=self._caches,
            metrics=self.metrics,
            turns=self.listener.turns,
        )

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.listener)
        settings = ChannelSettings(
            CLIENT.magic, CLIENT.versions, "Waltz Server", max_frame_bytes=1 << 20, features=self._features
        )
        await self.listener.start(
            "127.0.0.1",
            0,
            settings,
            lambda: ClientConnection(
                self.registry,
                self.admin,
                max_pending_bytes=self._max_pending_bytes,
                directory=self.directory,
                producers=self.producers,
            ),
            self._tls,
        )
        await self._stack.enter_async_context(self.registry)
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        for desk in (self.admin, self.directory, self.producers):
            task = tasks.create_task(desk.run())
            self._stack.callback(task.cancel)
        self.registry.adopt(self._partitions)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def peer(self, *, version: int = 4, tls: ssl.SSLContext | None = None) -> RawPeer:
        """A raw client; closed with the server."""
        peer = await RawPeer.open(self.listener.port, version=version, tls=tls)
        self._stack.push_async_callback(peer.close)
        return peer
