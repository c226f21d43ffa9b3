"""The Prometheus and OpenTelemetry observers of a client, against a fake cluster."""

import asyncio
import random

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from client_tests.helpers import Application, settings_for, until
from waltz_client import (
    ClientObserver,
    LockConflictError,
    LockId,
    Outcome,
    PendingAppend,
    Transaction,
    TransactionTooLargeError,
    WaltzClient,
)
from waltz_client._internal.append.transaction_monitor import Cause
from waltz_client.observer import outcome_word
from waltz_client.opentelemetry import OpenTelemetryObserver
from waltz_client.prometheus import PrometheusObserver
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate

LOCK = LockId("account", 1)


def observed(cluster: FakeCluster, observer: ClientObserver, callbacks: Application) -> WaltzClient:
    return WaltzClient.connect(
        settings_for(cluster, longWaitThreshold=250),
        callbacks,
        store=cluster.session(),
        random=random.Random(7),
        observers=[observer],
    )


async def some_of_everything(cluster: FakeCluster, client: WaltzClient, application: Application) -> None:
    """One append that is retried, one conflict, and a callback that raises once."""
    fates = iter([Fate.DROP])
    cluster.partitions[0].fate = lambda append: next(fates, Fate.COMMIT)
    application.fail[(0, 0)] = 1
    await client.append(partition=0, data=b"x", write_locks=[LOCK])
    with pytest.raises(LockConflictError):
        await client.append(partition=0, data=b"y", write_locks=[LOCK], as_of=-1)
    await until(lambda: application.applied and client.status().partitions[0].lag == 0)


async def test_prometheus_serves_what_happened_and_what_is_now(cluster: FakeCluster) -> None:
    registry, application = CollectorRegistry(), Application()
    metrics = PrometheusObserver(registry)
    async with observed(cluster, metrics, application) as client:
        metrics.watch(client, "ledger")
        await some_of_everything(cluster, client, application)
        value = registry.get_sample_value
        assert value("waltz_client_append_seconds_count", {"outcome": "committed"}) == 1
        assert value("waltz_client_append_seconds_count", {"outcome": "conflict"}) == 1
        assert value("waltz_client_append_seconds_count", {"outcome": "failed"}) == 1
        assert value("waltz_client_append_wait_seconds_count") == 3
        assert (value("waltz_client_append_wait_seconds_sum") or 0) > 0, "the first one waited for its mount"
        assert value("waltz_client_append_retries_total") == 1
        assert (value("waltz_client_append_bytes_total") or 0) > 3 * len(b"x")
        assert value("waltz_client_apply_seconds_count", {"outcome": "error"}) == 1
        assert value("waltz_client_apply_seconds_count", {"outcome": "applied"}) == 1
        assert value("waltz_client_connections") == 1
        first = {"client": "ledger", "partition": "0"}
        assert value("waltz_client_partition_available", first) == 1
        assert value("waltz_client_lag_transactions", first) == 0
        assert value("waltz_client_window_appends", first) == 0
        assert value("waltz_client_window_bytes", first) == 0
        assert b"waltz_client_lag_transactions{" in generate_latest(registry)
        client.append_nowait(partition=0, data=b"z", on_done=lambda _: None)
        assert value("waltz_client_append_wait_seconds_count") == 3, "this one cannot wait"
    assert value("waltz_client_connections") == 0
    assert value("waltz_client_partition_losses_total") == 2
    assert value("waltz_client_partition_available", first) is None, "it is closed"
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusObserver(registry)


def gauges(reader: InMemoryMetricReader) -> dict[str, dict[tuple[object, object], object]]:
    """The gauges of watched clients: values by client and partition."""
    found: dict[str, dict[tuple[object, object], object]] = {}
    for metric in metrics_of(reader):
        for point in metric.data.data_points:
            attributes = dict(point.attributes or {})
            if "waltz.client" in attributes and isinstance(point, NumberDataPoint):
                key = (attributes["waltz.client"], attributes["waltz.partition"])
                found.setdefault(metric.name, {})[key] = point.value
    return found


def metric_names(reader: InMemoryMetricReader) -> set[str]:
    return {metric.name for metric in metrics_of(reader)}


def metrics_of(reader: InMemoryMetricReader) -> list[Metric]:
    data = reader.get_metrics_data()
    assert data is not None
    return [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]


async def test_opentelemetry_gets_a_span_for_each_append_below_that_of_its_caller(
    cluster: FakeCluster,
) -> None:
    exporter, reader, application = InMemorySpanExporter(), InMemoryMetricReader(), Application()
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    observer = OpenTelemetryObserver(tracing, MeterProvider([reader]))
    async with observed(cluster, observer, application) as client:
        observer.watch(client, "ledger")
        with tracing.get_tracer("test").start_as_current_span("request") as request:
            await some_of_everything(cluster, client, application)
        found = gauges(reader)
    spans = exporter.get_finished_spans()
    appends = [span for span in spans if span.name == "waltz append"]
    attributes = [dict(span.attributes or {}) for span in appends]
    assert [one["waltz.outcome"] for one in attributes] == ["failed", "committed", "conflict"]
    assert attributes[1]["waltz.transaction"] == 0
    assert all(span.parent and span.parent.span_id == request.get_span_context().span_id for span in appends)
    assert [span.status.is_ok for span in appends] == [False, True, False]
    applies = [span for span in spans if span.name == "waltz apply"]
    assert [span.status.is_ok for span in applies] == [False, True]
    assert applies[0].events[0].name == "exception"
    assert found["waltz.client.partition.available"] == {("ledger", 0): 1, ("ledger", 1): 1}
    assert found["waltz.client.lag"][("ledger", 0)] == 0
    assert found["waltz.client.window.appends"][("ledger", 0)] == 0
    assert found["waltz.client.window.size"][("ledger", 0)] == 0
    assert not any(name.startswith("waltz.client.window") for name in gauges(reader)), "it is closed"
    assert metric_names(reader) == {
        "waltz.client.append.duration",
        "waltz.client.append.size",
        "waltz.client.append.retries",
        "waltz.client.append.wait",
        "waltz.client.apply.duration",
        "waltz.client.connections",
        "waltz.client.partition.losses",
    }


async def test_an_apply_that_was_cancelled_is_not_counted_as_applied(cluster: FakeCluster) -> None:
    class Slow(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await super().apply_transaction(transaction)
            await asyncio.sleep(60)

    registry, application = CollectorRegistry(), Slow()
    async with observed(cluster, PrometheusObserver(registry), application) as client:
        await client.append(partition=0, data=b"x")
        await until(lambda: application.applied)
    assert not registry.get_sample_value("waltz_client_apply_seconds_count", {"outcome": "applied"})
    assert registry.get_sample_value("waltz_client_apply_seconds_count", {"outcome": "error"}) == 1


async def test_a_client_that_is_not_entered_yet_leaves_the_page_as_it_is(cluster: FakeCluster) -> None:
    registry = CollectorRegistry()
    metrics = PrometheusObserver(registry)
    metrics.watch(observed(cluster, metrics, Application()))
    assert b"waltz_client_connections" in generate_latest(registry)


@pytest.mark.parametrize("cause", [Cause.TOO_OLD, Cause.FENCED, Cause.CLOSED])
def test_an_append_that_may_be_in_the_log_is_not_counted_as_failed(cause: Cause) -> None:
    append = PendingAppend(0, lambda _: None)
    append.cause = cause
    assert append.outcome is Outcome.UNKNOWN
    assert outcome_word(append) == "unknown"


def test_an_outcome_word_follows_the_error_of_a_named_producer() -> None:
    append = PendingAppend(0, lambda _: None)
    append.cause = Cause.TOO_LARGE
    assert outcome_word(append) == "failed"
    append.failure = TransactionTooLargeError("x", partition_id=0, outcome=Outcome.UNKNOWN)
    assert outcome_word(append) == "unknown"
