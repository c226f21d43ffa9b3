"""Work that peers cause, in bounded turns of the event loop, one peer after another.

What a read brought is handled at once while the turn has room for it and nobody else is waiting; else the
connection gets in line, and is not read from until its turn has come. So whatever peers send, and however
many they are, a turn of the loop stays short, timers and other connections get theirs, and no connection gets
ahead of one that has waited longer. An idle process pays nothing for it: no task, no future, no timer.

There are two lines, served in turn: connections with frames that have arrived, and partitions with appends
that are queued. So neither many connections nor much that is queued holds up the other.

Work is counted, not timed, so that the same input does the same everywhere: a *unit* is about a microsecond
of one core, what a frame or a lock costs in units is said where it is handled.

Invariants
* A worker is in line at most once, and is called only from here while it is in line.
* A turn begins at most one slice of one worker beyond `TURN_UNITS`.

Owner: the event loop; one per process, shared by all its listeners and partitions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from waltz_protocol.frame import MAX_READ_BYTES

TURN_UNITS = 20_000
"""Of one turn: what it starts on the loop (appends are passed on to the store) costs about as much again, and
50 ms are the limit."""
SLICE_UNITS = 5_000
"""Of one connection or partition, when others are in line."""

ARRIVED, QUEUED = 0, 1
"""The lines."""


class Worker(Protocol):
    """Somebody with work left over."""

    def work(self, units: int) -> int:
        """Do about `units` of it and return what it was. The worker joins the line again when there is
        more."""


class Turns:
    """See the module."""

    def __init__(self, turn_units: int = TURN_UNITS, slice_units: int = SLICE_UNITS) -> None:
        self.left = turn_units
        """What this turn has room for; it may be a little below zero."""
        self.scratch = memoryview(bytearray(MAX_READ_BYTES))
        """What is read in a turn is read into this one buffer (see `frame.FrameSplitter`)."""
        self._turn_units = turn_units
        self._slice_units = slice_units
        self._lines: tuple[deque[Worker], deque[Worker]] = (deque(), deque())
        self._next = ARRIVED
        self._scheduled = False

    @property
    def free(self) -> bool:
        """A connection may do its work now: none is in line, and the turn has room."""
        return self.left > 0 and not self._lines[ARRIVED]

    @property
    def free_for_queued(self) -> bool:
        """The same for a partition."""
        return self.left > 0 and not self._lines[QUEUED]

    @property
    def behind(self) -> bool:
        """Connections are in line."""
        return bool(self._lines[ARRIVED])

    def spend(self, units: int) -> None:
        """So much has been done outside the lines."""
        self.left -= units
        # Turns with little work are not distinguished: what they leave is added up, and that costs nothing.
        if self.left < self._turn_units >> 1 and not self._scheduled:
            self._schedule()

    def join(self, worker: Worker, line: int = ARRIVED) -> None:
        """Get in line; the caller is not in it."""
        self._lines[line].append(worker)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """A new turn: first those in line, each a slice, as long as there is room."""
        self._scheduled = False
        self.left = self._turn_units
        lines = self._lines
        try:
            while self.left > 0 and (lines[0] or lines[1]):
                line = lines[self._next] or lines[1 - self._next]
                self._next = 1 - self._next
                self.left -= max(1, line.popleft().work(min(self._slice_units, self.left)))
        finally:
            if (lines[0] or lines[1]) and not self._scheduled:
                self._schedule()
