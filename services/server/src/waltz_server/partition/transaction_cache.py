"""Committed transactions in memory, as stored records (`frames.blocks`): one budget of bytes for all
partitions of a server.

A ring in spirit, as in the reference: the oldest insertion goes first, whatever was read since. That costs
one dictionary entry and one queue entry per transaction and nothing on a hit.

Invariants
* Only committed transactions are put in (safety D1); callers fill it at commit and from reads below the mark.
* What is put in at its commit gets the stored form, with its checksum, when it is first asked for, unless it
  has one for the storage nodes: most transactions of a log that is only written are never read.
* Failed reads leave nothing behind (weakness 13.13).
* `used_bytes` <= `capacity_bytes`, bookkeeping of `ENTRY_OVERHEAD_BYTES` per entry included.
* Dropping a partition costs as much as it holds: its queue entries stay behind, dead, until eviction meets
  them. Once they are half of the queue or more they are taken out, so there are always fewer of them than of
  the others.
"""

from __future__ import annotations

from collections import deque

from waltz_protocol.frames.blocks import SEAL_BYTES, stored_of_entry
from waltz_server.store.api import AppendEntry

ENTRY_OVERHEAD_BYTES = 200
"""Dictionary slot, queue tuple, integers and object header of one entry, measured on CPython 3.11."""

_BEFORE_TAIL_BYTES = 24

Kept = bytes | tuple[bytes, bytes]
"""A stored record; or ReqId and tail of one that nobody has asked for yet."""


class _Life:
    """One partition's entries between two drops: what the queue entries belong to."""

    __slots__ = ("alive", "entries", "used_bytes")

    def __init__(self, entries: dict[int, Kept]) -> None:
        self.entries = entries
        self.used_bytes = 0
        self.alive = True


class PartitionTransactionCache:
    """The part of one partition."""

    __slots__ = ("_cache", "_life", "entries")

    def __init__(self, cache: TransactionCache) -> None:
        self._cache = cache
        self.entries: dict[int, Kept] = {}
        self._life = _Life(self.entries)

    def get(self, transaction_id: int) -> bytes | None:
        """The stored record, if it is here."""
        kept = self.entries.get(transaction_id)
        if isinstance(kept, tuple):
            kept = self.entries[transaction_id] = stored_of_entry(transaction_id, *kept)
        return kept

    def put(self, transaction_id: int, record: bytes) -> None:
        """Add a stored record unless it is there or larger than a quarter."""
        if transaction_id not in self.entries:
            self._cache.insert(self._life, transaction_id, record, len(record))

    def put_committed(self, entry: AppendEntry) -> None:
        """The same of a transaction just committed."""
        if entry.transaction_id not in self.entries:
            size = _BEFORE_TAIL_BYTES + len(entry.tail) + SEAL_BYTES
            kept = entry.stored or (entry.req_id, entry.tail)
            self._cache.insert(self._life, entry.transaction_id, kept, size)

    def drop(self) -> None:
        """Forget everything of this partition (it left this server)."""
        life, self._life = self._life, _Life(self.entries)
        self._cache.drop(life)


class TransactionCache:
    """The shared budget. Owner: the event loop; no locks."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._largest_bytes = capacity_bytes // 4
        self._order: deque[tuple[_Life, int, int]] = deque()
        self._dead = 0

    def partition(self) -> PartitionTransactionCache:
        """A new, empty part."""
        return PartitionTransactionCache(self)

    def insert(self, life: _Life, transaction_id: int, record: Kept, size: int) -> None:
        """Put one entry of `size` bytes and evict the oldest ones until the budget holds."""
        size += ENTRY_OVERHEAD_BYTES
        if size > self._largest_bytes:
            return
        life.entries[transaction_id] = record
        life.used_bytes += size
        self._order.append((life, transaction_id, size))
        self.used_bytes += size
        while self.used_bytes > self.capacity_bytes:
            old, old_id, old_size = self._order.popleft()
            if old.alive:
                del old.entries[old_id]
                old.used_bytes -= old_size
                self.used_bytes -= old_size
            else:
                self._dead -= 1

    def drop(self, life: _Life) -> None:
        """Remove one partition's entries and give their bytes back."""
        self.used_bytes -= life.used_bytes
        self._dead += len(life.entries)
        life.alive = False
        life.entries.clear()
        order = self._order
        if 2 * self._dead >= len(order):
            for _ in range(len(order)):
                entry = order.popleft()
                if entry[0].alive:
                    order.append(entry)
            self._dead = 0
