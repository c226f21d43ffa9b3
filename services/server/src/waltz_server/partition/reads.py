"""Reads from storage for one partition: ranges, single-flight, a few at a time.

Everything that is missing in the caches asks here for a range of committed transactions. A range that overlaps one
on its way is shortened to what is new, or joins it. The owner task (`RangeReader.run`) keeps at most
`max_concurrent` ranges on their way, so a slow read holds up neither other ranges nor any message (weakness 13.14).

Invariants
* What is delivered are consecutive committed wire records from the start of the range; possibly fewer than asked for.
* A failure is reported once per range and remembered nowhere (weakness 13.13).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from waltz_server.store.api import PartitionStore, ReadFailedError

MAX_READ_BYTES = 1024 * 1024


@dataclass(slots=True, eq=False)
class Range:
    """Transactions `first` to `end` - 1 wanted from storage."""

    first: int
    end: int


class RangeReader:
    """Owner of all reads of one partition; `on_records` and `on_failure` are called on the loop."""

    def __init__(
        self,
        store: PartitionStore,
        *,
        on_records: Callable[[Range, list[bytes]], None],
        on_failure: Callable[[Range, ReadFailedError], None],
        max_concurrent: int = 4,
    ) -> None:
        self._store = store
        self._on_records = on_records
        self._on_failure = on_failure
        self._max_concurrent = max_concurrent
        self._queue: deque[Range] = deque()
        self._ranges: list[Range] = []
        self._wake = asyncio.Event()

    @property
    def outstanding(self) -> int:
        """Ranges queued or being read."""
        return len(self._ranges)

    def covers(self, transaction_id: int) -> bool:
        """True if a range that is queued or being read contains this transaction."""
        return any(r.first <= transaction_id < r.end for r in self._ranges)

    def request(self, first: int, count: int) -> None:
        """Read `count` transactions from `first` on; a no-op where they are on their way already."""
        if self.covers(first):
            return
        end = min((r.first for r in self._ranges if r.first > first), default=first + count)
        wanted = Range(first, min(end, first + count))
        self._ranges.append(wanted)
        self._queue.append(wanted)
        self._wake.set()

    async def run(self) -> None:
        """Owner task, until cancelled."""
        slots = asyncio.Semaphore(self._max_concurrent)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    await slots.acquire()
                    tasks.create_task(self._read(self._queue.popleft(), slots))

    async def _read(self, wanted: Range, slots: asyncio.Semaphore) -> None:
        try:
            records = await self._store.read(wanted.first, wanted.end - wanted.first, MAX_READ_BYTES)
            failure = None if records else ReadFailedError(f"transaction {wanted.first} is not readable now")
        except ReadFailedError as error:
            records, failure = [], error
        finally:
            self._ranges.remove(wanted)
            slots.release()
        if failure is not None:
            self._on_failure(wanted, failure)
        else:
            self._on_records(wanted, records)
