"""Data of committed transactions in memory: one budget of bytes for all partitions of a server.

A ring in spirit, as in the reference: the oldest insertion goes first, whatever was read since. That costs one
dictionary entry and one queue entry per transaction and nothing on a hit.

Invariants
* Only committed transactions are put in (safety D1); callers fill it at commit and from reads below the mark.
* Failed reads leave nothing behind (weakness 13.13).
* `used_bytes` <= `capacity_bytes`, bookkeeping of `ENTRY_OVERHEAD_BYTES` per entry included.
"""

from __future__ import annotations

from collections import deque

ENTRY_OVERHEAD_BYTES = 200
"""Dictionary slot, queue tuple, integers and object header of one entry, measured on CPython 3.11."""


class PartitionTransactionCache:
    """The part of one partition; `get` is a plain dictionary look-up."""

    __slots__ = ("_cache", "entries", "get")

    def __init__(self, cache: TransactionCache) -> None:
        self._cache = cache
        self.entries: dict[int, bytes] = {}
        self.get = self.entries.get

    def put(self, transaction_id: int, tail: bytes) -> None:
        """Add `tail` (i32 header | i32 length | data | i32 crc) unless it is there or larger than a quarter."""
        if transaction_id not in self.entries:
            self._cache.insert(self.entries, transaction_id, tail)

    def drop(self) -> None:
        """Forget everything of this partition (it left this server)."""
        self._cache.drop(self.entries)


class TransactionCache:
    """The shared budget. Owner: the event loop; no locks."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._largest_bytes = capacity_bytes // 4
        self._order: deque[tuple[dict[int, bytes], int, int]] = deque()

    def partition(self) -> PartitionTransactionCache:
        """A new, empty part."""
        return PartitionTransactionCache(self)

    def insert(self, entries: dict[int, bytes], transaction_id: int, tail: bytes) -> None:
        """Put one entry and evict the oldest ones until the budget holds."""
        size = len(tail) + ENTRY_OVERHEAD_BYTES
        if size > self._largest_bytes:
            return
        entries[transaction_id] = tail
        self._order.append((entries, transaction_id, size))
        self.used_bytes += size
        while self.used_bytes > self.capacity_bytes:
            old_entries, old_id, old_size = self._order.popleft()
            del old_entries[old_id]
            self.used_bytes -= old_size

    def drop(self, entries: dict[int, bytes]) -> None:
        """Remove one partition's entries and give their bytes back."""
        kept = deque(item for item in self._order if item[0] is not entries)
        self.used_bytes = sum(item[2] for item in kept)
        self._order = kept
        entries.clear()
