"""How metrics are written down: HTTP JSON of release 0.13.2, admin port JSON, Graphite lines. Prometheus text
is in `exposition`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from waltz_runtime.exposition import number_of
from waltz_runtime.instruments import QUANTILES, Counter, Gauge, Meter, Metric, Timer
from waltz_runtime.slices import TIMER_UNITS, Budget, Slices

_QUANTILE_NAMES = {0.5: "p50", 0.75: "p75", 0.95: "p95", 0.98: "p98", 0.99: "p99", 0.999: "p999"}
_ADMIN_QUANTILE_NAMES = {
    0.5: "median",
    0.75: "75thPercentile",
    0.95: "95thPercentile",
    0.98: "98thPercentile",
    0.99: "99thPercentile",
    0.999: "999thPercentile",
}

Json = dict[str, object]
Metrics = Mapping[str, Metric]


def http_json_slices(metrics: Metrics, now: float, *, pretty: bool = False) -> Slices:
    """Members version, gauges, counters, histograms, meters, timers; rates per second, durations in
    seconds."""
    members: dict[str, list[str]] = {
        "gauges": [],
        "counters": [],
        "histograms": [],
        "meters": [],
        "timers": [],
    }
    indent = 2 if pretty else None
    budget = Budget()
    for name in sorted(metrics):
        metric = metrics.get(name)
        if metric is None:  # its partition has left in between
            continue
        value = json.dumps(_http_value(metric, now), indent=indent, default=str)
        members[_kind(metric)].append(f"{json.dumps(name)}: {value}")
        if budget.spent(TIMER_UNITS if isinstance(metric, Timer) else 1):
            yield
    # strings have no line ends in JSON, so that only the layout is moved
    ends = ("\n    ", "\n  ", "\n") if pretty else ("", "", "")
    parts = [f'{ends[1]}"version": "4.0.0"']
    for kind, entries in members.items():
        if pretty:
            entries = [entry.replace("\n", ends[0]) for entry in entries]
        inside = f",{ends[0] or ' '}".join(entries)
        parts.append(f'{ends[1]}"{kind}": {{{ends[0] + inside + ends[1] if entries else ""}}}')
        yield
    return "{" + ("," if pretty else ", ").join(parts) + ends[2] + "}"


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


def graphite_slices(metrics: Metrics, now: float, prefix: str, timestamp_seconds: int) -> Slices:
    """Lines `path value timestamp` of the plaintext protocol; only numbers have a line."""
    parts: list[str] = []
    budget = Budget()
    for name in sorted(metrics):
        metric = metrics.get(name)
        if metric is None:  # its partition has left in between
            continue
        path = f"{prefix}.{name}" if prefix else name
        for field, value in _numbers(metric, now):
            parts.append(f"{path}{field} {value} {timestamp_seconds}\n")
        if budget.spent(TIMER_UNITS if isinstance(metric, Timer) else 1):
            yield
    return "".join(parts)


def _kind(metric: Metric) -> str:
    if isinstance(metric, Gauge):
        return "gauges"
    if isinstance(metric, Counter):
        return "counters"
    return "meters" if isinstance(metric, Meter) else "timers"


def _gauge_json(gauge: Gauge) -> Json:
    value, error = gauge.value()
    return {"value": value} if error is None else {"error": error}


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
        number = number_of(value)
        if number is not None:
            yield "", number
        return
    for field, value in _http_value(metric, now).items():
        if isinstance(value, int | float):
            yield f".{field}", value
