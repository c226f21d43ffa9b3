"""The end of each append of a partition: who is answered what, and which copies of one append share an end.

A connection of versions 0 to 4 hears LOCK_FAILURE and nothing else, one of version 5 an answer to everything
(`append_answers`). Of version 5 an append may be sent again under its ReqId. A copy of one that is queued, in
a line or in flight joins it here and shares what becomes of it (safety E6): it is no append of its own.

Owner: the append queue of one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from waltz_protocol.frames.append import Append
from waltz_protocol.frames.append_batch import Verdict
from waltz_protocol.frames.replies import lock_failure
from waltz_protocol.locks import LockTable
from waltz_protocol.types import ReqId
from waltz_server.partition.client import Client
from waltz_server.partition.lock_lines import LockLines
from waltz_server.partition.pending_answers import Marker
from waltz_server.partition.queued_append import Found, QueuedAppend
from waltz_server.partition.repeats import RepeatSearch

OVERLOADED_WAIT_MS = 50
"""What an append is asked to wait that found the queue full, which is worked off in about this time."""
MAX_COPIES = 16
"""Of one append that wait for its end with it. Our clients send none while an earlier one may be pending."""


def refuse(
    client: Client, req_id: bytes, verdict: Verdict, number: int = -1, text: str | None = None
) -> None:
    """The end of an append that no queue has taken; silence before version 5."""
    answers = client.answers
    if answers is not None:
        answers.refused(req_id, verdict, number, text)


def begin_search(
    item: QueuedAppend, repeats: RepeatSearch, lines: LockLines[Any], on_end: Callable[[], None]
) -> None:
    """Find out whether it is in the log, once; it waits in lines meanwhile, or at the head of the queue."""
    if item.searching or item.repeated is None:
        return
    item.searching = True

    def ended(found: Found) -> None:
        item.found = found
        if item.waiter is not None:
            lines.release(item.waiter)
            item.waiter = None
        on_end()

    repeats.search(item.append, item.repeated.searched, ended)


class AppendOutcomes:
    """See the module. `author(transaction id)`: the client that appended it, None when that is not known at
    once."""

    def __init__(self, author: Callable[[int], int | None]) -> None:
        self._author = author
        self._pending: dict[bytes, QueuedAppend] = {}
        """Of version 5, by ReqId: without an end. Invariant: at most one of a ReqId is in the queue, in lines
        or in flight."""

    def joins(self, client: Client, append: Append) -> bool:
        """Whether one is pending under its ReqId: a copy joins it, anything else is refused."""
        first = self._pending.get(append.req_id)
        if first is None:
            return False
        if first.append.tail != append.tail:
            refuse(client, append.req_id, Verdict.REQUEST_ID_IN_USE)
        elif len(first.copies) >= MAX_COPIES:
            refuse(client, append.req_id, Verdict.OVERLOADED, OVERLOADED_WAIT_MS)
        else:
            first.copies = (*first.copies, client)
        return True

    def begins(self, item: QueuedAppend) -> None:
        """It is in the queue; of version 5."""
        self._pending[item.append.req_id] = item

    def committed(self, item: QueuedAppend, transaction_id: int) -> None:
        """Durable on a quorum; of version 5."""
        req_id, pending = item.append.req_id, self._pending
        if pending.get(req_id) is item:
            del pending[req_id]
        answers = item.mount.client.answers
        if answers is not None:
            answers.committed(req_id, transaction_id)
        for client in item.copies:
            if client.answers is not None:
                client.answers.committed(req_id, transaction_id)

    def known(self, item: QueuedAppend, found: Found) -> bool:
        """Whether the search has ended it: it is in the log, or refused."""
        if found.refusal is not None:
            self.refused(item, found.refusal, found.number)
        elif found.transaction_id >= 0:
            self.committed(item, found.transaction_id)
        else:
            return False
        return True

    def closed(self, waiting: Iterable[QueuedAppend | Marker], in_flight: Iterable[QueuedAppend]) -> None:
        """The partition leaves. What is in flight may be in the log, and is for the next owner to say."""
        for item in waiting:
            if isinstance(item, QueuedAppend):
                self.refused(item, Verdict.NOT_SERVED)
        for item in in_flight:
            if not item.resolved:
                self.refused(item, Verdict.UNDECIDED)

    def refused(
        self, item: QueuedAppend, verdict: Verdict, number: int = -1, text: str | None = None
    ) -> None:
        """Not handed to the store, or certainly not in the log, or UNDECIDED."""
        if item.mount.client.answers is None:
            return
        self._ends(item)
        for client in (item.mount.client, *item.copies):
            refuse(client, item.append.req_id, verdict, number, text)

    def conflict(self, item: QueuedAppend, mark: int, locks: LockTable) -> None:
        """A lock of it was touched after its view."""
        client, append = item.mount.client, item.append
        item.lost = True
        if client.answers is None:
            client.send(lock_failure(client.version, append.req_id, mark))
            return
        self._ends(item)
        lock = next(
            (lock for lock in append.write_locks + append.read_locks if locks.estimate((lock,), ()) >= mark),
            0,
        )
        author = self._author(mark)
        winner = -1 if author is None else author
        for one in (client, *item.copies):
            if one.answers is not None:
                one.answers.conflict(append.req_id, mark, lock, winner)

    def view_ahead(self, item: QueuedAppend, mark: int) -> None:
        """The view of an append with checked locks is beyond the log: no lock could ever conflict with it
        (safety D9).

        Before version 5, LOCK_FAILURE with our mark is the one refusal every version has, and it is true:
        nothing was handed to the store.
        """
        client, append = item.mount.client, item.append
        client.misbehaved(
            f"refused an append with locks and the view {append.client_high_water_mark}: the log of partition "
            f"{ReqId.unpack(append.req_id).partition_id} ends at {mark}"
        )
        if client.answers is None:
            client.send(lock_failure(client.version, append.req_id, mark))
        else:
            self.refused(item, Verdict.VIEW_AHEAD, mark)

    def _ends(self, item: QueuedAppend) -> None:
        if self._pending.get(item.append.req_id) is item:
            del self._pending[item.append.req_id]
