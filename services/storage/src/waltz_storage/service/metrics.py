"""The metrics of a storage node under the names of release 0.13.2 (docs/operations.md)."""

from __future__ import annotations

from collections.abc import Callable

from waltz_runtime.metrics import Counter, Meter, MetricsRegistry, Timer
from waltz_storage import __version__
from waltz_storage.engine.partition import Partition
from waltz_storage.engine.partition_info import Shown
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.requests import COUNTERS, DAMAGED_APPENDS

GROUP = "waltz-storage"


class PartitionMetrics:
    """Counters of one open partition."""

    __slots__ = ("append", "append_bytes", "append_latency", "counters", "damaged_appends")

    def __init__(
        self,
        append: Meter,
        append_bytes: Meter,
        append_latency: Timer,
        counters: dict[str, Counter],
        damaged_appends: Counter,
    ) -> None:
        self.append = append
        self.append_bytes = append_bytes
        self.append_latency = append_latency
        self.counters = counters
        self.damaged_appends = damaged_appends


class StorageMetrics:
    """Publishes a node's metrics; those of a partition live as long as it is open."""

    def __init__(self, registry: MetricsRegistry, manager: StorageManager) -> None:
        self._registry = registry
        self.partitions: dict[int, PartitionMetrics] = {}
        registry.gauge(f"{GROUP}.waltz-storage-num-partitions", lambda: manager.control.num_partitions)
        registry.gauge(f"{GROUP}.waltz-storage-partition-ids", lambda: sorted(manager.partitions))
        registry.gauge(f"{GROUP}.waltz-version-id", lambda: __version__)
        registry.gauge(f"{GROUP}.troubled-partitions", lambda: len(manager.problems()))

    def partition_opened(self, partition: Partition, queue_size: Callable[[], int]) -> None:
        """Gauges read what is public of a partition, and nothing here touches the disk."""
        prefix = f"{GROUP}.partition-{partition.partition_id}"
        gauge = self._registry.gauge

        def figure(name: str, of: Callable[[Shown], int]) -> None:
            def value() -> int | None:
                shown = partition.public
                return None if shown is None else of(shown)

            gauge(f"{prefix}.{name}", value)

        gauge(f"{prefix}.process-queue-size", queue_size)
        figure("session-id", lambda shown: shown.info.session_id)
        figure("low-water-mark", lambda shown: shown.info.low_water_mark)
        figure("local-low-water-mark", lambda shown: shown.info.local_low_water_mark)
        figure("flags", lambda shown: shown.info.flags)
        figure("sequence-number", lambda shown: shown.info.sequence)
        figure("max-transaction-id", lambda shown: shown.max_txid)
        figure("fence-session-id", lambda shown: shown.fence)
        figure("committed-transaction-id", lambda shown: partition.committed_of(shown.info, shown.max_txid))
        gauge(f"{prefix}.log-bytes", lambda: partition.log_bytes)
        self.partitions[partition.partition_id] = PartitionMetrics(
            self._registry.meter(f"{prefix}.append"),
            self._registry.meter(f"{prefix}.append-bytes"),
            self._registry.timer(f"{prefix}.append-latency"),
            {name: self._registry.counter(f"{prefix}.{name}") for name in COUNTERS.values()},
            self._registry.counter(f"{prefix}.{DAMAGED_APPENDS}"),
        )

    def partition_closed(self, partition_id: int) -> None:
        """The metrics of a partition disappear with it."""
        self.partitions.pop(partition_id, None)
        self._registry.remove_group(f"{GROUP}.partition-{partition_id}")
