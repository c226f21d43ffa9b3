"""The figures of one partition, by the names of release 0.13.2 (group `waltz-server.partition-N`) and our
own."""

from __future__ import annotations

import time
from collections.abc import Callable

from waltz_runtime.instruments import Rates
from waltz_runtime.metrics import Counter, Meter, MetricsRegistry
from waltz_server.partition.append_stages import AppendStages

GROUP = "waltz-server"


def cpu_rates(registry: MetricsRegistry) -> Rates:
    """What this process uses of the processor, milliseconds per second."""
    return registry.rates_of(lambda: time.process_time_ns() // 1_000_000)


class PartitionMetrics:
    """Counters, meters and the timer of one partition object; gauges are added by the partition itself.

    Asking the registry again for a name gives the same instrument, so totals survive a partition that comes
    back unless `remove` was called in between.
    """

    def __init__(
        self, registry: MetricsRegistry, partition_id: int, stages: AppendStages | None = None
    ) -> None:
        """`stages`: the server's, which its partitions share."""
        self._registry = registry
        self._prefix = f"{GROUP}.partition-{partition_id}."
        self.received = registry.meter(self._prefix + "transaction")
        self.received_bytes = registry.meter(self._prefix + "append-bytes")
        self.committed = registry.meter(self._prefix + "successful-append")
        self.rejected = registry.meter(self._prefix + "rejected-append")
        self.fed = registry.meter(self._prefix + "fed-transaction")
        self.response_latency = registry.timer(self._prefix + "response-latency")
        self.stages = stages if stages is not None else AppendStages(registry, GROUP)
        self.append_dropped_full = registry.counter(self._prefix + "append-dropped-queue-full")
        self.append_dropped_fenced = registry.counter(self._prefix + "append-dropped-fenced")
        self.append_refused_view = registry.counter(self._prefix + "append-refused-view-ahead")
        self.append_dropped_foreign = registry.counter(self._prefix + "append-dropped-foreign-req-id")
        self.append_dropped_generation = registry.counter(self._prefix + "append-dropped-generation")
        self.dropped_not_mounted = registry.counter(self._prefix + "dropped-not-mounted")
        self.realtime_added = self._total("total-real-time-feed-context-added")
        self.realtime_removed = self._total("total-real-time-feed-context-removed")
        self.catch_up_added = self._total("total-catchup-feed-context-added")
        self.catch_up_removed = self._total("total-catchup-feed-context-removed")
        self.read_failures = registry.counter(self._prefix + "read-failures")
        self.feed_cache_miss = registry.meter(f"{GROUP}.feed-cache-miss")
        self.before_compression = registry.meter(f"{GROUP}.feed-bytes-before-compression")
        self.after_compression = registry.meter(f"{GROUP}.feed-bytes-after-compression")
        self.transaction_cache_miss = registry.meter(f"{GROUP}.transaction-cache-miss")

    def _total(self, name: str) -> Counter:
        """A count that is published as a gauge: 0.13.2 does so, and its tools look for it there."""
        total = Counter()
        self.gauge(name, lambda: total.count)
        return total

    def arrived(self, size_bytes: int) -> None:
        """An append, in the queue now."""
        self.received.count += 1
        self.received_bytes.count += size_bytes

    @property
    def causes(self) -> tuple[Meter, Meter, Meter]:
        """What the partition's work grows with: appends, their bytes, transactions sent to clients."""
        return self.received, self.received_bytes, self.fed

    def stored(self, now: float, arrived_at: float, handed_at: float, count: int) -> None:
        """A majority has `count` appends that arrived, and were handed to the store, at these times."""
        self.committed.count += count
        self.response_latency.update_many(now - arrived_at, count)
        self.stages.storage.add(now - handed_at, count)

    def gauge(self, name: str, read: Callable[[], object]) -> None:
        """Publish a value under this partition's group."""
        self._registry.gauge(self._prefix + name, read)

    def remove(self) -> None:
        """The partition has left this server: its figures go too."""
        self._registry.remove_group(self._prefix.removesuffix("."))
