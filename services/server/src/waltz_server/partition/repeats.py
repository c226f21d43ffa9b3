"""Is an append that is sent again in the log already? Looked for in the log itself (safety E6, ADR 37).

The window is the last `window` committed transactions. Nothing of it is kept beside what caches hold anyway:
an append is sent again so rarely, and its client knows so well how far it has looked itself
(`Repeated.searched`), that reading the part of the log in question costs less than remembering everything.
So there is nothing to rebuild when a partition changes hands: the log is the window.

What is found must be the same append: client id, sequence number and every byte of header and data. The
generation in the ReqId may be an older one.

Owner: the partition, whose task runs `run`; one search at a time, for all that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from waltz_protocol.frames.append import Append
from waltz_protocol.frames.append_batch import Verdict
from waltz_protocol.frames.blocks import tail_of_stored
from waltz_protocol.frames.feed import FRAME_BYTES
from waltz_server.partition.feed_cache import PartitionFeedCache
from waltz_server.partition.queued_append import Found, identity_of
from waltz_server.store.api import PartitionStore, ReadFailedError
from waltz_server.store.committed_mark import ReadableMark

READ_RECORDS = 1000
"""At a time, and as many frames of a cache."""
RETRY_WAIT_MS = 100
"""What a client is asked to wait when the log could not be read."""

_CLIENT, _SEQ_NUM = slice(8, 12), slice(20, 24)
"""Of a feed frame and of a stored record alike."""


NOT_THERE = Found()

_Wanted = dict[bytes, list[int]]
"""Client id and sequence number -> transaction ids that have them."""


class RepeatSearch:
    """See the module. The end of each search is reported on the loop."""

    def __init__(
        self, store: PartitionStore, mark: ReadableMark, cache: PartitionFeedCache, window: int
    ) -> None:
        self._store = store
        self._mark = mark
        self._cache = cache
        self._window = window
        self._waiting: list[tuple[Append, int, Callable[[Found], None]]] = []
        self._wake = asyncio.Event()

    @property
    def first(self) -> int:
        """The first transaction id of the window."""
        return max(0, self._mark.txid - self._window + 1)

    def search(self, append: Append, searched: int, on_end: Callable[[Found], None]) -> None:
        """Look for it above `searched`, in all that is committed by now; nothing of it is pending."""
        self._waiting.append((append, searched, on_end))
        self._wake.set()

    async def run(self) -> None:
        """Owner task, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            first, last = self.first, self._mark.txid
            due = []
            for append, searched, on_end in waiting:
                if searched + 1 < first:
                    on_end(Found(refusal=Verdict.REPEAT_TOO_OLD, number=first))
                else:
                    due.append((append, searched, on_end))
            if not due:
                continue
            try:
                start = min(searched for _, searched, _ in due) + 1
                wanted: _Wanted = {identity_of(append.req_id): [] for append, _, _ in due}
                await self._scan(wanted, start, last)
                for append, _, on_end in due:
                    on_end(await self._judge(append, wanted[identity_of(append.req_id)]))
                    due = due[1:]
            except ReadFailedError:
                for _, _, on_end in due:
                    on_end(Found(refusal=Verdict.OVERLOADED, number=RETRY_WAIT_MS))

    async def _scan(self, wanted: _Wanted, first: int, last: int) -> None:
        position = first
        while position <= last:
            count = min(READ_RECORDS, last - position + 1)
            frames = self._cache.slice(position, count)
            if frames is None:
                records = (await self._store.read(position, count)).records
                if not records:
                    raise ReadFailedError(f"no record {position}")
            else:
                view = memoryview(frames)
                records = [bytes(view[at : at + FRAME_BYTES]) for at in range(0, len(view), FRAME_BYTES)]
                await asyncio.sleep(0)
            for transaction_id, record in enumerate(records, position):
                ids = wanted.get(record[_CLIENT] + record[_SEQ_NUM])
                if ids is not None:
                    ids.append(transaction_id)
            position += len(records)

    async def _judge(self, append: Append, ids: list[int]) -> Found:
        for transaction_id in ids:
            found = await self._store.read(transaction_id, 1)
            if not found:
                raise ReadFailedError(f"no record {transaction_id}")
            if tail_of_stored(found.records[0]) == append.tail:
                return Found(transaction_id)
        return Found(refusal=Verdict.REQUEST_ID_IN_USE, number=ids[-1]) if ids else NOT_THERE
