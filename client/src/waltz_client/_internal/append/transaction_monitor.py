"""Transaction monitor: from the in-order feed to the outcome of each append of one partition. Pure.

Before version 5 appends are never acknowledged. What became of one follows from three things the server sends
(docs/protocol.md, clients and servers): the feed, flush responses and lock failures. The rules:

* **committed(r)**, r seen in the feed in order: everything older than r failed, r succeeded.
* **lock failure(r, h)** takes effect only when the feed has reached h: then r failed. It stays as a
  *tombstone* (no longer outstanding) until swept, because a flush may still name it.
* **flush response(r, h)** takes effect only when the feed has reached h: then everything up to and including
  r failed. Lock failures and flush responses are written by other hands than the feed and may overtake it;
  without this deferral a committed append would be called failed and be written twice by a retry.
* A disconnection on its own decides nothing.
* **an answer** of version 5 that refuses takes effect at once, but for a lock conflict, which is deferred as
  a lock failure is; one that says *committed* leaves it to the feed, unless the feed has skipped that id.

Invariants:

* entries are kept in the order they were sent; `outstanding` = entries still pending;
* the oldest entry is always pending (tombstones at the head are swept, nothing can refer to them with
  effect);
* every registered entry is reported exactly once, as committed, failed or (on close) unknown;
* `next_release` is the lowest mark at which a deferred event takes effect (`NEVER` when there is none).

Events come out as `Resolution` values in the order of effect; the shell delivers them.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

NEVER = 2**63 - 1
"""A mark no feed reaches: nothing is deferred."""


class Cause(enum.Enum):
    """Why an entry was resolved."""

    COMMITTED = "its own transaction came back in the feed"
    SUPERSEDED = "a younger append of this client committed"
    FLUSHED = "the server answered a flush and the feed did not hold it"
    LOCK_CONFLICT = "a lock was touched after the view of the append"
    NOT_SENT = "there was no connection to send it on"
    OVERLOADED = "its server had too many appends waiting"
    NO_QUORUM = "too few storage nodes could be reached"
    TOO_LARGE = "it is larger than its server permits"
    ID_IN_USE = "its request id is in use by another client of this id"
    DROPPED = "its server has given it up, and it is not in the log"
    TOO_OLD = "it was sent before what its server still looks through"
    CLOSED = "the client was closed"
    FENCED = "a newer instance of the producer has begun"


class MonitorEntry:
    """One registered append; the shell derives its handle from this, so an append costs one object."""

    __slots__ = ("conflict", "generation", "header", "pending", "seq_num")

    def __init__(self, seq_num: int, generation: int, header: int = 0) -> None:
        self.seq_num = seq_num
        self.generation = generation
        self.header = header
        self.pending = False
        self.conflict = -1


class Resolution(NamedTuple):
    """The end of one entry. `mark` is the transaction id (committed) or the mark at which it took
    effect."""

    entry: MonitorEntry
    cause: Cause
    mark: int


NOTHING: Sequence[Resolution] = ()


class TransactionMonitor:
    """Registry of the appends of one partition. Owner: the partition's stream object, on the loop."""

    def __init__(self, high_water_mark: int = -1) -> None:
        self.high_water_mark = high_water_mark
        self.outstanding = 0
        self.next_release = NEVER
        self._order: deque[MonitorEntry] = deque()
        self._by_seq: dict[int, MonitorEntry] = {}
        self._flushes: deque[tuple[int, int]] = deque()  # (mark, seq_num), in order of arrival
        self._conflicts: list[tuple[int, int]] = []  # heap of (mark, seq_num)

    @property
    def newest(self) -> MonitorEntry | None:
        """The append registered last, if it is still in the registry: the one a flush request names."""
        return self._order[-1] if self._order else None

    @property
    def oldest(self) -> MonitorEntry | None:
        """The oldest pending append."""
        return self._order[0] if self._order else None

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, seq_num: int) -> bool:
        return seq_num in self._by_seq

    def entry(self, seq_num: int, generation: int) -> MonitorEntry | None:
        """What was registered so and is pending."""
        entry = self._by_seq.get(seq_num)
        return entry if entry is not None and entry.generation == generation and entry.pending else None

    def pending_entries(self) -> list[MonitorEntry]:
        """Everything not resolved yet, oldest first."""
        return [entry for entry in self._order if entry.pending]

    def register(self, entry: MonitorEntry) -> bool:
        """Take an append just before it is sent. False (and nothing is changed) if its number is already
        registered."""
        if entry.seq_num in self._by_seq:
            return False
        entry.pending = True
        self._by_seq[entry.seq_num] = entry
        self._order.append(entry)
        self.outstanding += 1
        return True

    def committed(
        self, seq_num: int, generation: int, transaction_id: int, header: int
    ) -> Sequence[Resolution]:
        """An own request id was seen in the in-order feed. Call before `advance` to the same
        transaction.

        With another generation or header than was sent it is a stranger's, who has the same client id.
        """
        entry = self._by_seq.get(seq_num)
        if entry is None or entry.generation != generation or entry.header != header:
            return NOTHING
        order = self._order
        if order[0] is entry and entry.pending:  # the usual case: appends commit in the order they were sent
            order.popleft()
            del self._by_seq[seq_num]
            entry.pending = False
            self.outstanding -= 1
            if order and not order[0].pending:
                self._sweep_head()
            return (Resolution(entry, Cause.COMMITTED, transaction_id),)
        resolved = self._remove_through(entry, Cause.SUPERSEDED, transaction_id, include=False)
        if entry.pending:
            entry.pending = False
            self.outstanding -= 1
            resolved.append(Resolution(entry, Cause.COMMITTED, transaction_id))
        self._sweep_head()
        return resolved

    def advance(self, high_water_mark: int) -> Sequence[Resolution]:
        """The feed has reached this mark: release what was deferred to it or below."""
        self.high_water_mark = high_water_mark
        if high_water_mark < self.next_release:
            return NOTHING
        resolved: list[Resolution] = []
        while self._conflicts and self._conflicts[0][0] <= high_water_mark:
            mark, seq_num = heapq.heappop(self._conflicts)
            resolved.extend(self._fail_one(seq_num, Cause.LOCK_CONFLICT, mark))
        while self._flushes and self._flushes[0][0] <= high_water_mark:
            mark, seq_num = self._flushes.popleft()
            resolved.extend(self._flush(seq_num, mark))
        self._find_next_release()
        return resolved

    def lock_failure(
        self, seq_num: int, generation: int, mark: int
    ) -> tuple[MonitorEntry | None, Sequence[Resolution]]:
        """A LOCK_FAILURE arrived. Returns the entry if it is still pending (to be informed), and what took
        effect now."""
        entry = self._by_seq.get(seq_num)
        if entry is None or entry.generation != generation or not entry.pending:
            return None, NOTHING
        entry.conflict = mark
        if self.high_water_mark >= mark:
            return entry, self._fail_one(seq_num, Cause.LOCK_CONFLICT, mark)
        heapq.heappush(self._conflicts, (mark, seq_num))
        self._find_next_release()
        return entry, NOTHING

    def flush_response(self, seq_num: int, mark: int) -> Sequence[Resolution]:
        """A FLUSH_RESPONSE arrived: everything up to `seq_num` fails once the feed has reached `mark`."""
        if self.high_water_mark >= mark:
            return self._flush(seq_num, mark)
        self._flushes.append((mark, seq_num))
        self._find_next_release()
        return NOTHING

    def committed_by_answer(self, seq_num: int, generation: int, transaction_id: int) -> Sequence[Resolution]:
        """An answer of version 5 says that it is in the log, in a part that the feed has skipped."""
        entry = self.entry(seq_num, generation)
        return NOTHING if entry is None else self._fail_one(seq_num, Cause.COMMITTED, transaction_id)

    def refused(self, seq_num: int, generation: int, cause: Cause) -> Sequence[Resolution]:
        """An answer of version 5 says that it is not in the log, and never will be."""
        entry = self._by_seq.get(seq_num)
        if entry is None or entry.generation != generation:
            return NOTHING
        return self._fail_one(seq_num, cause, self.high_water_mark)

    def forget_flushes(self) -> None:
        """Appends are sent again: what flushes said before says nothing about these."""
        self._flushes.clear()
        self._find_next_release()

    def abort(self, seq_num: int, cause: Cause = Cause.NOT_SENT) -> Sequence[Resolution]:
        """The request never reached a socket, or no longer can: it failed, for certain."""
        return self._fail_one(seq_num, cause, self.high_water_mark)

    def close(self) -> Sequence[Resolution]:
        """Give up: every pending entry is reported with cause CLOSED (outcome unknown) and the registry is
        empty."""
        resolved = [Resolution(entry, Cause.CLOSED, self.high_water_mark) for entry in self.pending_entries()]
        for resolution in resolved:
            resolution.entry.pending = False
        self._order.clear()
        self._by_seq.clear()
        self._flushes.clear()
        self._conflicts.clear()
        self.outstanding = 0
        self.next_release = NEVER
        return resolved

    def _flush(self, seq_num: int, mark: int) -> Sequence[Resolution]:
        entry = self._by_seq.get(seq_num)
        if entry is None:
            return NOTHING
        resolved = self._remove_through(entry, Cause.FLUSHED, mark, include=True)
        self._sweep_head()
        return resolved

    def _remove_through(
        self, last: MonitorEntry, cause: Cause, mark: int, *, include: bool
    ) -> list[Resolution]:
        """Remove everything up to and including `last`; pending ones fail (`last` itself only if
        `include`)."""
        resolved: list[Resolution] = []
        while True:
            entry = self._order.popleft()
            del self._by_seq[entry.seq_num]
            if entry.pending and (include or entry is not last):
                entry.pending = False
                self.outstanding -= 1
                # A conflict that was announced and is overtaken by a flush is still a conflict: the certain
                # cause.
                why = Cause.LOCK_CONFLICT if entry.conflict >= 0 else cause
                resolved.append(Resolution(entry, why, entry.conflict if entry.conflict >= 0 else mark))
            if entry is last:
                return resolved

    def _fail_one(self, seq_num: int, cause: Cause, mark: int) -> Sequence[Resolution]:
        entry = self._by_seq.get(seq_num)
        if entry is None or not entry.pending:
            return NOTHING
        entry.pending = False
        self.outstanding -= 1
        self._sweep_head()
        return (Resolution(entry, cause, mark),)

    def _sweep_head(self) -> None:
        order = self._order
        while order and not order[0].pending:
            del self._by_seq[order.popleft().seq_num]

    def _find_next_release(self) -> None:
        flush = self._flushes[0][0] if self._flushes else NEVER
        conflict = self._conflicts[0][0] if self._conflicts else NEVER
        self.next_release = min(flush, conflict)
