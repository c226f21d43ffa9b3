"""Ranges: which committed transactions a query reads, and how they are cut into tasks. Pure."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Transactions `first` to `last` of a partition, both included; never empty."""

    partition: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """How many there are."""
        return self.last - self.first + 1


def ranges_between(starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Range]:
    """One range per partition of `ends`, from its start (inclusive) to its end (exclusive), without the
    empty ones."""
    return [Range(p, starts.get(p, 0), ends[p] - 1) for p in sorted(ends) if ends[p] > starts.get(p, 0)]


def cut(ranges: Sequence[Range], min_parts: int | None, max_transactions: int | None) -> list[Range]:
    """The same transactions in more ranges: none longer than `max_transactions`, and `min_parts` of them
    if there are as many transactions. Always the longest part is divided further, so parts become alike;
    order: partition, then id."""
    parts = [1 if max_transactions is None else -(-one.count // max_transactions) for one in ranges]
    total, most = sum(parts), sum(one.count for one in ranges)
    if min_parts is not None and total < min_parts:
        heap = [(-one.count / parts[i], i) for i, one in enumerate(ranges)]
        heapq.heapify(heap)
        for _ in range(min(min_parts, most) - total):
            _, i = heap[0]
            parts[i] += 1
            heapq.heapreplace(heap, (-ranges[i].count / parts[i], i))
    return [piece for one, count in zip(ranges, parts, strict=True) for piece in _divided(one, count)]


def _divided(one: Range, parts: int) -> list[Range]:
    """A range in that many parts (at most one per transaction) that differ by one transaction at most."""
    parts = min(parts, one.count)
    borders = [one.first + one.count * i // parts for i in range(parts + 1)]
    return [Range(one.partition, low, high - 1) for low, high in itertools.pairwise(borders)]
