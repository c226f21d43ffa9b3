"""How long appends take: histograms of servers, added up, and quantiles of what came between two of them.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """A histogram that only grows: of `count` appends, `at_most[i]` took at most `bounds[i]` seconds."""

    bounds: tuple[float, ...]
    at_most: tuple[int, ...]
    count: int

    def since(self, earlier: Latency | None) -> Latency:
        """What came after `earlier`; all of it, when that is of other bounds or the counts began anew."""
        if earlier is None or earlier.bounds != self.bounds or earlier.count > self.count:
            return self
        counts = tuple(now - then for now, then in zip(self.at_most, earlier.at_most, strict=True))
        if min(counts, default=0) < 0:
            return self
        return Latency(self.bounds, counts, self.count - earlier.count)

    def quantile(self, q: float) -> float | None:
        """Seconds, by a straight line between the two bounds around it; the highest bound for what is above
        it, None without an append."""
        if not self.count or not self.bounds:
            return None
        wanted = q * self.count
        below, low = 0, 0.0
        for bound, at_most in zip(self.bounds, self.at_most, strict=True):
            if at_most >= wanted and at_most > below:
                return low + (bound - low) * max(0.0, wanted - below) / (at_most - below)
            below, low = at_most, bound
        return self.bounds[-1]


def added(some: Iterable[Latency]) -> Latency | None:
    """All together; those with the bounds of the first. None without any."""
    total: Latency | None = None
    for one in some:
        if total is None:
            total = one
        elif one.bounds == total.bounds:
            at_most = tuple(a + b for a, b in zip(total.at_most, one.at_most, strict=True))
            total = Latency(total.bounds, at_most, total.count + one.count)
    return total
