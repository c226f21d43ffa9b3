"""The partitions of one server, on the storage nodes of a fake cluster."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server_tests.store.fakes import NAMES, PARTITION, ROOT, Cluster, FakeLink
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_protocol.errors import ConnectError
from waltz_protocol.types import Endpoint
from waltz_runtime.metrics import MetricsRegistry
from waltz_server.partition.feed_cache import FeedCache
from waltz_server.partition.owned_partition import Partition, PartitionSettings
from waltz_server.partition.shared_caches import SharedCaches
from waltz_server.partition.transaction_cache import TransactionCache
from waltz_server.registry import PartitionRegistry
from waltz_server.store.api import PartitionStore, StoreListener, StoreSettings
from waltz_server.store.quorum_store import QuorumPartitionStore
from waltz_server.store.replica_connection import ReplicaDirectory, ReplicaLink

SETTINGS = StoreSettings(idle_check_interval_ms=3_600_000)


@asynccontextmanager
async def registry_on(
    cluster: Cluster, seed: int, *, lock_table_size: int = 64
) -> AsyncIterator[PartitionRegistry]:
    """It can own `PARTITION`."""

    async def open_link(endpoint: Endpoint) -> ReplicaLink:
        node = cluster.nodes[str(endpoint)]
        if not node.up:
            raise ConnectError("connection refused")
        return FakeLink(node, SETTINGS.request_timeout_seconds)

    rng = random.Random(seed)
    directory = ReplicaDirectory(open_link, settings=SETTINGS, rng=rng)
    metadata = StoreMetadata(cluster.zk.session(), ROOT)

    def make_store(partition_id: int, generation: int, listener: StoreListener) -> PartitionStore:
        return QuorumPartitionStore(
            partition_id,
            generation,
            directory=directory,
            metadata=metadata,
            settings=SETTINGS,
            listener=listener,
            rng=rng,
            replicas=NAMES,
        )

    def make_partition(partition_id: int, generation: int) -> Partition:
        return Partition(
            partition_id,
            generation,
            make_store=make_store,
            settings=PartitionSettings(lock_table_size=lock_table_size),
            caches=SharedCaches(FeedCache(200_000), TransactionCache(50_000)),
            metrics=MetricsRegistry(lambda: 0.0),
        )

    async with PartitionRegistry(PARTITION + 1, make_partition) as registry:
        yield registry
    await directory.close()
