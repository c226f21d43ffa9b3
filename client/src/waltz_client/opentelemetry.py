"""OpenTelemetry spans and metrics of clients: the extra `opentelemetry`.

```python
telemetry = OpenTelemetryObserver()
async with WaltzClient.connect("client.yaml", observers=[telemetry]) as client:
    telemetry.watch(client)
```

A span `waltz append` lasts from the sending of an append to its outcome, below the span in which it was made;
a span `waltz apply` lasts as long as one `apply_transaction`. Only the API is needed here: where the data go
is decided by the SDK that the application sets up, without one they go nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from waltz_protocol.extras import with_extra

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ModuleNotFoundError:
    raise ImportError(
        f"waltz_client.opentelemetry needs the OpenTelemetry API: {with_extra('waltz-client', 'opentelemetry')}"
    ) from None

from waltz_client._internal.append.pending import PendingAppend
from waltz_client.errors import AppendError
from waltz_client.observer import ClientObserver, PartitionStatus, Watched, WatchedClients, outcome_word
from waltz_protocol.types import Endpoint

SCOPE = "waltz_client"

_Gauge = tuple[str, str, str, Callable[[PartitionStatus], int | None]]
_GAUGES: Sequence[_Gauge] = (
    (
        "waltz.client.partition.available",
        "1",
        "1 while appends to the partition can be sent, else 0.",
        lambda one: int(one.available),
    ),
    (
        "waltz.client.window.appends",
        "{append}",
        "Appends that were sent and have no outcome yet.",
        lambda one: one.appends,
    ),
    (
        "waltz.client.window.size",
        "By",
        "Bytes of the frames of appends that were sent and have no outcome yet.",
        lambda one: one.append_bytes,
    ),
    (
        "waltz.client.lag",
        "{transaction}",
        "Transactions known to be committed that the callbacks have not applied yet.",
        lambda one: one.lag,
    ),
)


class OpenTelemetryObserver(ClientObserver):
    """See the module. Without providers: the global ones."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._append_seconds = meter.create_histogram(
            "waltz.client.append.duration", "s", "From the sending of an append to its outcome."
        )
        self._append_wait_seconds = meter.create_histogram(
            "waltz.client.append.wait",
            "s",
            "From the call of an append, or the beginning of its retry, to its sending.",
        )
        self._append_bytes = meter.create_counter(
            "waltz.client.append.size", "By", "Bytes of the frames of appends that were sent."
        )
        self._retries = meter.create_counter(
            "waltz.client.append.retries", "{append}", "Appends that failed for certain and were sent again."
        )
        self._apply_seconds = meter.create_histogram(
            "waltz.client.apply.duration", "s", "Duration of one apply_transaction."
        )
        self._connections = meter.create_up_down_counter(
            "waltz.client.connections", "{connection}", "Connections for appends and feeds that are ready."
        )
        self._losses = meter.create_counter(
            "waltz.client.partition.losses", "{loss}", "How often a partition became unavailable to a client."
        )
        self._watched = WatchedClients()
        for name, unit, description, value_of in _GAUGES:
            meter.create_observable_gauge(name, [self._observed(value_of)], unit, description)

    def watch(self, client: Watched, name: str = "") -> None:
        """Report the gauges of this client (attribute `waltz.client`), in place of an earlier one of this
        name, until it is closed."""
        self._watched.watch(client, name)

    def _observed(
        self, value_of: Callable[[PartitionStatus], int | None]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for name, one in self._watched.partitions():
                value = value_of(one)
                if value is not None:
                    yield Observation(value, {"waltz.client": name, "waltz.partition": one.partition})

        return observe

    def connected(self, server: Endpoint) -> None:
        """See ClientObserver."""
        self._connections.add(1, {"server.address": server.host, "server.port": server.port})

    def disconnected(self, server: Endpoint, reason: str) -> None:
        """See ClientObserver."""
        self._connections.add(-1, {"server.address": server.host, "server.port": server.port})

    def unavailable(self, partition: int, reason: str) -> None:
        """See ClientObserver."""
        self._losses.add(1, {"waltz.partition": partition})

    def append_waited(self, partition: int, seconds: float) -> None:
        """See ClientObserver."""
        self._append_wait_seconds.record(seconds)

    def append_sent(self, partition: int, size_bytes: int) -> tuple[Span, float]:
        """See ClientObserver."""
        self._append_bytes.add(size_bytes)
        attributes = {"waltz.partition": partition, "waltz.append.size": size_bytes}
        span = self._tracer.start_span("waltz append", kind=SpanKind.PRODUCER, attributes=attributes)
        return span, time.perf_counter()

    def append_ended(self, sent: object, append: PendingAppend) -> None:
        """See ClientObserver."""
        if not isinstance(sent, tuple):
            return
        span, begun = sent
        outcome = {"waltz.outcome": outcome_word(append)}
        self._append_seconds.record(time.perf_counter() - begun, outcome)
        span.set_attributes(outcome)
        if append.committed:
            span.set_attribute("waltz.transaction", append.transaction_id)
        else:
            span.set_status(Status(StatusCode.ERROR, str(append.error)))
        span.end()

    def append_retried(self, partition: int, error: AppendError) -> None:
        """See ClientObserver."""
        self._retries.add(1)

    def apply_started(self, partition: int, transaction_id: int) -> tuple[Span, float]:
        """See ClientObserver."""
        attributes = {"waltz.partition": partition, "waltz.transaction": transaction_id}
        span = self._tracer.start_span("waltz apply", kind=SpanKind.CONSUMER, attributes=attributes)
        return span, time.perf_counter()

    def apply_ended(
        self, started: object, partition: int, transaction_id: int, error: Exception | None
    ) -> None:
        """See ClientObserver."""
        if not isinstance(started, tuple):
            return
        span, begun = started
        self._apply_seconds.record(
            time.perf_counter() - begun, {"waltz.outcome": "applied" if error is None else "error"}
        )
        if error is not None:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()
