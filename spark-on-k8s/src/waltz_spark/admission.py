"""Admission: how far a trigger goes when it may not go to the end of the log. Pure.

A limit is shared in proportion to what waits in each partition, so that one long partition does not keep the
others waiting and none runs away from them; each has one transaction at least. Where the limit is too small
for that, the partitions take turns, one transaction each: they are a ring, and the sum of all positions is
where a trigger begins in it. A trigger moves that sum by what it admits, so the next one begins behind it,
without a memory of its own. At least one transaction is admitted when one waits, or a stream would not
advance.
"""

from __future__ import annotations

from collections.abc import Mapping


def admit_transactions(
    starts: Mapping[int, int], ends: Mapping[int, int], max_transactions: int
) -> dict[int, int]:
    """New ends (next transaction per partition): `max_transactions` in all, or everything when there is
    less."""
    return _admit(starts, ends, max_transactions, dict.fromkeys(ends, 1))


def admit_bytes(
    starts: Mapping[int, int], ends: Mapping[int, int], max_bytes: int, mean_bytes: Mapping[int, float]
) -> dict[int, int]:
    """New ends whose payloads have about `max_bytes` in all, by the mean size of a payload in each
    partition."""
    return _admit(starts, ends, max_bytes, {p: max(round(mean_bytes.get(p, 1.0)), 1) for p in ends})


def _admit(
    starts: Mapping[int, int], ends: Mapping[int, int], limit: int, sizes: Mapping[int, int]
) -> dict[int, int]:
    waiting = {p: ends[p] - starts.get(p, 0) for p in sorted(ends) if ends[p] > starts.get(p, 0)}
    if sum(count * sizes[p] for p, count in waiting.items()) <= limit:
        return dict(ends)
    if sum(sizes[p] for p in waiting) > limit:
        shares = _in_turn(sorted(ends), sum(starts.get(p, 0) for p in ends), waiting, limit, sizes)
    else:
        shares = _in_proportion(waiting, limit, sizes)
    return {p: starts.get(p, 0) + shares[p] if p in waiting else ends[p] for p in sorted(ends)}


def _in_turn(
    ring: list[int], turn: int, waiting: Mapping[int, int], limit: int, sizes: Mapping[int, int]
) -> dict[int, int]:
    """One transaction of each partition from `turn` on, until the next one does not fit."""
    shares = dict.fromkeys(waiting, 0)
    left = limit
    for i in range(len(ring)):
        p = ring[(turn + i) % len(ring)]
        if p in waiting:
            if sizes[p] > left and left < limit:
                break
            shares[p] = 1
            left -= sizes[p]
    return shares


def _in_proportion(waiting: Mapping[int, int], limit: int, sizes: Mapping[int, int]) -> dict[int, int]:
    """In proportion, but one transaction at least; what is left by rounding goes to the largest remainders,
    until the next one does not fit."""
    shares: dict[int, int] = {}
    rest = dict(waiting)
    while True:
        total = sum(count * sizes[p] for p, count in rest.items())
        few = [p for p, count in rest.items() if count * limit < total]
        if not few:
            break
        for p in few:
            shares[p] = 1
            limit -= sizes[p]
            del rest[p]
    shares.update((p, count * limit // total) for p, count in rest.items())
    left = limit - sum(shares[p] * sizes[p] for p in rest)
    for p in sorted(rest, key=lambda p: (-(rest[p] * limit % total), p)):
        if sizes[p] > left:
            break
        shares[p] += 1
        left -= sizes[p]
    return shares


def sample_ids(start: int, end: int, count: int) -> list[int]:
    """Up to `count` transaction ids spread evenly over `start` (inclusive) to `end` (exclusive)."""
    return sorted({start + (end - start) * i // count for i in range(count)}) if end > start else []
