"""Prometheus metrics of clients: the extra `prometheus`.

```python
metrics = PrometheusObserver()
async with WaltzClient.connect("client.yaml", observers=[metrics]) as client:
    metrics.watch(client)
```

One observer serves all clients of a process. What is served where is up to the application
(`prometheus_client.start_http_server`, or the page that it has already).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from waltz_protocol.extras import with_extra

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    raise ImportError(
        f"waltz_client.prometheus needs the Prometheus client: {with_extra('waltz-client', 'prometheus')}"
    ) from None

from waltz_client._internal.append.pending import PendingAppend
from waltz_client.errors import AppendError
from waltz_client.observer import ClientObserver, PartitionStatus, Watched, WatchedClients, outcome_word
from waltz_protocol.types import Endpoint

SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_Gauge = tuple[str, str, Callable[[PartitionStatus], int | None]]
_GAUGES: Sequence[_Gauge] = (
    (
        "waltz_client_partition_available",
        "1 while appends to the partition can be sent, else 0.",
        lambda one: int(one.available),
    ),
    (
        "waltz_client_window_appends",
        "Appends that were sent and have no outcome yet.",
        lambda one: one.appends,
    ),
    (
        "waltz_client_window_bytes",
        "Bytes of the frames of appends that were sent and have no outcome yet.",
        lambda one: one.append_bytes,
    ),
    (
        "waltz_client_lag_transactions",
        "Transactions known to be committed that the callbacks have not applied yet.",
        lambda one: one.lag,
    ),
)


class PrometheusObserver(ClientObserver, Collector):
    """See the module. `buckets`: of the histograms, in seconds. Every method may be called on any loop."""

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, buckets: Sequence[float] = SECONDS_BUCKETS
    ) -> None:
        """ValueError when the registry has these metrics already: make one observer per registry."""
        self._watched = WatchedClients()
        self._append_seconds = Histogram(
            "waltz_client_append_seconds",
            "From the sending of an append to its outcome (committed, conflict, failed, unknown).",
            ["outcome"],
            buckets=buckets,
            registry=registry,
        )
        self._append_wait_seconds = Histogram(
            "waltz_client_append_wait_seconds",
            "From the call of an append, or the beginning of its retry, to its sending.",
            buckets=buckets,
            registry=registry,
        )
        self._append_bytes = Counter(
            "waltz_client_append_bytes", "Bytes of the frames of appends that were sent.", registry=registry
        )
        self._retries = Counter(
            "waltz_client_append_retries",
            "Appends that failed for certain and were sent again.",
            registry=registry,
        )
        self._apply_seconds = Histogram(
            "waltz_client_apply_seconds",
            "Duration of one apply_transaction (applied, error).",
            ["outcome"],
            buckets=buckets,
            registry=registry,
        )
        self._connections = Gauge(
            "waltz_client_connections",
            "Connections for appends and feeds that are ready.",
            registry=registry,
        )
        self._connect_failures = Counter(
            "waltz_client_connect_failures",
            "Connections that could not be made, each reason once in a row.",
            registry=registry,
        )
        self._losses = Counter(
            "waltz_client_partition_losses",
            "How often a partition became unavailable to a client.",
            registry=registry,
        )
        registry.register(self)

    def watch(self, client: Watched, name: str = "") -> None:
        """Serve the gauges of this client (label `client`), in place of an earlier one of this name, until it
        is closed."""
        self._watched.watch(client, name)

    # -- asked by the registry, on any thread ------------------------------------------------------------

    def describe(self) -> Iterable[Metric]:
        """The names of the gauges, so that a second observer in a registry is refused."""
        return [GaugeMetricFamily(name, help_text) for name, help_text, _ in _GAUGES]

    def collect(self) -> Iterable[Metric]:
        """What the watched clients report now."""
        families = [
            (GaugeMetricFamily(name, help_text, labels=["client", "partition"]), value)
            for name, help_text, value in _GAUGES
        ]
        for name, one in self._watched.partitions():
            for family, value_of in families:
                value = value_of(one)
                if value is not None:
                    family.add_metric([name, str(one.partition)], value)
        return [family for family, _ in families]

    # -- ClientObserver ----------------------------------------------------------------------------------

    def connected(self, server: Endpoint) -> None:
        """See ClientObserver."""
        self._connections.inc()

    def disconnected(self, server: Endpoint, reason: str) -> None:
        """See ClientObserver."""
        self._connections.dec()

    def connect_failed(self, server: Endpoint, reason: str) -> None:
        """See ClientObserver."""
        self._connect_failures.inc()

    def unavailable(self, partition: int, reason: str) -> None:
        """See ClientObserver."""
        self._losses.inc()

    def append_waited(self, partition: int, seconds: float) -> None:
        """See ClientObserver."""
        self._append_wait_seconds.observe(seconds)

    def append_sent(self, partition: int, size_bytes: int) -> float:
        """See ClientObserver."""
        self._append_bytes.inc(size_bytes)
        return time.perf_counter()

    def append_ended(self, sent: object, append: PendingAppend) -> None:
        """See ClientObserver."""
        if isinstance(sent, float):
            self._append_seconds.labels(outcome_word(append)).observe(time.perf_counter() - sent)

    def append_retried(self, partition: int, error: AppendError) -> None:
        """See ClientObserver."""
        self._retries.inc()

    def apply_started(self, partition: int, transaction_id: int) -> float:
        """See ClientObserver."""
        return time.perf_counter()

    def apply_ended(
        self, started: object, partition: int, transaction_id: int, error: Exception | None
    ) -> None:
        """See ClientObserver."""
        if isinstance(started, float):
            word = "applied" if error is None else "error"
            self._apply_seconds.labels(word).observe(time.perf_counter() - started)
