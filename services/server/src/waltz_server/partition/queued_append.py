"""An append on its way through a partition, what it takes of the queue, and how it is refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from waltz_protocol.frames.append import MAX_LOCKS, Append
from waltz_protocol.frames.append_batch import Repeated, Verdict
from waltz_protocol.locks import LockCheck, LockTable
from waltz_server.partition.client import Client
from waltz_server.partition.lock_lines import Waiter
from waltz_server.partition.mounts import Mount
from waltz_server.partition.pending_answers import Marker
from waltz_server.store.api import AppendEntry

MAX_LOCKS_IN_FLIGHT = MAX_LOCKS
"""Of appends that are looked up in slices (one may be larger): what the commits of a turn may raise."""
_ITEM_OVERHEAD_BYTES = 36
_LOCK_BYTES = 40
"""Of memory: a reference and an integer."""


class Found(NamedTuple):
    """What the search for an append that is sent again ended with. `transaction_id` is -1 when the append is
    certainly not in the log, unless there is a `refusal`, with the number that goes with it."""

    transaction_id: int = -1
    refusal: Verdict | None = None
    number: int = -1


@dataclass(slots=True, eq=False)
class Again:
    """What an append has to do with its other sendings."""

    repeated: Repeated | None = None
    """It was sent before, and none of its copies is pending: the log is searched for it."""
    found: Found | None = None
    """What the search has found."""
    search: object | None = None
    """The one under way or ended. What it has found holds in the session in which it began only."""
    waiter: Waiter[Any] | None = None
    """In lines, until the search has ended."""
    copies: tuple[Client, ...] = ()
    """Who has sent it again while it was pending."""


@dataclass(slots=True, eq=False)
class QueuedAppend:
    """One append: in the queue, perhaps in lines, then as `context` of its entry in the store."""

    mount: Mount
    append: Append
    arrived_at: float
    number: int
    """Its place among all that has arrived."""
    size_bytes: int
    """Of memory, about."""
    again: Again | None = None
    """Of one that was sent before, or sent again while it is pending: most are neither."""
    check: LockCheck | None = None
    """Of one with many locks, from when it comes to the head until its outcome."""
    marked: tuple[int, ...] = ()
    resolved: bool = False
    lost: bool = False
    """Refused because of a lock."""
    handed_at: float = 0.0
    """When it was handed to the store, on the clock of `arrived_at`."""

    @property
    def searched_for(self) -> bool:
        """Whether it must not be admitted yet: the search for it has not ended."""
        again = self.again
        return again is not None and again.repeated is not None and again.found is None


def back_in_the_queue(queue: deque[QueuedAppend | Marker], others: Iterable[QueuedAppend | Marker]) -> None:
    """Put others, which are in no line any longer, where they belong in the order of arrival."""
    waiting = sorted((*queue, *others), key=lambda one: one.number)
    queue.clear()
    for one in waiting:
        if isinstance(one, QueuedAppend) and one.again is not None:
            one.again.waiter = one.again.found = one.again.search = None
        queue.append(one)


def identity_of(req_id: bytes) -> bytes:
    """What all copies of one append share of their ReqIds: client id and sequence number."""
    return req_id[:4] + req_id[12:]


def item_of(entry: AppendEntry) -> QueuedAppend:
    """What an entry was made of."""
    if not isinstance(entry.context, QueuedAppend):
        raise TypeError("an entry came back from the store without the context it was given")
    return entry.context


def size_of(append: Append) -> int:
    """Bytes of memory, about; few locks do not count."""
    size = len(append.tail) + _ITEM_OVERHEAD_BYTES
    return size if append.__class__ is Append else size + _LOCK_BYTES * lock_count(append)


def lock_count(append: Append) -> int:
    """Of all kinds together."""
    return len(append.write_locks) + len(append.read_locks) + len(append.append_locks)


def look_up(item: QueuedAppend, locks: LockTable, in_flight: int) -> LockCheck | None:
    """The look-up of the locks of an append that has many, which may have to be advanced; None while too many
    are in flight."""
    check, append = item.check, item.append
    if in_flight and in_flight + lock_count(append) > MAX_LOCKS_IN_FLIGHT:
        return None  # until outcomes make room
    if check is None or check.table is not locks:
        check = LockCheck(locks, append.write_locks, append.read_locks, append.append_locks)
        item.check = check
    return check
