"""Percentiles of latencies noted as (seconds, how many)."""

from __future__ import annotations

from collections.abc import Sequence


def percentiles_ms(weighted: Sequence[tuple[float, int]], wanted: Sequence[float]) -> list[float]:
    """For each q of `wanted` the smallest latency not exceeded by that share, in milliseconds; 0 of
    nothing."""
    ordered = sorted(weighted)
    total = sum(n for _, n in ordered)
    found: list[float] = []
    for q in wanted:
        seen, found_seconds = 0, 0.0
        for seconds, n in ordered:
            seen += n
            found_seconds = seconds
            if seen >= q * total:
                break
        found.append(found_seconds * 1000)
    return found


def median(values: Sequence[float]) -> float:
    """The middle value (the lower one of two); ValueError of nothing."""
    if not values:
        raise ValueError("the median of nothing")
    return sorted(values)[(len(values) - 1) // 2]
