"""The real stores behind a server: storage connections, partition metadata, replica assignments."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from waltz_cluster.cluster_params import patiently
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import ReplicaAssignments, StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import ClientTls, client_context
from waltz_runtime.certificates import follow, publish_expiry
from waltz_runtime.metrics import MetricsRegistry
from waltz_server.partition.metrics import GROUP
from waltz_server.settings import ServerSettings
from waltz_server.store.api import PartitionStore, StoreListener, StoreSettings
from waltz_server.store.quorum_store import QuorumPartitionStore
from waltz_server.store.replica_connection import ReplicaDirectory

log = structlog.get_logger(__name__)


class QuorumBackend:
    """Implements `waltz_server.backend.StoreBackend` on storage nodes and ZooKeeper."""

    def __init__(
        self,
        *,
        metadata: StoreMetadata,
        params: StoreParams,
        tls: ClientTls | None,
        settings: StoreSettings,
        rng: random.Random,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._rng = rng
        self._tls = tls
        self._assignments = ReplicaAssignments()
        self._on_replicas_changed: Callable[[], None] | None = None
        self._directory = ReplicaDirectory.for_cluster(
            cluster_key=params.cluster_key,
            num_partitions=params.num_partitions,
            tls=tls,
            settings=settings,
            rng=rng,
        )

    def make_store(self, partition_id: int, generation: int, listener: StoreListener) -> PartitionStore:
        """A store that does nothing before its `run`."""
        return QuorumPartitionStore(
            partition_id,
            generation,
            directory=self._directory,
            metadata=self._metadata,
            settings=self._settings,
            listener=listener,
            rng=self._rng,
            replicas=self.replicas_of(partition_id),
        )

    def replicas_of(self, partition_id: int) -> tuple[str, ...]:
        """Storage nodes assigned to the partition."""
        return self._assignments.replicas_of(partition_id)

    async def check_connectivity(self) -> dict[str, bool]:
        """All storage nodes of the cluster, those without partitions included."""
        return await self._directory.check_connectivity(self._assignments.nodes)

    async def start(self, on_replicas_changed: Callable[[], None]) -> None:
        """Read the assignments once, so that the first stores know their replicas."""
        self._assignments = await patiently(self._metadata.replica_assignments)
        self._on_replicas_changed = on_replicas_changed

    async def run(self) -> None:
        """Follow the assignments until cancelled; errors of ZooKeeper are retried, the last known ones stay
        in use."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._directory.idle_check.run())
            if self._tls is not None:
                tasks.create_task(follow(self._tls))
            await self._metadata.watch_replica_assignments(self._changed).run()

    def _changed(self, assignments: ReplicaAssignments) -> None:
        if assignments == self._assignments:
            return
        log.info("replica assignments changed", nodes=sorted(assignments.nodes))
        self._assignments = assignments
        if self._on_replicas_changed is not None:
            self._on_replicas_changed()

    async def close(self) -> None:
        """Close all storage connections."""
        await self._directory.close()


def quorum_backend(
    settings: ServerSettings, rng: random.Random, metrics: MetricsRegistry | None = None
) -> Callable[[ZooKeeperStore, StoreParams], QuorumBackend]:
    """What `WaltzServer` calls once the parameters of the cluster are known. TlsSettingsError comes now, not
    then."""
    tls = client_context(settings.storage_facing_tls())
    if metrics is not None:
        publish_expiry(metrics, f"{GROUP}.storage-tls", tls)
    store_settings = settings.store_settings()

    def make(zookeeper: ZooKeeperStore, params: StoreParams) -> QuorumBackend:
        metadata = StoreMetadata(zookeeper, settings.cluster_root)
        return QuorumBackend(metadata=metadata, params=params, tls=tls, settings=store_settings, rng=rng)

    return make
