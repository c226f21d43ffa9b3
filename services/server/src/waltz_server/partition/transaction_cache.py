"""Committed transactions in memory, as stored records (`frames.blocks`): one budget of bytes for all
partitions of a server.

A ring in spirit, as in the reference: the oldest insertion goes first, whatever was read since. What is
committed is an entry each; what a read from storage brings is one entry, a run of records back to back, from
which a block is sent as it is: a reader of an old log costs next to nothing here.

Invariants
* Only committed transactions are put in (safety D1); callers fill it at commit and from reads below the mark.
* What is put in at its commit gets the stored form, with its checksum, when it is first asked for, unless it
  has one for the storage nodes: most transactions of a log that is only written are never read.
* Failed reads leave nothing behind (weakness 13.13).
* `used_bytes` <= `capacity_bytes`, bookkeeping of `ENTRY_OVERHEAD_BYTES` per entry and of
  `RUN_RECORD_OVERHEAD_BYTES` per record of a run included.
* The runs of a partition are in order and do not overlap; a transaction may be in a run and an entry of its
  own.
* Dropping a partition costs as much as it holds: its queue entries stay behind, dead, until eviction meets
  them. Once they are half of the queue or more they are taken out, so there are always fewer of them than of
  the others.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from waltz_protocol.frames.blocks import SEAL_BYTES, stored_of_entry
from waltz_server.store.api import AppendEntry
from waltz_server.store.record_run import RecordRun

ENTRY_OVERHEAD_BYTES = 200
"""Dictionary slot, queue tuple, integers and object header of one entry, measured on CPython 3.11."""
RUN_RECORD_OVERHEAD_BYTES = 8
"""Where a record of a run begins."""
LEAST_RUN = 16
"""Fewer records of a read are entries of their own: so runs are few, and finding one is quick."""
SLICE_RECORDS = 64
"""Looked up at a time, for whoever may want one."""

_BEFORE_TAIL_BYTES = 24

Kept = bytes | tuple[bytes, bytes]
"""A stored record; or ReqId and tail of one that nobody has asked for yet."""


class _Run:
    """Consecutive stored records back to back; the one of place i begins at `starts[i]`."""

    __slots__ = ("data", "starts")

    def __init__(self, run: RecordRun) -> None:
        self.data = run.stored
        starts = run.starts
        self.starts = starts if isinstance(starts, range) else array("q", starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def size_bytes(self) -> int:
        return len(self.data) + RUN_RECORD_OVERHEAD_BYTES * len(self)

    def records(self, at: int, most: int) -> list[bytes]:
        """At most so many from place `at` on, one by one."""
        data = self.data
        return [data[begin:end] for begin, end in pairwise(self.starts[at : at + most + 1])]

    def joined(self, at: int, most: int, most_bytes: int) -> tuple[int, bytes]:
        """The same back to back, no more than so many bytes or one: how many, and they. The whole run is not
        copied."""
        starts, begin = self.starts, self.starts[at]
        last = min(at + most, len(self))
        end = max(bisect_right(starts, begin + most_bytes, at, last + 1) - 1, at + 1)
        return end - at, self.data[begin : starts[end]]


class _Life:
    """One partition's entries and runs between two drops: what the queue entries belong to."""

    __slots__ = ("alive", "entries", "firsts", "runs", "used_bytes")

    def __init__(self, entries: dict[int, Kept]) -> None:
        self.entries = entries
        self.runs: list[_Run] = []
        self.firsts: list[int] = []
        """Of `runs`, in the same order."""
        self.used_bytes = 0
        self.alive = True

    def __len__(self) -> int:
        return len(self.entries) + len(self.runs)

    def run_of(self, transaction_id: int) -> tuple[_Run, int] | None:
        """The run that this transaction is in, and its place there."""
        number = bisect_right(self.firsts, transaction_id) - 1
        if number < 0:
            return None
        run, at = self.runs[number], transaction_id - self.firsts[number]
        return (run, at) if at < len(run) else None

    def remove_run(self, first: int) -> None:
        number = bisect_left(self.firsts, first)
        del self.firsts[number], self.runs[number]


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
        if kept is None:
            found = self._life.run_of(transaction_id)
            return found[0].records(found[1], 1)[0] if found is not None else None
        if isinstance(kept, tuple):
            kept = self.entries[transaction_id] = stored_of_entry(transaction_id, *kept)
        return kept

    def slice(self, first: int, most: int) -> list[bytes]:
        """Stored records from `first` on without a gap: none if it is not here, at most `most` and
        `SLICE_RECORDS`, possibly fewer than there are."""
        most = min(most, SLICE_RECORDS)
        in_run = self._life.run_of(first)
        if in_run is not None:
            run, at = in_run
            return run.records(at, most)
        entries, found = self.entries, []
        for transaction_id in range(first, first + most):
            kept = entries.get(transaction_id)
            if kept is None:
                break
            if isinstance(kept, tuple):
                kept = entries[transaction_id] = stored_of_entry(transaction_id, *kept)
            found.append(kept)
        return found

    def joined(self, first: int, most: int, most_bytes: int) -> tuple[int, bytes] | None:
        """Stored records from `first` on back to back, as far as one run has them: how many, at least one,
        and no more than so many bytes, or one. None if no run has the first."""
        in_run = self._life.run_of(first)
        if in_run is None:
            return None
        run, at = in_run
        return run.joined(at, most, most_bytes)

    def put(self, transaction_id: int, record: bytes) -> None:
        """Add a stored record unless it is there or larger than a quarter."""
        if transaction_id not in self.entries:
            self._cache.insert(self._life, transaction_id, record, len(record))

    def put_run(self, records: RecordRun) -> None:
        """Add consecutive records, but those that a run has already, and what follows these. As single ones
        if they are few or take a quarter together."""
        life, first, last = self._life, records.first, records.last
        number = bisect_right(life.firsts, first)
        if number:
            first = max(first, life.firsts[number - 1] + len(life.runs[number - 1]))
        if number < len(life.firsts):
            last = min(last, life.firsts[number] - 1)
        records = records.part(first, last)
        if records.count >= LEAST_RUN:
            run = _Run(records)
            if run.size_bytes <= self._cache.largest_bytes:
                life.firsts.insert(number, first)
                life.runs.insert(number, run)
                self._cache.account(life, first, run.size_bytes, is_run=True)
                return
        for transaction_id, record in enumerate(records.records, first):
            self.put(transaction_id, record)

    def put_committed(self, entries: Iterable[AppendEntry]) -> None:
        """The same of transactions just committed."""
        known = self.entries
        for entry in entries:
            if entry.transaction_id not in known:
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
        self.largest_bytes = capacity_bytes // 4 - ENTRY_OVERHEAD_BYTES
        """More are not kept as one."""
        self._order: deque[tuple[_Life, int, int, bool]] = deque()
        """Entries and runs, the oldest first: whose, the (first) transaction, bytes, whether it is a run."""
        self._dead = 0

    def partition(self) -> PartitionTransactionCache:
        """A new, empty part."""
        return PartitionTransactionCache(self)

    def insert(self, life: _Life, transaction_id: int, record: Kept, size: int) -> None:
        """Put one entry of `size` bytes, unless they are too many."""
        if size <= self.largest_bytes:
            life.entries[transaction_id] = record
            self.account(life, transaction_id, size)

    def account(self, life: _Life, first: int, size: int, *, is_run: bool = False) -> None:
        """An entry or a run of `size` bytes was put in: evict the oldest ones until the budget holds."""
        size += ENTRY_OVERHEAD_BYTES
        life.used_bytes += size
        self._order.append((life, first, size, is_run))
        self.used_bytes += size
        while self.used_bytes > self.capacity_bytes:
            old, old_id, old_size, old_is_run = self._order.popleft()
            if not old.alive:
                self._dead -= 1
                continue
            if old_is_run:
                old.remove_run(old_id)
            else:
                del old.entries[old_id]
            old.used_bytes -= old_size
            self.used_bytes -= old_size

    def drop(self, life: _Life) -> None:
        """Remove one partition's entries and give their bytes back."""
        self.used_bytes -= life.used_bytes
        self._dead += len(life)
        life.alive = False
        life.entries.clear()
        life.runs.clear()
        life.firsts.clear()
        order = self._order
        if 2 * self._dead >= len(order):
            for _ in range(len(order)):
                entry = order.popleft()
                if entry[0].alive:
                    order.append(entry)
            self._dead = 0
