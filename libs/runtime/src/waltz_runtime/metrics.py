"""The registry of a service's metrics, by the names release 0.13.2 gives them.

How figures are kept is in `instruments`, how they are written down in `exposition` and `rendering`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from waltz_runtime.errors import MetricNameError
from waltz_runtime.exposition import prometheus_slices
from waltz_runtime.instruments import TICK_SECONDS, Counter, Gauge, GaugeFunction, Meter, Metric, Rates, Timer
from waltz_runtime.meanings import Meanings
from waltz_runtime.rendering import admin_json, graphite_slices, http_json_slices
from waltz_runtime.slices import Slices, at_once

__all__ = ["TICK_SECONDS", "Counter", "Gauge", "Meter", "MetricsRegistry", "Timer"]

Clock = Callable[[], float]
_M = TypeVar("_M", Counter, Meter, Timer)


class MetricsRegistry:
    """All metrics of one service by full name (`waltz-storage.partition-3.session-id`).

    Asking twice for one name gives the same counter, meter or timer; a gauge is replaced (the partition came
    back with a new object behind it). `clock` counts seconds, and is the loop's own clock in simulation.
    `meanings`: of the metrics, and `build`: the labels of `waltz_build_info`, for Prometheus.
    """

    def __init__(
        self,
        clock: Clock = time.monotonic,
        meanings: Meanings = MappingProxyType({}),
        build: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._clock = clock
        self._meanings = meanings
        self._build = build
        self._metrics: dict[str, Metric] = {}
        self._groups: dict[str, list[str]] = {}
        """Keys in `_metrics` by the part of the name up to its last point."""
        self._unpublished: list[tuple[Rates, Gauge]] = []

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Every metric by full name; gauges with labels have the labels in the key."""
        return self._metrics

    def gauge(self, name: str, fn: GaugeFunction, labels: Mapping[str, str] | None = None) -> None:
        """Publish `fn()`: a number, boolean, text, list or mapping (JSON-like). Read on the loop; must not
        block."""
        labels = dict(labels or {})
        suffix = "{" + ",".join(f"{k}={v}" for k, v in labels.items()) + "}" if labels else ""
        key = name + suffix
        known = self._metrics.get(key)
        if known is not None and not isinstance(known, Gauge):
            raise MetricNameError(f"metric {name} is already a {type(known).__name__.lower()}")
        self._add(name, key, Gauge(key, fn, labels))

    def counter(self, name: str) -> Counter:
        """The counter of that name, made on first use."""
        return self._named(name, Counter, Counter)

    def meter(self, name: str) -> Meter:
        """The meter of that name, made on first use."""
        return self._named(name, Meter, lambda: Meter(self._clock()))

    def rates_of(self, count: Callable[[], int]) -> Rates:
        """The rates of a count that somebody else keeps, read at each tick. They are not published."""
        made = Rates(self._clock())
        self._unpublished.append((made, Gauge("whose rates are kept", count)))
        return made

    def timer(self, name: str) -> Timer:
        """The timer of that name, made on first use."""
        return self._named(name, Timer, lambda: Timer(self._clock()))

    def remove_group(self, group: str) -> None:
        """Forget every metric of a group, such as `waltz-storage.partition-3`: what its name has before the
        last point. A server that loses a thousand partitions does so in one turn, so nothing else is looked
        at."""
        for key in self._groups.pop(group, ()):
            del self._metrics[key]

    def _add(self, name: str, key: str, metric: Metric) -> None:
        if key not in self._metrics:
            self._groups.setdefault(name.rpartition(".")[0], []).append(key)
        self._metrics[key] = metric

    def tick(self) -> float:
        """Bring all rates and windows up to date; returns the time it did so for."""
        now = self._clock()
        for rates, gauge in self._unpublished:
            count, _ = gauge.value()
            if isinstance(count, int):
                rates.tick(now, count)
        for metric in self._metrics.values():
            if isinstance(metric, Meter | Timer):
                metric.rates.tick(now, metric.count)
            if isinstance(metric, Timer):
                metric.tick(now)
        return now

    def to_json(self, *, pretty: bool = False) -> str:
        """The text `/metrics` of release 0.13.2 answers."""
        return at_once(self.json_slices(pretty=pretty))

    def json_slices(self, *, pretty: bool = False) -> Slices:
        """The same in pieces of the loop's time."""
        return http_json_slices(self._metrics, self.tick(), pretty=pretty)

    def to_admin_json(self) -> str:
        """The text of the metrics reply on the admin port of a storage node."""
        return admin_json(self._metrics, self.tick())

    def to_prometheus(self) -> str:
        """Prometheus text format 0.0.4."""
        return at_once(self.prometheus_slices())

    def prometheus_slices(self) -> Slices:
        """The same in pieces of the loop's time."""
        self.tick()
        return prometheus_slices(self._metrics, self._meanings, self._build)

    def to_graphite(self, prefix: str, timestamp_seconds: int) -> list[str]:
        """Lines of the Graphite plaintext protocol, without line ends."""
        return at_once(self.graphite_slices(prefix, timestamp_seconds)).split("\n")[:-1]

    def graphite_slices(self, prefix: str, timestamp_seconds: int) -> Slices:
        """The same as one text with line ends, in pieces of the loop's time."""
        return graphite_slices(self._metrics, self.tick(), prefix, timestamp_seconds)

    def _named(self, name: str, kind: type[_M], make: Callable[[], _M]) -> _M:
        known = self._metrics.get(name)
        if known is None:
            made = make()
            self._add(name, name, made)
            return made
        if not isinstance(known, kind):
            raise MetricNameError(f"metric {name} is already a {type(known).__name__.lower()}")
        return known
