"""Text that is made piece by piece, so that one of a thousand partitions does not hold up the loop.

`/metrics` of a server with a thousand partitions is three megabytes, half a second of work. Whoever makes a
text writes a generator that yields after each slice and returns the text; the HTTP endpoints let the loop run
in between, everybody else takes it `at_once`. What a slice reads is of one moment, the whole is not: a
counter of the last slice is some milliseconds younger than one of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator

Slices = Generator[None, None, str]

METRICS_PER_SLICE = 25
"""About half a millisecond on an idle core: an append in progress crosses several turns, and each is longer
by a slice. A timer counts as many."""
TIMER_UNITS = 20


def at_once(slices: Slices) -> str:
    """The text, in this turn of the loop."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return str(done.value)


async def between_turns(slices: Slices) -> str:
    """The text, a slice per turn of the loop."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return str(done.value)
        await asyncio.sleep(0)


class Budget:
    """How much of a slice is left. `spent` says when it is over."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = METRICS_PER_SLICE

    def spent(self, units: int) -> bool:
        """Count `units`; True when it is time to yield, and a new slice begins."""
        self._left -= units
        if self._left > 0:
            return False
        self._left = METRICS_PER_SLICE
        return True
