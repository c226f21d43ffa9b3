"""The memory of appends that wait: what one partition may take, and all partitions of a server together.

A partition that is not open, or whose storage nodes are slow, keeps what arrives. Where many do so at once
their bounds add up to more than a server has, so all of them together have a bound, too. Beyond it a
partition may keep a small share only, which is enough for one that works its queue off: it does not stop
because others cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 128
"""Beyond the bound of the server a partition keeps this part of its own."""


@dataclass(frozen=True, slots=True)
class AppendBounds:
    """Bounds of the queue of one partition."""

    max_count: int = 20_000
    max_bytes: int = 32 * 1024 * 1024


@dataclass(slots=True)
class WaitingBytes:
    """Bytes of the appends that wait in all partitions of a server, and their bound."""

    max_bytes: int = 256 * 1024 * 1024
    size_bytes: int = 0


class QueueRoom:
    """What the appends of one partition take: `count` of them wait."""

    def __init__(self, bounds: AppendBounds, waiting: WaitingBytes) -> None:
        self.count = 0
        self._bytes = 0
        self._max_count, self._max_bytes = bounds.max_count, bounds.max_bytes
        self._share_bytes = bounds.max_bytes // SHARE
        self._waiting = waiting

    def take(self, size_bytes: int) -> bool:
        """Whether there was room for one more. One of any size is taken where none waits."""
        after, waiting = self._bytes + size_bytes, self._waiting
        if self.count and (
            self.count >= self._max_count
            or after > self._max_bytes
            or (after > self._share_bytes and waiting.size_bytes + size_bytes > waiting.max_bytes)
        ):
            return False
        self.add(size_bytes)
        return True

    def add(self, size_bytes: int) -> None:
        """One more waits, whether there is room or not: one that had been taken off, and comes back."""
        self.count += 1
        self._bytes += size_bytes
        self._waiting.size_bytes += size_bytes

    def take_off(self, size_bytes: int) -> None:
        """One waits no longer."""
        self.count -= 1
        self._bytes -= size_bytes
        self._waiting.size_bytes -= size_bytes

    def close(self) -> None:
        """None waits any longer; what comes after it counts for nobody else."""
        self._waiting.size_bytes -= self._bytes
        self._waiting = WaitingBytes()
        self.count = self._bytes = 0
