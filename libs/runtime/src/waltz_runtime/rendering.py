"""How metrics are written down: HTTP JSON of release 0.13.2, admin port JSON, Prometheus text (names and
help: `meanings`), Graphite lines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from waltz_runtime.instruments import HISTOGRAM_BOUNDS, QUANTILES, Counter, Gauge, Meter, Metric, Timer
from waltz_runtime.meanings import Meaning, Meanings, place_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as MetricFamily

_QUANTILE_NAMES = {0.5: "p50", 0.75: "p75", 0.95: "p95", 0.98: "p98", 0.99: "p99", 0.999: "p999"}
_ADMIN_QUANTILE_NAMES = {
    0.5: "median",
    0.75: "75thPercentile",
    0.95: "95thPercentile",
    0.98: "98thPercentile",
    0.99: "99thPercentile",
    0.999: "999thPercentile",
}
BUILD_INFO = "waltz_build_info"
BUILD_INFO_HELP = "1, with role and version of the program as labels."

Json = dict[str, object]
Metrics = Mapping[str, Metric]


def http_json(metrics: Metrics, now: float, *, pretty: bool = False) -> str:
    """Members version, gauges, counters, histograms, meters, timers; rates per second, durations in
    seconds."""
    members: dict[str, Json] = {"gauges": {}, "counters": {}, "histograms": {}, "meters": {}, "timers": {}}
    for name, metric in sorted(metrics.items()):
        members[_kind(metric)][name] = _http_value(metric, now)
    return json.dumps({"version": "4.0.0", **members}, indent=2 if pretty else None, default=str)


def admin_json(metrics: Metrics, now: float) -> str:
    """Members metrics, gauges, counters, histograms, meters, timers, ids; durations in nanoseconds;
    indented."""
    kinds: dict[str, Json] = {"gauges": {}, "counters": {}, "histograms": {}, "meters": {}, "timers": {}}
    by_name: Json = {}
    ids: list[Json] = []
    for name, metric in sorted(metrics.items()):
        value = _admin_value(metric, now)
        by_name[name] = kinds[_kind(metric)][name] = value
        group, _, short = name.rpartition(".")
        ids.append({"group": group, "name": short, "fullName": name})
    return json.dumps({"metrics": by_name, **kinds, "ids": ids}, indent=2, default=str)


def prometheus_text(metrics: Metrics, meanings: Meanings, build: Mapping[str, str]) -> str:
    """Prometheus text format 0.0.4, one family per name whatever the number of partitions."""
    collector = CollectorRegistry(auto_describe=False)
    collector.register(_Families(metrics, meanings, build))
    return generate_latest(collector).decode()


def graphite_lines(metrics: Metrics, now: float, prefix: str, timestamp_seconds: int) -> list[str]:
    """Lines `path value timestamp` of the plaintext protocol; only numbers have a line."""
    lines: list[str] = []
    for name, metric in sorted(metrics.items()):
        path = f"{prefix}.{name}" if prefix else name
        for field, value in _numbers(metric, now):
            lines.append(f"{path}{field} {value} {timestamp_seconds}")
    return lines


def _kind(metric: Metric) -> str:
    if isinstance(metric, Gauge):
        return "gauges"
    if isinstance(metric, Counter):
        return "counters"
    return "meters" if isinstance(metric, Meter) else "timers"


def _gauge_json(gauge: Gauge) -> Json:
    value, error = gauge.value()
    return {"value": plain(value)} if error is None else {"error": error}


def plain(value: object) -> object:
    """`value` as JSON can carry it: no infinite numbers, text keys, lists for sets and tuples."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(v) for v in value), key=str)
    return value


def _http_rates(metric: Meter | Timer, now: float) -> Json:
    rates = metric.rates
    mean = rates.mean(now, metric.count)
    return {"m15_rate": rates.m15, "m1_rate": rates.m1, "m5_rate": rates.m5, "mean_rate": mean}


def _http_value(metric: Metric, now: float) -> Json:
    if isinstance(metric, Gauge):
        return _gauge_json(metric)
    if isinstance(metric, Counter):
        return {"count": metric.count}
    if isinstance(metric, Meter):
        return {"count": metric.count, **_http_rates(metric, now), "units": "events/second"}
    shot = metric.snapshot()
    return {
        "count": metric.count,
        "max": shot.max,
        "mean": shot.mean,
        "min": shot.min,
        **{_QUANTILE_NAMES[q]: shot.quantiles[q] for q in QUANTILES},
        "stddev": shot.stddev,
        **_http_rates(metric, now),
        "duration_units": "seconds",
        "rate_units": "calls/second",
    }


def _admin_value(metric: Metric, now: float) -> Json:
    if isinstance(metric, Gauge):
        return _gauge_json(metric)
    if isinstance(metric, Counter):
        return {"count": metric.count}
    value: Json = {
        "count": metric.count,
        "fifteenMinuteRate": metric.rates.m15,
        "fiveMinuteRate": metric.rates.m5,
        "meanRate": metric.rates.mean(now, metric.count),
        "oneMinuteRate": metric.rates.m1,
    }
    if isinstance(metric, Timer):
        shot = metric.snapshot()
        nanos = 1e9
        value["snapshot"] = {
            "values": [],
            "min": round(shot.min * nanos),
            "max": round(shot.max * nanos),
            "mean": shot.mean * nanos,
            "stdDev": shot.stddev * nanos,
            **{_ADMIN_QUANTILE_NAMES[q]: shot.quantiles[q] * nanos for q in QUANTILES},
        }
    return value


def _numbers(metric: Metric, now: float) -> Iterator[tuple[str, float]]:
    """Field suffix (empty for a gauge) and number."""
    if isinstance(metric, Gauge):
        value, _ = metric.value()
        number = _number(value)
        if number is not None:
            yield "", number
        return
    for field, value in _http_value(metric, now).items():
        if isinstance(value, int | float):
            yield f".{field}", value


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return None


class _Families:
    """Collector that groups the metrics of a registry into Prometheus families."""

    def __init__(self, metrics: Metrics, meanings: Meanings, build: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._meanings = meanings
        self._build = build

    def collect(self) -> Iterable[MetricFamily]:
        families: dict[str, MetricFamily] = {}
        if self._build:
            families[BUILD_INFO] = GaugeMetricFamily(BUILD_INFO, BUILD_INFO_HELP)
            families[BUILD_INFO].add_sample(BUILD_INFO, dict(self._build), 1)
        for key, metric in sorted(self._metrics.items()):
            derived, labels, short = place_of(key.split("{", 1)[0])
            meaning = self._meanings.get(short) or Meaning(short.replace("-", " ").capitalize() + ".")
            name = meaning.prometheus or derived
            labels |= meaning.labels
            if isinstance(metric, Gauge):
                _add_gauge(families, name, {**labels, **metric.labels}, metric, meaning)
            elif isinstance(metric, Timer):
                _add_timer(families, f"{name}_seconds", labels, metric, meaning.help)
            else:
                _add_count(families, name, labels, metric.count, meaning.help)
        return families.values()


def _add_count(
    families: dict[str, MetricFamily], name: str, labels: dict[str, str], count: float, help_text: str
) -> None:
    family = families.setdefault(f"{name}_total", CounterMetricFamily(name, help_text))
    family.add_sample(f"{name}_total", labels, count)


def _add_gauge(
    families: dict[str, MetricFamily], name: str, labels: dict[str, str], gauge: Gauge, meaning: Meaning
) -> None:
    value, _ = gauge.value()
    number = _number(value)
    if number is None:
        if isinstance(value, str):
            name, labels, number = f"{name}_info", labels | {"value": value}, 1
        elif isinstance(value, list | tuple | set | frozenset | Mapping):
            name = meaning.prometheus or f"{name}_size"
            number = len(value)
        else:
            return
    if meaning.counts:
        _add_count(families, name, labels, number, meaning.help)
        return
    family = families.setdefault(name, GaugeMetricFamily(name, meaning.help))
    family.add_sample(name, labels, number * meaning.scale)


def _add_timer(
    families: dict[str, MetricFamily], name: str, labels: dict[str, str], timer: Timer, help_text: str
) -> None:
    family = families.setdefault(name, HistogramMetricFamily(name, help_text))
    for bound, count in zip(HISTOGRAM_BOUNDS, timer.histogram(), strict=True):
        family.add_sample(f"{name}_bucket", labels | {"le": repr(bound)}, count)
    family.add_sample(f"{name}_bucket", labels | {"le": "+Inf"}, timer.count)
    family.add_sample(f"{name}_count", labels, timer.count)
    family.add_sample(f"{name}_sum", labels, timer.sum_seconds)
