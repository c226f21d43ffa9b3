"""Leaving out what a failure does not need: delta debugging over faults, then over workloads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A subset that still fails, of which no single item can be left out (ddmin). `items` as a whole must
    fail."""
    needed = list(items)
    if fails([]):
        return []
    pieces = 2
    while len(needed) >= 2:
        size = max(1, len(needed) // pieces)
        chunks = [needed[start : start + size] for start in range(0, len(needed), size)]
        for chunk in chunks:
            rest = [item for item in needed if item not in chunk]
            if rest and fails(rest):
                needed, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(len(needed), pieces * 2)
    return needed
