"""The three ways metrics are written down."""

import asyncio
import json
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from waltz_runtime.meanings import Meaning, place_of
from waltz_runtime.metrics import MetricsRegistry
from waltz_runtime.slices import METRICS_PER_SLICE, TIMER_UNITS, Slices, at_once, between_turns

MEANINGS = {
    "session-id": Meaning("Last session."),
    "feeds-added": Meaning("Feeds that began.", "waltz_storage_feeds_begun", counts=True),
    "days-to-full": Meaning("Time until it is full.", "waltz_storage_time_to_full_seconds", scale=86_400),
    "waltz-storage-partition-ids": Meaning("Partitions.", "waltz_storage_held_partitions"),
}


def registry_with_everything() -> MetricsRegistry:
    registry = MetricsRegistry(lambda: 50.0, MEANINGS, {"role": "storage", "version": "1.2.3"})
    for pid in (3, 11):
        prefix = f"waltz-storage.partition-{pid}."
        registry.gauge(prefix + "session-id", (40 + pid).__int__)
        registry.counter(prefix + "record-request").inc(2)
        registry.meter(prefix + "append").mark(5)
        registry.timer(prefix + "append-latency").update(0.004)
    registry.gauge("waltz-storage.waltz-storage-partition-ids", lambda: [3, 11])
    registry.gauge("waltz-storage.waltz-version-id", lambda: 'a"\\b\n')
    registry.gauge("waltz-storage.is-closed", lambda: False)
    registry.gauge("waltz-storage.nothing", lambda: None)
    registry.gauge("waltz-storage.feeds-added", lambda: 4)
    registry.gauge("waltz-storage.days-to-full", lambda: 2)
    registry.gauge("waltz-storage.broken", lambda: 1 // 0)
    registry.gauge("waltz-storage.lag", lambda: float("inf"), labels={"replica": "a:1"})
    registry.gauge("waltz-storage.lag", lambda: 7, labels={"replica": "b:1"})
    return registry


def test_prometheus_text_parses_and_maps_names() -> None:
    text = registry_with_everything().to_prometheus()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    session = families["waltz_storage_session_id"]
    assert session.type == "gauge"
    assert {(s.labels["partition"], s.value) for s in session.samples} == {("3", 43.0), ("11", 51.0)}
    assert {s.value for s in families["waltz_storage_record_request"].samples} == {2.0}
    assert families["waltz_storage_append"].type == "counter"
    assert families["waltz_storage_append"].samples[0].name == "waltz_storage_append_total"
    latency = families["waltz_storage_append_latency_seconds"]
    assert latency.type == "histogram"
    third = {
        s.labels["le"]: s.value
        for s in latency.samples
        if s.labels.get("le") and s.labels["partition"] == "3"
    }
    assert (third["0.00390625"], third["0.0078125"], third["16.0"], third["+Inf"]) == (0, 1, 1, 1)
    assert families["waltz_storage_held_partitions"].samples[0].value == 2
    begun = families["waltz_storage_feeds_begun"]
    assert (begun.type, begun.samples[0].name, begun.samples[0].value) == (
        "counter",
        "waltz_storage_feeds_begun_total",
        4,
    )
    assert families["waltz_storage_time_to_full_seconds"].samples[0].value == 2 * 86_400
    assert families["waltz_build_info"].samples[0].labels == {"role": "storage", "version": "1.2.3"}
    assert families["waltz_storage_session_id"].documentation == "Last session."
    assert families["waltz_storage_append"].documentation == "Append."
    assert families["waltz_storage_waltz_version_id_info"].samples[0].labels == {"value": 'a"\\b\n'}
    assert families["waltz_storage_is_closed"].samples[0].value == 0
    assert [s.labels for s in families["waltz_storage_lag"].samples] == [{"replica": "b:1"}]
    assert "waltz_storage_broken" not in families
    assert text.count("# TYPE waltz_storage_session_id ") == 1


def test_names() -> None:
    assert place_of("waltz-storage.partition-3.session-id") == (
        "waltz_storage_session_id",
        {"partition": "3"},
        "session-id",
    )
    assert place_of("waltz-server.waltz-server-num-partitions") == (
        "waltz_server_num_partitions",
        {},
        "waltz-server-num-partitions",
    )
    assert place_of("waltz-server.partition-x.a") == ("waltz_server_partition_x_a", {}, "a")


def test_http_json_has_the_shape_of_0_13_2() -> None:
    shape = json.loads(registry_with_everything().to_json())
    assert list(shape) == ["version", "gauges", "counters", "histograms", "meters", "timers"]
    assert shape["version"] == "4.0.0"
    assert shape["histograms"] == {}
    gauges = shape["gauges"]
    assert gauges["waltz-storage.partition-3.session-id"] == {"value": 43}
    assert gauges["waltz-storage.waltz-storage-partition-ids"] == {"value": [3, 11]}
    assert gauges["waltz-storage.nothing"] == {"value": None}
    assert gauges["waltz-storage.broken"]["error"].startswith("ZeroDivisionError")
    assert gauges["waltz-storage.lag{replica=a:1}"] == {"value": None}
    assert shape["counters"]["waltz-storage.partition-3.record-request"] == {"count": 2}
    assert shape["meters"]["waltz-storage.partition-3.append"] == {
        "count": 5,
        "m15_rate": 0.0,
        "m1_rate": 0.0,
        "m5_rate": 0.0,
        "mean_rate": 0.0,
        "units": "events/second",
    }
    timer = shape["timers"]["waltz-storage.partition-3.append-latency"]
    assert list(timer) == [
        *("count", "max", "mean", "min", "p50", "p75", "p95", "p98", "p99", "p999", "stddev"),
        *("m15_rate", "m1_rate", "m5_rate", "mean_rate", "duration_units", "rate_units"),
    ]
    assert (timer["duration_units"], timer["rate_units"]) == ("seconds", "calls/second")


def test_pretty_json_is_the_same_json_indented() -> None:
    registry = registry_with_everything()
    assert json.loads(registry.to_json(pretty=True)) == json.loads(registry.to_json())
    assert "\n  " in registry.to_json(pretty=True)
    assert "\n" not in MetricsRegistry().to_json()


def test_admin_json_has_the_members_the_storage_tool_reads() -> None:
    text = registry_with_everything().to_admin_json()
    shape = json.loads(text)
    assert "\n" in text
    assert list(shape) == ["metrics", "gauges", "counters", "histograms", "meters", "timers", "ids"]
    assert shape["gauges"]["waltz-storage.waltz-storage-partition-ids"]["value"] == [3, 11]
    assert shape["metrics"]["waltz-storage.partition-3.session-id"] == {"value": 43}
    assert {
        "group": "waltz-storage.partition-3",
        "name": "session-id",
        "fullName": "waltz-storage.partition-3.session-id",
    } in shape["ids"]
    meter = shape["meters"]["waltz-storage.partition-3.append"]
    assert set(meter) == {"count", "fifteenMinuteRate", "fiveMinuteRate", "meanRate", "oneMinuteRate"}
    snapshot = shape["timers"]["waltz-storage.partition-3.append-latency"]["snapshot"]
    assert 3_800_000 < snapshot["median"] < 4_200_000
    assert {"values", "min", "max", "mean", "stdDev", "99thPercentile"} <= set(snapshot)


def test_graphite_lines_hold_numbers_only() -> None:
    lines = registry_with_everything().to_graphite("waltz", 77)
    assert "waltz.waltz-storage.partition-3.session-id 43 77" in lines
    assert "waltz.waltz-storage.is-closed 0 77" in lines
    assert "waltz.waltz-storage.partition-3.record-request.count 2 77" in lines
    assert any(line.startswith("waltz.waltz-storage.partition-3.append-latency.p99 ") for line in lines)
    assert not any("version-id" in line or "broken" in line or "units" in line for line in lines)


def a_thousand_partitions(read: Callable[[], object]) -> MetricsRegistry:
    registry = MetricsRegistry(lambda: 50.0)
    for partition in range(1000):
        registry.gauge(f"g.partition-{partition}.mark", read)
        registry.timer(f"g.partition-{partition}.latency").update(0.004)
    return registry


def graphite(registry: MetricsRegistry) -> Slices:
    return registry.graphite_slices("waltz", 77)


@pytest.mark.parametrize(
    "slices_of", [MetricsRegistry.prometheus_slices, MetricsRegistry.json_slices, graphite]
)
def test_a_slice_is_a_few_metrics_and_hardly_more_than_a_timer(
    slices_of: Callable[[MetricsRegistry], Slices],
) -> None:
    """The loop of a server with a thousand partitions is not held up for half a second by a scrape."""
    reads: list[int] = [0]

    def read() -> int:
        reads[-1] += 1
        return 7

    registry = a_thousand_partitions(read)
    for _ in slices_of(registry):
        reads.append(0)
    assert sum(reads) == 1000
    assert max(reads) <= METRICS_PER_SLICE // TIMER_UNITS + 1
    assert len(reads) >= 1000 * TIMER_UNITS // METRICS_PER_SLICE / 2


def test_a_partition_that_leaves_in_between_is_left_out() -> None:
    registry = a_thousand_partitions(lambda: 7)
    slices = registry.prometheus_slices()
    next(slices)
    registry.remove_group("g.partition-999")
    text = at_once(slices)
    assert 'g_mark{partition="998"} 7.0' in text
    assert 'partition="999"' not in text
    slices = graphite(registry)
    next(slices)
    registry.remove_group("g.partition-998")
    text = at_once(slices)
    assert "waltz.g.partition-997.mark 7 77\n" in text
    assert "partition-998" not in text


async def test_the_loop_runs_between_two_slices() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(others())
        text = await between_turns(a_thousand_partitions(lambda: 7).prometheus_slices())
        task.cancel()
    assert text.count("g_mark{") == 1000
    assert turns >= 200
