"""An in-memory partition store for tests of the partition layer: no network, no replicas, no waiting.

It has the face of `waltz_server.store.api.PartitionStore` and keeps the committed wire records in a list. A
test decides what happens: commits come automatically on the next loop turn (`auto_commit`), or one by one
with `commit_next`; `lose_session` and `settle` play a failed session.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from waltz_protocol.frames.blocks import stored_of_record
from waltz_server.store.api import (
    AppendEntry,
    ReadFailedError,
    ReplicaStatus,
    StoreListener,
    StoreNotOpenError,
    StoreState,
)
from waltz_server.store.record_run import RecordRun

_TXID = struct.Struct(">q")


class FakePartitionStore:
    """One partition's log in memory; call `open_session` (or `run`) to let appends flow."""

    def __init__(
        self,
        partition_id: int,
        generation: int,
        *,
        listener: StoreListener,
        auto_commit: bool = True,
        records: Sequence[bytes] = (),
        max_in_flight_bytes: int = 16 * 1024 * 1024,
        max_in_flight_records: int = 65_536,
    ) -> None:
        self.partition_id = partition_id
        self.before_fence: Callable[[], Awaitable[None]] | None = None
        self.generation = generation
        self.auto_commit = auto_commit
        self.log: list[bytes] = list(records)
        self.state = StoreState.RECOVERING
        self.state_reason = "not started"
        self.session_id = -1
        self.pending_bytes = 0
        self.replica_set: list[str] = []
        self.read_error: str | None = None
        self.confirm_error: str | None = None
        self.confirm_calls = 0
        self._listener = listener
        self._pending: deque[AppendEntry] = deque()
        self._max_in_flight_bytes = max_in_flight_bytes
        self._max_in_flight_records = max_in_flight_records
        self._commit_scheduled = False
        self._was_full = False
        self._closed = asyncio.Event()
        self._opened_once = False

    # ---- the face of the store

    @property
    def problem(self) -> str:
        return "" if self.state is StoreState.OPEN else f"{self.state.value}: {self.state_reason}"

    @property
    def high_water_mark(self) -> int | None:
        return len(self.log) - 1 if self._opened_once else None

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def writable(self) -> bool:
        return (
            self.pending_bytes < self._max_in_flight_bytes
            and len(self._pending) < self._max_in_flight_records
        )

    @property
    def replicas(self) -> list[ReplicaStatus]:
        return []

    async def run(self) -> None:
        if self.before_fence is not None:
            await self.before_fence()
        self.open_session()
        await self._closed.wait()

    def close(self) -> None:
        self.state = StoreState.CLOSED
        self.state_reason = "closed"
        self._closed.set()

    def set_generation(self, generation: int) -> None:
        self.generation = max(self.generation, generation)

    def set_replicas(self, connect_strings: Sequence[str]) -> None:
        self.replica_set = list(connect_strings)

    def append(self, entries: Sequence[AppendEntry]) -> None:
        if self.state is not StoreState.OPEN:
            raise StoreNotOpenError(
                f"partition {self.partition_id} is {self.state.value}: {self.state_reason}"
            )
        next_id = len(self.log) + len(self._pending)
        for entry in entries:
            entry.transaction_id = next_id
            next_id += 1
            self._pending.append(entry)
            self.pending_bytes += entry.size_bytes
        self._was_full = self._was_full or not self.writable
        if self.auto_commit and not self._commit_scheduled:
            self._commit_scheduled = True
            asyncio.get_running_loop().call_soon(self._commit_scheduled_entries)

    async def read(self, first: int, max_count: int, max_bytes: int = 1024 * 1024) -> RecordRun:
        if self.read_error is not None:
            raise ReadFailedError(self.read_error)
        found: list[bytes] = []
        size_bytes = 0
        for wire_record in self.log[max(first, 0) : max(first, 0) + max_count]:
            size_bytes += len(wire_record)
            if found and size_bytes > max_bytes:
                break
            found.append(stored_of_record(wire_record))
        return RecordRun.of_records(max(first, 0), found)

    async def confirm_current(self) -> None:
        self.confirm_calls += 1
        if self.confirm_error is not None:
            raise StoreNotOpenError(self.confirm_error)
        if self.state is not StoreState.OPEN:
            raise StoreNotOpenError(self.state_reason)

    # ---- what a test plays

    def open_session(self) -> None:
        """Open the next session at the present end of the log (after `settle` if entries are left over)."""
        self.session_id += 1
        self._opened_once = True
        self.state, self.state_reason = StoreState.OPEN, ""
        self._listener.session_opened(len(self.log) - 1)

    def lose_session(self, reason: str, state: StoreState = StoreState.RECOVERING) -> None:
        """End the session; entries in flight stay pending until `settle`."""
        self.state, self.state_reason = state, reason
        self._listener.session_lost(reason)

    def commit_next(self, count: int | None = None) -> None:
        """Commit the oldest `count` entries in flight (all of them without an argument)."""
        taken = [self._pending.popleft() for _ in range(len(self._pending) if count is None else count)]
        for entry in taken:
            self.log.append(_TXID.pack(entry.transaction_id) + entry.req_id + entry.tail)
            self.pending_bytes -= entry.size_bytes
        if taken:
            self._listener.committed(taken)
        self._tell_writable()

    def settle(self, committed: int = 0, foreign: Sequence[bytes] = ()) -> None:
        """Decide the leftovers of a lost session: the first `committed` are in the log, the rest failed.

        `foreign` are wire records another owner appended behind them.
        """
        self.commit_next(committed)
        self.log.extend(foreign)
        failed = list(self._pending)
        self._pending.clear()
        self.pending_bytes = 0
        if failed:
            self._listener.failed(failed)
        self._tell_writable()

    def _commit_scheduled_entries(self) -> None:
        self._commit_scheduled = False
        if self.auto_commit and self.state is StoreState.OPEN:
            self.commit_next()

    def _tell_writable(self) -> None:
        if self._was_full and self.writable:
            self._was_full = False
            self._listener.store_writable()
