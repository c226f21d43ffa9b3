"""Which locks of a partition are fought over, by whom: counted when an append is refused or has to wait,
never otherwise.

An append that meets nobody costs nothing here. What is kept is bounded, whatever the number of locks: the
`space saving` algorithm keeps the `MAX_LOCKS` locks that were met most often. A lock that is new takes the
entry of the one with the least, with its count as `over`: a count is right to within `over`, and a lock that
has more than 1/`MAX_LOCKS` of all conflicts and waits is always among those kept.

A refused append is booked on the lock whose slots gave the conflict. Locks share slots, and a table that
begins anew knows no lock: such a conflict is needless, and is booked as it was refused (docs/protocol.md,
locks).

Owner: the append queue of one partition. `follow` hands over its lines and what it has in flight, as live
views, from which `waiting` says who waits for whom now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from waltz_protocol.locks import LockTable
from waltz_server.partition.lock_lines import LockLines
from waltz_server.partition.pending_answers import Marker
from waltz_server.partition.queued_append import QueuedAppend

MAX_LOCKS = 64
"""Locks of a partition that are kept, and pairs."""
MAX_LOOKED_UP = 64
"""Locks of one refused append that are looked up; those of an append with more may remain unnamed."""
MAX_WAITING_CLIENTS = 16
"""Client ids listed for one lock; more are counted."""

Pair = tuple[int, int | None, int]
"""Lock, client that won, client that was refused."""


@dataclass(slots=True)
class Contended:
    """One lock. `conflicts`: appends refused; `waits`: appends that had to wait for it. `over`: how many of
    both together may belong to locks that had this entry before. The last conflict: `transaction` won,
    which was appended by client `winner` (None when the cache no longer has it), `loser` was refused."""

    conflicts: int = 0
    waits: int = 0
    over: int = 0
    transaction: int | None = None
    winner: int | None = None
    loser: int | None = None

    @property
    def met(self) -> int:
        """By what it is kept."""
        return self.conflicts + self.waits + self.over


@dataclass(slots=True)
class Counted:
    """A pair: appends refused, and how many of them may be those of another pair."""

    conflicts: int = 0
    over: int = 0

    @property
    def met(self) -> int:
        """By what it is kept."""
        return self.conflicts + self.over


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits for a lock now, in order: `holder` has it in flight (None: it is the next one's)."""

    lock: int
    holder: int | None
    clients: tuple[int, ...]
    count: int


K = TypeVar("K")
V = TypeVar("V", Contended, Counted)


class _Most(Generic[K, V]):
    """The entries that were met most often; `at` makes room for a new one."""

    def __init__(self, make: Callable[[], V]) -> None:
        self.entries: dict[K, V] = {}
        self._make: Callable[[], V] = make

    def at(self, key: K) -> V:
        """The entry of this key."""
        entry = self.entries.get(key)
        if entry is None:
            entry = self._make()
            if len(self.entries) >= MAX_LOCKS:
                least = min(self.entries, key=lambda one: self.entries[one].met)
                entry.over = self.entries.pop(least).met
            self.entries[key] = entry
        return entry


class Contention:
    """See the module. `author`: the client that appended a transaction, None when that is not known without a
    read."""

    def __init__(self, author: Callable[[int], int | None]) -> None:
        self.refused_appends = 0
        self._author = author
        self._locks: _Most[int, Contended] = _Most(Contended)
        self._pairs: _Most[Pair, Counted] = _Most(Counted)
        self._lines: LockLines[QueuedAppend | Marker] | None = None
        self._in_flight: Iterable[QueuedAppend] = ()

    def follow(self, lines: LockLines[QueuedAppend | Marker], in_flight: Iterable[QueuedAppend]) -> None:
        """Live views of the owner's."""
        self._lines, self._in_flight = lines, in_flight

    def refused(self, item: QueuedAppend, table: LockTable, transaction: int) -> None:
        """`transaction` was in the way of this append."""
        self.refused_appends += 1
        append = item.append
        loser: int = item.mount.client.client_id
        winner = self._author(transaction) if transaction >= 0 else None
        for locks in (append.write_locks, append.read_locks):
            for lock in locks[:MAX_LOOKED_UP]:
                if table.estimate((lock,), ()) == transaction:
                    entry = self._locks.at(lock)
                    entry.conflicts += 1
                    entry.transaction, entry.winner, entry.loser = transaction, winner, loser
                    self._pairs.at((lock, winner, loser)).conflicts += 1
                    return

    def lines_up(self, locks: Iterable[int], marked: Iterable[int]) -> None:
        """An append with these locks has to wait; `marked` are those of appends in flight."""
        for lock in islice(locks, MAX_LOOKED_UP):
            if lock in marked or (self._lines is not None and self._lines.has(lock)):
                self._locks.at(lock).waits += 1

    def locks(self) -> dict[int, Contended]:
        """The locks that are kept; not to be changed."""
        return self._locks.entries

    def pairs(self) -> dict[Pair, Counted]:
        """The pairs that are kept; not to be changed."""
        return self._pairs.entries

    def waiting(self, limit: int) -> list[Waiting]:
        """Who waits for whom now, the longest lines first."""
        if self._lines is None or not self._lines.waiting:
            return []
        lines = self._lines.longest(limit)
        wanted = {lock for lock, _ in lines}
        holders = {
            lock: item.mount.client.client_id
            for item in self._in_flight
            if not item.resolved
            for lock in item.marked
            if lock in wanted
        }
        return [
            Waiting(
                lock,
                holders.get(lock),
                tuple(waiter.client_id for waiter in islice(line, MAX_WAITING_CLIENTS)),
                len(line),
            )
            for lock, line in lines
        ]
