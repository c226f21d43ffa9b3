"""Admission: how far a trigger goes when it may not go to the end of the log. Pure.

A limit is shared in proportion to what waits in each partition, so that one long partition does not keep the
others waiting and none runs away from them. At least one transaction is admitted when one waits, or a stream
would not advance.
"""

from __future__ import annotations

from collections.abc import Mapping


def admit_transactions(
    starts: Mapping[int, int], ends: Mapping[int, int], max_transactions: int
) -> dict[int, int]:
    """New ends (next transaction per partition): `max_transactions` in all, or everything when there is
    less."""
    waiting = {p: max(ends[p] - starts.get(p, 0), 0) for p in sorted(ends)}
    total = sum(waiting.values())
    if total <= max_transactions:
        return dict(ends)
    shares = {p: count * max_transactions // total for p, count in waiting.items()}
    left = max_transactions - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda p: (-(waiting[p] * max_transactions % total), p))
    for p in by_remainder[:left]:
        shares[p] += 1
    return {p: starts.get(p, 0) + shares[p] if waiting[p] else ends[p] for p in sorted(ends)}


def admit_bytes(
    starts: Mapping[int, int], ends: Mapping[int, int], max_bytes: int, mean_bytes: Mapping[int, float]
) -> dict[int, int]:
    """New ends whose payloads have about `max_bytes` in all, by the mean size of a payload in each
    partition."""
    waiting = {p: max(ends[p] - starts.get(p, 0), 0) for p in sorted(ends)}
    total = sum(count * mean_bytes.get(p, 0.0) for p, count in waiting.items())
    if total <= max_bytes:
        return dict(ends)
    admitted = {p: min(int(count * max_bytes / total), count) for p, count in waiting.items()}
    if not any(admitted.values()):
        longest = max(waiting, key=lambda p: waiting[p])
        admitted[longest] = 1
    return {p: starts.get(p, 0) + admitted[p] if waiting[p] else ends[p] for p in sorted(ends)}


def sample_ids(start: int, end: int, count: int) -> list[int]:
    """Up to `count` transaction ids spread evenly over `start` (inclusive) to `end` (exclusive)."""
    return sorted({start + (end - start) * i // count for i in range(count)}) if end > start else []
