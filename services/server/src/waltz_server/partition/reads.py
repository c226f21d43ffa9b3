"""Reads from storage for one partition: ranges, single-flight, a few at a time.

Everything that is missing in the caches asks here for a range of committed transactions. A range that
overlaps one on its way is shortened to what is new, or joins it. The owner task (`RangeReader.run`) keeps at
most `max_concurrent` ranges on their way, so a slow read holds up neither other ranges nor any message
(weakness 13.14).

A range is read in the turn of the client that asked first, and clients take turns: whoever asks for thousands
of transactions far apart waits for them alone. Who wants a range is a feed, or a client for its requests of
data: what nobody who is still there wants is not read.

Invariants
* Ranges on their way or queued do not overlap and are kept in order, so looking one up is a binary search: a
  client decides how many there are (20,000 scattered requests are as many ranges).
* What is delivered are consecutive committed records from the start of the range; possibly fewer than asked
  for.
* A failure is reported once per range and remembered nowhere (weakness 13.13).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from waltz_server.store.api import PartitionStore, ReadFailedError
from waltz_server.store.record_run import RecordRun

MAX_READ_BYTES = 1024 * 1024
_DROPPED_ONE_BY_ONE = 16
"""So many ranges are taken out by looking each of them up; of more the lists are made anew."""


@dataclass(slots=True, eq=False)
class Range:
    """Transactions `first` to `end` - 1 wanted from storage. `turn`: the client in whose turn it is read;
    `wanted_by`: who waits for it, with the client of each."""

    first: int
    end: int
    turn: object
    wanted_by: dict[object, object] = field(default_factory=dict)


class RangeReader:
    """Owner of all reads of one partition; `on_records` and `on_failure` are called on the loop."""

    def __init__(
        self,
        store: PartitionStore,
        *,
        on_records: Callable[[Range, RecordRun], None],
        on_failure: Callable[[Range, ReadFailedError], None],
        max_concurrent: int = 4,
    ) -> None:
        self._store = store
        self._on_records = on_records
        self._on_failure = on_failure
        self._max_concurrent = max_concurrent
        self._queues: OrderedDict[object, OrderedDict[Range, None]] = OrderedDict()
        """What waits to be read, by the client in whose turn it is; whose turn it is comes first."""
        self._wanted: dict[object, set[Range]] = {}
        """What each feed, or client, waits for."""
        self._ranges: list[Range] = []
        self._firsts: list[int] = []
        """Of `_ranges`, in the same order."""
        self._wake = asyncio.Event()

    @property
    def outstanding(self) -> int:
        """Ranges queued or being read."""
        return len(self._ranges)

    def _find(self, transaction_id: int) -> tuple[int, Range | None]:
        """Where a range that begins behind this transaction has its place, and the range that contains it."""
        place = bisect_right(self._firsts, transaction_id)
        before = self._ranges[place - 1] if place else None
        return place, before if before is not None and transaction_id < before.end else None

    def covers(self, transaction_id: int) -> bool:
        """True if a range that is queued or being read contains this transaction."""
        return self._find(transaction_id)[1] is not None

    def join(self, transaction_id: int, client: object, feed: object = None) -> bool:
        """True if the transaction is on its way already; it is then read for this feed of `client` too, or
        for the client itself."""
        found = self._find(transaction_id)[1]
        if found is not None:
            self._want(found, client, feed)
        return found is not None

    def request(self, first: int, count: int, client: object = None, feed: object = None) -> None:
        """Read `count` transactions from `first` on for this feed of `client`, or for the client itself;
        joins what is on its way already."""
        place, found = self._find(first)
        if found is None:
            end = first + count
            if place < len(self._firsts):
                end = min(end, self._firsts[place])
            found = Range(first, end, client)
            self._ranges.insert(place, found)
            self._firsts.insert(place, first)
            self._queues.setdefault(client, OrderedDict())[found] = None
            self._wake.set()
        self._want(found, client, feed)

    def _want(self, wanted: Range, client: object, feed: object) -> None:
        wanter = client if feed is None else feed
        wanted.wanted_by[wanter] = client
        self._wanted.setdefault(wanter, set()).add(wanted)

    def forget(self, wanter: object) -> None:
        """A feed is over or continues elsewhere, or a client has gone: what waits for it alone is not read,
        and what was in the client's turn is read in that of somebody who is here."""
        dropped: list[Range] = []
        for wanted in self._wanted.pop(wanter, ()):
            del wanted.wanted_by[wanter]
            if not wanted.wanted_by and self._leave_queue(wanted):
                dropped.append(wanted)
        self._drop(dropped)
        for wanted in self._queues.pop(wanter, ()):
            wanted.turn = next(iter(wanted.wanted_by.values()))
            self._queues.setdefault(wanted.turn, OrderedDict())[wanted] = None

    def _leave_queue(self, wanted: Range) -> bool:
        """False if it is being read already."""
        queue = self._queues.get(wanted.turn)
        if queue is None or wanted not in queue:
            return False
        del queue[wanted]
        if not queue:
            del self._queues[wanted.turn]
        return True

    def _drop(self, dropped: list[Range]) -> None:
        """Forget ranges that are not read."""
        if len(dropped) <= _DROPPED_ONE_BY_ONE:
            for wanted in dropped:
                self._take_out(wanted)
            return
        gone = set(dropped)
        self._ranges = [wanted for wanted in self._ranges if wanted not in gone]
        self._firsts = [wanted.first for wanted in self._ranges]

    def _take_out(self, wanted: Range) -> None:
        place = bisect_right(self._firsts, wanted.first) - 1
        del self._ranges[place], self._firsts[place]

    def _next(self) -> Range:
        """The oldest range of the client whose turn it is."""
        client, queue = next(iter(self._queues.items()))
        wanted, _ = queue.popitem(last=False)
        if queue:
            self._queues.move_to_end(client)
        else:
            del self._queues[client]
        return wanted

    async def run(self) -> None:
        """Owner task, until cancelled."""
        slots = asyncio.Semaphore(self._max_concurrent)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queues:
                    await slots.acquire()
                    if not self._queues:  # a client has gone meanwhile
                        slots.release()
                        break
                    tasks.create_task(self._read(self._next(), slots))

    async def _read(self, wanted: Range, slots: asyncio.Semaphore) -> None:
        failure = None
        try:
            run = await self._store.read(wanted.first, wanted.end - wanted.first, MAX_READ_BYTES)
            if not run:
                failure = ReadFailedError(f"transaction {wanted.first} is not readable now")
        except ReadFailedError as error:
            failure = error
        finally:
            self._remove(wanted)
            slots.release()
        if failure is not None:
            self._on_failure(wanted, failure)
        else:
            self._on_records(wanted, run)

    def _remove(self, wanted: Range) -> None:
        self._take_out(wanted)
        for wanter in wanted.wanted_by:
            left = self._wanted[wanter]
            left.discard(wanted)
            if not left:
                del self._wanted[wanter]
