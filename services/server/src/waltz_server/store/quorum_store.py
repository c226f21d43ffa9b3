"""The partition store: sessions one after another, until it is closed.

One owner task per partition (`run`). Everything else is synchronous, on the loop.

Invariants
  1. At most one session is open; its id was taken by a version-checked write and by nobody else.
  2. `high_water_mark` (a `CommittedMark`; this class writes it) never goes down; it outlives sessions, and a
     recovery that would end below it is a fault: everything up to it was acknowledged.
  3. An entry accepted by `append` is reported exactly once, committed or failed, or stays pending until `run`
     ends.
  4. `state` is true: OPEN only while a quorum of listed replicas votes. `problem` also sees voters
     that are silent.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

import structlog

from waltz_cluster.errors import ClusterError
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_protocol.backoff import Backoff
from waltz_server.store.api import (
    AppendEntry,
    ReadFailedError,
    ReplicaPhase,
    ReplicaStatus,
    StoreListener,
    StoreNotOpenError,
    StoreSettings,
    StoreState,
)
from waltz_server.store.committed_mark import CommittedMark
from waltz_server.store.metadata_keeper import GenerationMismatchError, MetadataFaultError, MetadataKeeper
from waltz_server.store.opening import Opening, OpeningInterruptedError
from waltz_server.store.record_run import RecordRun
from waltz_server.store.replica_connection import ReplicaDirectory
from waltz_server.store.session import StoreSession
from waltz_server.store.session_context import SessionContext
from waltz_server.store.session_run import SessionRun
from waltz_server.store.waiting import Signal, wait_for

log = structlog.get_logger(__name__)

_READ_RETRY_SECONDS = 0.05
_OPEN = StoreState.OPEN  # a look-up by name takes as long as a call


class QuorumPartitionStore:
    """One owned partition on a quorum of storage nodes; implements
    `waltz_server.store.api.PartitionStore`."""

    def __init__(
        self,
        partition_id: int,
        generation: int,
        *,
        directory: ReplicaDirectory,
        metadata: StoreMetadata,
        settings: StoreSettings,
        listener: StoreListener,
        rng: random.Random,
        replicas: Sequence[str] = (),
    ) -> None:
        """`replicas`: connect strings of the assigned nodes (also by `set_replicas`)."""
        self.partition_id = partition_id
        self._settings = settings
        self._context = SessionContext(
            partition_id, settings, directory, MetadataKeeper(metadata, partition_id, rng), rng
        )
        self._leftovers: list[AppendEntry] = []
        self._generation = generation
        self._listener = listener
        self._replica_names = tuple(sorted(set(replicas)))
        self.state = StoreState.RECOVERING
        """Written by `report` only; like `writable` an attribute, because each append asks for it."""
        self._reason = "not started"
        self._session_id = -1
        self._mark = CommittedMark()
        self._opening: Opening | None = None
        self._run: SessionRun | None = None
        self._lost_young = 0
        self._steady_seconds = settings.max_retry_interval_ms / 1000
        self._changed = Signal()
        self._closed = False
        self._pending_count = 0
        self._pending_bytes = 0
        self.writable = True
        self._was_full = False
        self._told_lost = True
        self.before_fence: Callable[[], Awaitable[None]] | None = None

    # ---- what is asked

    @property
    def state_reason(self) -> str:
        return self._reason

    @property
    def problem(self) -> str:
        run = self._run
        if self.state is not StoreState.OPEN or run is None:
            return f"{self.state.value}: {self._reason}"
        problem = run.problem
        return f"{StoreState.NO_QUORUM.value}: {problem}" if problem else ""

    @property
    def healthy(self) -> bool:
        """No problem."""
        return not self.problem

    @property
    def current_run(self) -> SessionRun | None:
        """The session being established or open; for tests and diagnosis."""
        return self._run

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def high_water_mark(self) -> int | None:
        return self._mark.value

    @property
    def pending(self) -> int:
        return self._pending_count

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    @property
    def replicas(self) -> list[ReplicaStatus]:
        run = self._run
        if run is None and self._opening is not None:
            return self._opening.replicas
        if run is None:
            return [
                ReplicaStatus(name, ReplicaPhase.ABSENT, -1, 0, 0.0, self._reason)
                for name in self._replica_names
            ]
        return run.replicas(self._mark.txid)

    @property
    def closing(self) -> bool:
        """`close` was called, or the owner task ended."""
        return self._closed

    @property
    def asked_for(self) -> tuple[tuple[str, ...], int]:
        """The replicas and the generation that a session must be of."""
        return self._replica_names, self._generation

    # ---- what is reported

    def close(self) -> None:
        """End `run` soon; entries in flight stay undecided and are not reported."""
        self._closed = True
        if self._run is not None:
            self._run.end("closed")
        self._wake()

    def set_generation(self, generation: int) -> None:
        """Raise the generation; a running session of an older one is replaced in order."""
        if generation <= self._generation:
            return
        self._generation = generation
        if self._run is not None:
            self._run.restart(f"generation {generation}")
        self._wake()

    def set_replicas(self, connect_strings: Sequence[str]) -> None:
        """Adopt the assigned replicas; the session is replaced only when this partition's set differs
        (7.24)."""
        names = tuple(sorted(set(connect_strings)))
        if names == self._replica_names:
            return
        self._replica_names = names
        if self._run is not None:
            self._run.restart("the replica assignment has changed")
        self._wake()

    def _wake(self) -> None:
        self._changed.notify()
        if self._opening is not None:
            self._opening.changed.notify()

    # ---- data

    def append(self, entries: Sequence[AppendEntry]) -> None:
        """Accept one loop turn's entries, in order; raises `StoreNotOpenError` unless the state is OPEN."""
        session = self._open_session()
        if not entries:
            return
        size_bytes = session.append(entries)
        self._pending_count += len(entries)
        self._pending_bytes += size_bytes
        settings = self._settings
        if (
            self._pending_bytes >= settings.max_in_flight_bytes
            or self._pending_count >= settings.max_in_flight_records
        ):
            self.writable, self._was_full = False, True

    async def read(self, first: int, max_count: int, max_bytes: int = 1024 * 1024) -> RecordRun:
        """Committed records; see the seam. Waits for a session if there is none, within
        the time limit."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.read_timeout_seconds
        first = max(first, 0)
        problem = self._reason
        while True:
            ticket = self._changed.ticket()
            if max_count <= 0 or (self._mark.known and first > self._mark.txid):
                return RecordRun.of_records(first, [])
            session = None if self._run is None else self._run.open_session
            if session is not None:
                try:
                    async with asyncio.timeout_at(deadline):
                        return await session.read(first, max_count, max_bytes)
                except ReadFailedError as error:
                    problem = str(error)
                    await wait_for(ticket, min(_READ_RETRY_SECONDS, deadline - loop.time()))
                except TimeoutError:
                    problem = "no answer in time"
            else:
                problem = self._reason
                await wait_for(ticket, deadline - loop.time())
            if self._closed or loop.time() >= deadline:
                raise ReadFailedError(f"partition {self.partition_id}: {problem}")

    async def confirm_current(self) -> None:
        """Return once a quorum of the session's voters answered a request sent after this call (D4)."""
        await self._open_session().confirmations.ask()

    def _open_session(self) -> StoreSession:
        session = None if self._run is None else self._run.open_session
        if session is None or self.state is not _OPEN:
            raise StoreNotOpenError(f"partition {self.partition_id} is {self.state.value}: {self._reason}")
        return session

    # ---- the owner task

    async def run(self) -> None:
        """Sessions one after another until `close` or cancellation. Call once."""
        backoff = self._context.new_backoff()
        try:
            while not self._closed:
                asked = self.asked_for
                pause_seconds = await self._one_session(backoff)
                if pause_seconds > 0 and not self._closed and asked == self.asked_for:
                    await wait_for(self._changed.ticket(), pause_seconds)
        finally:
            self._closed = True
            self.report(StoreState.CLOSED, "closed")
            self._changed.notify()

    async def _one_session(self, backoff: Backoff) -> float:
        """Returns the seconds to wait before the next try."""
        names, generation = self.asked_for
        if not names:
            self.report(StoreState.FAULT, "no replica is assigned to the partition")
            return self._settings.max_retry_interval_ms / 1000
        try:
            self._opening = Opening(self, self._context, names, generation)
            try:
                taken = await self._opening.take()
            finally:
                self._opening = None
            self._session_id = taken.metadata.session_id
            before_fence, self.before_fence = self.before_fence, None
            if before_fence is not None:
                await before_fence()
                if self._closed or self.asked_for != (names, generation):
                    return 0.0
            self._run = SessionRun(
                self,
                self._context,
                replicas=names,
                metadata=taken.metadata,
                recorded_session=taken.recorded.session_id,
                acknowledged=self._mark.txid,
                leftovers=self._leftovers,
                ends=taken.ends,
            )
            outcome = await self._run.run()
            open_seconds = outcome.open_seconds
            if outcome.replaced or (open_seconds is not None and open_seconds > self._steady_seconds):
                backoff.reset()
                self._lost_young = 0
                return 0.0
            if open_seconds is not None:
                # Lost soon after it opened: once that is bad luck, again and again it needs a pause.
                self._lost_young += 1
                return backoff.next_seconds() if self._lost_young > 1 else 0.0
            self.report(
                self.state if self.state is not StoreState.OPEN else StoreState.RECOVERING, outcome.reason
            )
        except OpeningInterruptedError:
            return 0.0
        except GenerationMismatchError as error:
            self.report(StoreState.RECOVERING, f"waiting for a newer generation: {error}")
        except MetadataFaultError as error:
            self.report(StoreState.FAULT, str(error))
        except ClusterError as error:
            self.report(StoreState.RECOVERING, f"ZooKeeper: {error}")
        except ExceptionGroup as group:
            self._log(logging.ERROR, "a store session failed", exc_info=group)
            self.report(StoreState.RECOVERING, f"internal error: {group.exceptions[0]}")
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # a task group that fails forgets a cancellation
                raise asyncio.CancelledError from group
        return backoff.next_seconds()

    # ---- what the session run reports (SessionHost)

    def report(self, state: StoreState, reason: str) -> None:
        """Change the state. Only news are logged, but that it is open: the partition says that."""
        if (state, reason) != (self.state, self._reason):
            level = logging.INFO if state in (StoreState.RECOVERING, StoreState.CLOSED) else logging.WARNING
            if state is not self.state and state is not StoreState.OPEN:
                self._log(level, "store state changed", state=state.value, reason=reason)
            self.state, self._reason = state, reason

    def session_opened(self, resolved: int) -> None:
        """Recovery is complete, leftovers are settled: appends flow."""
        self._mark.rise_to(resolved)
        self.report(StoreState.OPEN, "")
        self._told_lost = False
        self._changed.notify()
        self._listener.session_opened(resolved)

    def stopped(self, state: StoreState, reason: str) -> None:
        """No more appends; what is in flight may still be committed by the ending session."""
        self.report(state, reason)
        self._tell_lost(reason)

    def commit(self, entries: list[AppendEntry], size_bytes: int) -> None:
        """A batch is durable on a quorum."""
        self._take_off(len(entries), size_bytes)
        self._mark.rise_to(entries[-1].transaction_id)
        self._listener.committed(entries)
        self._tell_writable()

    def settle(self, committed: int) -> None:
        """The first `committed` leftovers are in the resolved log, the others are not and never will be."""
        entries, self._leftovers = self._leftovers, []
        done, lost = entries[:committed], entries[committed:]
        self._take_off(len(entries), sum(entry.size_bytes for entry in entries))
        if done:
            self._mark.rise_to(done[-1].transaction_id)
            self._listener.committed(done)
        if lost:
            self._listener.failed(lost)
        self._tell_writable()

    def session_ended(self, left: list[AppendEntry], reason: str) -> None:
        """The session is over; `left` waits for the next one's log."""
        self._leftovers += left
        self._run = None
        if self.state is StoreState.OPEN:
            self.report(StoreState.RECOVERING, reason)
        self._tell_lost(reason)

    def _tell_lost(self, reason: str) -> None:
        if not self._told_lost:
            self._told_lost = True
            self._listener.session_lost(reason)

    def _log(self, level: int, event: str, **values: object) -> None:
        log.log(level, event, partition=self.partition_id, session=self._session_id, **values)

    def _take_off(self, count: int, size_bytes: int) -> None:
        self._pending_count -= count
        self._pending_bytes -= size_bytes
        settings = self._settings
        self.writable = (
            self._pending_bytes < settings.max_in_flight_bytes
            and self._pending_count < settings.max_in_flight_records
        )

    def _tell_writable(self) -> None:
        if self._was_full and self.writable:
            self._was_full = False
            self._listener.store_writable()
