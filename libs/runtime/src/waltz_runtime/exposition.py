"""Metrics as Prometheus text, format 0.0.4: one family per name, whatever the number of partitions.

Written here and not by `prometheus_client`, which takes two and a half times as long for a thousand
partitions, and cannot stop in the middle. Names and help: `meanings`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from prometheus_client.utils import floatToGoString

from waltz_runtime.instruments import HISTOGRAM_BOUNDS, Gauge, Metric, Timer
from waltz_runtime.meanings import Meaning, Meanings, place_of
from waltz_runtime.slices import TIMER_UNITS, Budget, Slices

BUILD_INFO = "waltz_build_info"
BUILD_INFO_HELP = "1, with role and version of the program as labels."
_text_of: Callable[[float], str] = floatToGoString
_BOUNDS = tuple(repr(bound) for bound in HISTOGRAM_BOUNDS)


class _Family:
    """Head and lines of one name; `text` has line ends."""

    __slots__ = ("lines",)

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        help_text = help_text.replace("\\", r"\\").replace("\n", r"\n")
        self.lines = [f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"]


class _Page:
    """Families by name, in the order in which they are met."""

    def __init__(self, meanings: Meanings) -> None:
        self.families: dict[str, _Family] = {}
        self._meanings = meanings

    def add(self, key: str, metric: Metric) -> None:
        """All lines of one metric of the registry."""
        derived, labels, short = place_of(key.split("{", 1)[0])
        meaning = self._meanings.get(short) or Meaning(short.replace("-", " ").capitalize() + ".")
        name = meaning.prometheus or derived
        labels |= meaning.labels
        if isinstance(metric, Gauge):
            self._gauge(name, labels | dict(metric.labels), metric, meaning)
        elif isinstance(metric, Timer):
            self._timer(f"{name}_seconds", labels, metric, meaning.help)
        else:
            self.sample(f"{name}_total", "counter", meaning.help, labels, metric.count)

    def sample(self, name: str, kind: str, help_text: str, labels: Mapping[str, str], value: float) -> None:
        lines = self._lines(name, kind, help_text)
        lines.append(f"{name}{_braces(labels)} {_text_of(value)}\n")

    def _lines(self, name: str, kind: str, help_text: str) -> list[str]:
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = _Family(name, kind, help_text)
        return family.lines

    def _gauge(self, name: str, labels: Mapping[str, str], gauge: Gauge, meaning: Meaning) -> None:
        value, _ = gauge.value()
        number = number_of(value)
        if number is None:
            if isinstance(value, str):
                name, labels, number = f"{name}_info", {**labels, "value": value}, 1
            elif isinstance(value, list | Mapping):
                name = meaning.prometheus or f"{name}_size"
                number = len(value)
            else:
                return
        if meaning.counts:
            self.sample(f"{name}_total", "counter", meaning.help, labels, number)
        else:
            self.sample(name, "gauge", meaning.help, labels, number * meaning.scale)

    def _timer(self, name: str, labels: Mapping[str, str], timer: Timer, help_text: str) -> None:
        lines = self._lines(name, "histogram", help_text)
        own = _inside(labels)
        front = f"{own}," if own else ""
        braces = f"{{{own}}}" if own else ""
        buckets = zip(_BOUNDS, timer.histogram(), strict=True)
        lines += [f'{name}_bucket{{{front}le="{bound}"}} {count}.0\n' for bound, count in buckets]
        lines.append(
            f'{name}_bucket{{{front}le="+Inf"}} {timer.count}.0\n{name}_count{braces} {timer.count}.0\n'
            f"{name}_sum{braces} {_text_of(timer.sum_seconds)}\n"
        )


def prometheus_slices(metrics: Mapping[str, Metric], meanings: Meanings, build: Mapping[str, str]) -> Slices:
    """The whole page."""
    page, budget = _Page(meanings), Budget()
    if build:
        page.sample(BUILD_INFO, "gauge", BUILD_INFO_HELP, build, 1)
    for key in sorted(metrics):
        metric = metrics.get(key)
        if metric is None:  # its partition has left in between
            continue
        page.add(key, metric)
        if budget.spent(TIMER_UNITS if isinstance(metric, Timer) else 1):
            yield
    parts = []
    for family in page.families.values():
        parts.append("".join(family.lines))
        yield
    return "".join(parts)


def number_of(value: object) -> float | None:
    """What can be a sample."""
    if isinstance(value, bool):
        return int(value)
    try:
        return value if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:  # an integer beyond what a float holds
        return None


def _braces(labels: Mapping[str, str]) -> str:
    inside = _inside(labels)
    return f"{{{inside}}}" if inside else ""


def _inside(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))


def _escaped(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
