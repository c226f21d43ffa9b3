"""The end of each append of a partition: who is answered what, and which copies of one append share an end.

A connection of versions 0 to 4 hears LOCK_FAILURE and nothing else, one of version 5 an answer to everything
(`append_answers`). Of version 5 an append may be sent again under its ReqId. A copy of one that is queued, in
a line or in flight joins it here and shares what becomes of it (safety E6): it is no append of its own.

Owner: the append queue of one partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from waltz_protocol.frames.append import Append
from waltz_protocol.frames.append_batch import Verdict
from waltz_protocol.frames.replies import lock_failure
from waltz_protocol.locks import LockTable
from waltz_protocol.types import ReqId
from waltz_server.partition.client import Answers, Client
from waltz_server.partition.lock_lines import LockLines
from waltz_server.partition.pending_answers import Marker
from waltz_server.partition.queued_append import Again, Found, QueuedAppend, identity_of, item_of
from waltz_server.partition.repeats import RepeatSearch
from waltz_server.store.api import AppendEntry

OVERLOADED_WAIT_MS = 50
"""What an append is asked to wait that found the queue full, which is worked off in about this time."""
INDEX_SECONDS = 5.0
"""After the last append that was sent again. To find its copies among all that are pending, these are put
into a dictionary at the first one; otherwise no append costs an entry."""
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
    again = item.again
    if again is None or again.search is not None or again.repeated is None:
        return
    again.search = search = object()

    def ended(found: Found) -> None:
        if again.search is not search:
            return  # the session in which it began is lost: another one may have written it since
        again.found = found
        if again.waiter is not None:
            lines.release(again.waiter)
            again.waiter = None
        on_end()

    repeats.search(item.append, again.repeated.searched, ended)


class AppendOutcomes:
    """See the module. `author(transaction id)`: the client that appended it, None when that is not known at
    once."""

    def __init__(self, author: Callable[[int], int | None]) -> None:
        self._author = author
        self.index: dict[bytes, QueuedAppend] | None = None
        """While appends are sent again: all that have no end yet, by `identity_of`. Invariant: of a repeated
        append at most one is in the queue, in lines or in flight."""
        self._used_at = 0.0
        self._pending: Callable[[], Iterable[QueuedAppend | Marker]] = tuple

    def follow(self, pending: Callable[[], Iterable[QueuedAppend | Marker]]) -> None:
        """`pending` gives all that are in the queue, in lines or in flight."""
        self._pending = pending

    def joins(self, client: Client, append: Append) -> bool:
        """Whether what is sent again has one that is pending under its client id and sequence number: a copy
        joins it, anything else is refused."""
        self._used_at = asyncio.get_running_loop().time()
        index = self.index
        if index is None:
            index = self.index = {
                identity_of(one.append.req_id): one
                for one in self._pending()
                if isinstance(one, QueuedAppend) and not one.resolved
            }
        first = index.get(identity_of(append.req_id))
        if first is None:
            return False
        again = first.again
        if again is None:
            again = first.again = Again()
        if first.append.tail != append.tail:
            refuse(client, append.req_id, Verdict.REQUEST_ID_IN_USE)
        elif len(again.copies) >= MAX_COPIES:
            refuse(client, append.req_id, Verdict.OVERLOADED, OVERLOADED_WAIT_MS)
        else:
            again.copies = (*again.copies, client)
        return True

    def begins(self, item: QueuedAppend) -> None:
        """It is in the queue, and there is an index."""
        if self.index is not None:
            self.index[identity_of(item.append.req_id)] = item

    def committed(self, entries: Sequence[AppendEntry], items: Sequence[QueuedAppend], now: float) -> None:
        """Durable on a quorum: entries, and what they were made of. Of version 5 those that follow each other
        are answered together."""
        if self.index is not None:
            self._ended(entries, now, self.index)
        run: Answers | None = None
        first, first_txid, count, expected = b"", -1, 0, -1
        for entry, item in zip(entries, items, strict=True):
            answers = item.mount.client.answers
            if answers is None:
                continue
            number = int.from_bytes(entry.req_id)  # one more for the next sequence number
            if number == expected and answers is run and entry.transaction_id == first_txid + count:
                count += 1
                expected += 1
                continue
            if run is not None:
                run.committed(first, first_txid, count)
            run, first, first_txid, count, expected = (
                answers, entry.req_id, entry.transaction_id, 1, number + 1
            )  # fmt: skip
        if run is not None:
            run.committed(first, first_txid, count)

    def _ended(self, entries: Sequence[AppendEntry], now: float, index: dict[bytes, QueuedAppend]) -> None:
        """What else a commit ends while there is an index, which is no longer needed after a while."""
        for entry in entries:
            item = item_of(entry)
            self._ends(item)
            if item.again is not None:
                for client in item.again.copies:
                    if client.answers is not None:
                        client.answers.committed(entry.req_id, entry.transaction_id)
        if now - self._used_at > INDEX_SECONDS and not any(item.again for item in index.values()):
            self.index = None

    def known(self, item: QueuedAppend, found: Found) -> bool:
        """Whether the search has ended it: it is in the log, or refused."""
        if found.refusal is not None:
            self.refused(item, found.refusal, found.number)
        elif found.transaction_id >= 0:
            self._ends(item)
            for client in _senders(item):
                if client.answers is not None:
                    client.answers.committed(item.append.req_id, found.transaction_id)
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
        self._ends(item)
        for client in _senders(item):
            refuse(client, item.append.req_id, verdict, number, text)

    def conflict(self, item: QueuedAppend, mark: int, locks: LockTable) -> None:
        """A lock of it was touched after its view. One with many locks is not looked up again: its check has
        the lock."""
        client, append = item.mount.client, item.append
        item.lost = True
        self._ends(item)
        if client.answers is None:
            client.send(lock_failure(client.version, append.req_id, mark))
            if item.again is None:
                return
        if item.check is not None:
            lock = item.check.conflict_lock
        else:
            few = append.write_locks + append.read_locks
            lock = next((lock for lock in few if locks.estimate((lock,), ()) >= mark), 0)
        author = self._author(mark)
        winner = -1 if author is None else author
        for one in _senders(item):
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
        self.refused(item, Verdict.VIEW_AHEAD, mark)

    def _ends(self, item: QueuedAppend) -> None:
        index = self.index
        if index is None:
            return
        identity = identity_of(item.append.req_id)
        if index.get(identity) is item:
            del index[identity]


def _senders(item: QueuedAppend) -> Iterable[Client]:
    """Who is answered: the connection of an append, and those of its copies."""
    client = item.mount.client
    return (client,) if item.again is None else (client, *item.again.copies)
