"""What is counted and measured: counters, meters, timers and gauges.

Model: marking is a handful of integer additions on plain attributes (it sits on the append path); everything
that needs arithmetic (moving averages, quantiles, text) is done by whoever reads. A meter therefore holds a
count, and `MetricsRegistry.tick` (called every five seconds by the HTTP endpoints, and by every reader) turns
the growth of the count into the 1, 5 and 15 minute rates. A timer holds a histogram of logarithmic buckets
(16 per power of two: a quantile is off by 3 % at most) in one-minute windows of which the last five answer,
so that quantiles speak of the recent past. The counts of windows that are over are kept by powers of two, for
a histogram of all time.

One loop marks and reads; a metric marked from a disk thread needs a counter of that thread's own.
How the figures are written down (HTTP JSON, admin JSON, Prometheus, Graphite) is in `rendering`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

_log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
WINDOW_SECONDS = 60.0
WINDOW_COUNT = 5

_SUB_BUCKETS = 16  # per power of two
_MIN_EXPONENT = -30  # 2**-31 s: below one nanosecond
_MAX_EXPONENT = 12  # 2**12 s: more than an hour
# frexp gives a mantissa in [0.5, 1): int(mantissa * 32) counts from 16, taken off here once
_BUCKET_OFFSET = -_MIN_EXPONENT * _SUB_BUCKETS - _SUB_BUCKETS
_BUCKET_COUNT = (_MAX_EXPONENT - _MIN_EXPONENT + 1) * _SUB_BUCKETS
_MIN_SECONDS = 2.0 ** (_MIN_EXPONENT - 1)

HISTOGRAM_BOUNDS = tuple(2.0**exponent for exponent in range(-12, 5))
"""Of `Timer.histogram`, in seconds: 0.24 ms to 16 s. Powers of two, so that they are bounds of buckets."""
_BOUND_ENDS = tuple((exponent - _MIN_EXPONENT + 1) * _SUB_BUCKETS for exponent in range(-12, 5))

GaugeFunction = Callable[[], object]


class Counter:
    """A count that only its owner changes."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def inc(self, n: int = 1) -> None:
        """Add `n`."""
        self.count += n


class Rates:
    """Moving averages (events per second over 1, 5 and 15 minutes) of a growing count.

    The average is the exponentially weighted one with a tick of five seconds; its first tick starts it at the
    rate then seen. Several ticks that fall due at once share the growth evenly.
    """

    __slots__ = ("_last_count", "_last_tick", "_started", "_starting_at", "m1", "m5", "m15")

    def __init__(self, now: float) -> None:
        self.m1 = self.m5 = self.m15 = 0.0
        self._starting_at = now
        self._last_tick = now
        self._last_count = 0
        self._started = False

    def tick(self, now: float, count: int) -> None:
        """Account for the time since the last tick; nothing happens before five seconds have passed."""
        due = int((now - self._last_tick) // TICK_SECONDS)
        if due <= 0:
            return
        rate = (count - self._last_count) / (due * TICK_SECONDS)
        self._last_tick += due * TICK_SECONDS
        self._last_count = count
        if not self._started:
            self._started = True
            self.m1 = self.m5 = self.m15 = rate
            return
        for name, minutes in (("m1", 1), ("m5", 5), ("m15", 15)):
            kept = math.exp(-TICK_SECONDS * due / (60.0 * minutes))
            setattr(self, name, rate + (getattr(self, name) - rate) * kept)

    @property
    def since(self) -> float:
        """When the metric was made."""
        return self._starting_at

    def mean(self, now: float, count: int) -> float:
        """Events per second since the metric was made."""
        elapsed = now - self._starting_at
        return count / elapsed if count and elapsed > 0 else 0.0


class Meter:
    """A count of events with its rates."""

    __slots__ = ("count", "rates")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.rates = Rates(now)

    def mark(self, n: int = 1) -> None:
        """`n` events happened."""
        self.count += n


@dataclass(frozen=True, slots=True)
class TimerSnapshot:
    """What the last five minutes looked like; all values in seconds, zero when nothing was measured."""

    min: float
    max: float
    mean: float
    stddev: float
    quantiles: Mapping[float, float]


QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Timer:
    """Durations: a histogram of the recent past, and the count and sum of all time."""

    __slots__ = ("_buckets", "_older", "_over", "_window_start", "count", "rates", "sum_seconds")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.sum_seconds = 0.0
        self.rates = Rates(now)
        self._buckets = [0] * _BUCKET_COUNT
        self._older: list[list[int]] = []
        self._over = [0] * len(HISTOGRAM_BOUNDS)  # cumulative, of the windows that are no longer kept
        self._window_start = now

    def update(self, seconds: float) -> None:
        """One event took `seconds`."""
        self.count += 1
        self.sum_seconds += seconds
        if seconds < _MIN_SECONDS:
            seconds = _MIN_SECONDS
        mantissa, exponent = _frexp(seconds)
        try:
            self._buckets[exponent * 16 + int(mantissa * 32) + _BUCKET_OFFSET] += 1
        except (IndexError, OverflowError):  # hours, infinity
            self._buckets[-1] += 1

    def update_many(self, seconds: float, n: int) -> None:
        """`n` events took `seconds` each (a batch that ended together)."""
        if n > 0:
            self.count += n
            self.sum_seconds += seconds * n
            mantissa, exponent = _frexp(seconds if seconds > _MIN_SECONDS else _MIN_SECONDS)
            try:
                self._buckets[exponent * 16 + int(mantissa * 32) + _BUCKET_OFFSET] += n
            except (IndexError, OverflowError):  # hours, infinity
                self._buckets[-1] += n

    def tick(self, now: float) -> None:
        """Close windows of one minute that are over and forget what is older than five."""
        passed = int((now - self._window_start) // WINDOW_SECONDS)
        if passed <= 0:
            return
        self._window_start += passed * WINDOW_SECONDS
        self._older.append(self._buckets)
        for _ in range(min(passed - 1, WINDOW_COUNT)):
            self._older.append([])
        for window in self._older[: -(WINDOW_COUNT - 1)]:
            self._over = [n + m for n, m in zip(self._over, _cumulative(window), strict=True)]
        del self._older[: -(WINDOW_COUNT - 1)]
        self._buckets = [0] * _BUCKET_COUNT

    def histogram(self) -> list[int]:
        """How many events took at most each of HISTOGRAM_BOUNDS, since the timer was made."""
        windows = (self._buckets, *self._older)
        return [sum(column) for column in zip(self._over, *map(_cumulative, windows), strict=True)]

    def snapshot(self) -> TimerSnapshot:
        """Quantiles and moments of the current window and the four before it."""
        totals = [sum(column) for column in zip(self._buckets, *(w for w in self._older if w), strict=True)]
        filled = [(_bucket_middle(i), n) for i, n in enumerate(totals) if n]
        count = sum(n for _, n in filled)
        if not count:
            return TimerSnapshot(0.0, 0.0, 0.0, 0.0, dict.fromkeys(QUANTILES, 0.0))
        mean = sum(value * n for value, n in filled) / count
        variance = sum((value - mean) ** 2 * n for value, n in filled) / count
        quantiles = {q: _quantile(filled, count, q) for q in QUANTILES}
        return TimerSnapshot(filled[0][0], filled[-1][0], mean, math.sqrt(variance), quantiles)


_frexp = math.frexp


def _cumulative(window: list[int]) -> list[int]:
    """Events up to each of HISTOGRAM_BOUNDS; an empty list is a window without any."""
    total = start = 0
    found = []
    for end in _BOUND_ENDS:
        total += sum(window[start:end])
        found.append(total)
        start = end
    return found


def _bucket_middle(index: int) -> float:
    exponent, step = divmod(index, _SUB_BUCKETS)
    return math.ldexp((step + _SUB_BUCKETS + 0.5) / (2 * _SUB_BUCKETS), exponent + _MIN_EXPONENT)


def _quantile(filled: list[tuple[float, int]], count: int, q: float) -> float:
    wanted = math.ceil(q * count)
    seen = 0
    for value, n in filled:
        seen += n
        if seen >= wanted:
            return value
    return filled[-1][0]


class Gauge:
    """A value asked for when somebody reads; `labels` are extra Prometheus labels, `name` is for the log."""

    __slots__ = ("_error", "_name", "_read", "labels")

    def __init__(
        self, name: str, read: GaugeFunction, labels: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._name = name
        self._read = read
        self.labels = labels
        self._error: str | None = None

    def value(self) -> tuple[object, str | None]:
        """The value as JSON can carry it, and why there is none: one that fails must not take the page down.
        It is logged when the reason changes."""
        try:
            value, error = plain(self._read()), None
        except Exception as failure:
            value, error = None, f"{type(failure).__name__}: {failure}"
            if error != self._error:
                _log.exception("the metric %s cannot be read: %s", self._name, error)
        self._error = error
        return value, error


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


Metric = Gauge | Counter | Meter | Timer
