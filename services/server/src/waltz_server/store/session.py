"""One store session: numbering, batching, pipelined frames, votes, commits in order.

Three counters (D1): assigned (`next_txid` - 1) >= durable prefixes of the replicas >= `committed`.

Hot path: `append` numbers a batch and builds a frame as soon as one replica has room; an answer is one call
that moves one prefix. No task and no future per message; entries that find no room make the next frame larger
by themselves.

Invariants
  1. Frames go to each replica in order, each exactly once, at most `max_in_flight_frames` (adapted to its
     latency) and `max_in_flight_bytes` of them unanswered.
  2. Uncommitted frames are kept; committed ones only while a replica that is behind wants them and all kept
     frames together do not exceed `replica_backlog_bytes`. A replica that falls out of the window catches up
     from committed records and comes back at a frame boundary: no gap, no overlap.
  3. After `end` nothing commits any longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from waltz_server.store.api import AppendEntry, ReadFailedError, StoreSettings
from waltz_server.store.callbacks import Callbacks
from waltz_server.store.frames import FrameQueue
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.record_run import RecordRun
from waltz_server.store.replica_session import ReplicaSession
from waltz_server.store.router import Router, Source
from waltz_server.store.session_confirmation import Confirmations
from waltz_server.store.voting import Votes

MAX_FRAME_RECORDS = 65_536
"""Storage nodes refuse more records in one request, however large `storage.maxBatchSize` is."""


class StoreSession:
    """The right of one server to write one partition, for a while. Owner: the partition store, on the
    loop."""

    def __init__(
        self,
        *,
        partition_id: int,
        session_id: int,
        resolved: int,
        quorum: int,
        settings: StoreSettings,
        list_request_size: ListRequestSize,
        on_committed: Callable[[list[AppendEntry], int], None],
        on_replica_failed: Callable[[str, str], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        """`on_committed(entries, size_bytes)` and `on_replica_failed(replica, reason)` are called on the
        loop, and `on_fault(error)` when a callback of the session has failed: it must end."""
        self.partition_id = partition_id
        self.session_id = session_id
        self.low_water_mark = resolved
        self.quorum = quorum
        self.settings = settings
        self.votes = Votes(quorum=quorum, resolved=resolved)
        self.queue = FrameQueue(
            next_txid=resolved + 1,
            max_frame_bytes=settings.max_batch_bytes,
            max_frame_records=min(
                max(settings.max_batch_records, settings.max_batch_size), MAX_FRAME_RECORDS
            ),
        )
        self.ended = False
        self.replicas: dict[str, ReplicaSession] = {}
        self._members: tuple[ReplicaSession, ...] = ()
        self.callbacks = Callbacks(on_fault)
        self.confirmations = Confirmations(self)
        self.router = Router(partition_id, session_id, list_request_size)
        self._committed_seq = 0
        self._on_committed = on_committed
        self._on_replica_failed = on_replica_failed

    @property
    def committed(self) -> int:
        """The high-water mark of this session."""
        return self.votes.committed

    @property
    def has_quorum(self) -> bool:
        return self.votes.live_voters >= self.quorum

    @property
    def idle(self) -> bool:
        """Everything assigned is committed."""
        return self.queue.next_txid == self.committed + 1

    def enter(self, replica: ReplicaSession, durable: int) -> None:
        """A replica that ZooKeeper lists as (this session, UNRESOLVED) takes part from now on."""
        self.replicas[replica.name] = replica
        self._members = tuple(self.replicas.values())
        self.queue.stored = any(member.link.stored_records for member in self._members)
        self.votes.join(replica.name, durable)
        if self.votes.admit(replica.name):
            self._advance()
        replica.try_become_live(self)
        self.pump()

    def append(self, entries: Sequence[AppendEntry]) -> int:
        """Number and send; returns the bytes taken. Commits are never reported from inside this call."""
        size_bytes = self.queue.add(entries)
        self.pump()
        return size_bytes

    def pump(self) -> None:
        """Send what there is to every replica that has room, building frames while one of them has."""
        if self.ended:
            return
        members = self._members
        queue = self.queue
        end_seq = queue.end_seq
        for replica in members:
            if replica.live and replica.next_seq < end_seq:
                replica.fill(self)
        while queue.waiting:
            end_seq = queue.end_seq
            frame = None
            for replica in members:
                if replica.next_seq == end_seq and replica.has_room:
                    if frame is None:
                        frame = queue.build()
                    replica.next_seq = frame.seq + 1
                    replica.send(self, frame.records, frame.size_bytes)
            if frame is None:
                return
        if queue.base_seq < self._committed_seq:
            self._trim()

    def stored(self, replica: ReplicaSession, first: int) -> None:
        """A replica answered a frame with success."""
        if self.ended:
            return
        if self.votes.stored(replica.name, first):
            self._advance()
        if replica.live and (self.queue.waiting or replica.next_seq < self.queue.end_seq):
            self.pump()

    def fail_replica(self, name: str, reason: str) -> None:
        """The first failure of a replica ends its votes for this session."""
        replica = self.replicas.get(name)
        if replica is None or replica.ended:
            return
        replica.become_ended(reason)
        self.votes.end(name)
        if not self.ended:
            self.confirmations.replica_failed(name)
            self._on_replica_failed(name, reason)
            self._trim()

    def end(self, reason: str) -> list[AppendEntry]:
        """Close the session; returns the entries that are assigned and not committed, in order."""
        if self.ended:
            return []
        self.ended = True
        self.confirmations.end(reason)
        for replica in self.replicas.values():
            replica.become_ended(reason)
        left: list[AppendEntry] = []
        for frame in islice(self.queue.frames, self._committed_seq - self.queue.base_seq, None):
            left += frame.entries
        return left + self.queue.waiting

    def _advance(self) -> None:
        """Report what became committed, frame by frame, in order."""
        queue = self.queue
        committed = self.votes.committed
        entries: list[AppendEntry] = []
        size_bytes = 0
        base_seq, frames = queue.base_seq, queue.frames
        while self._committed_seq < queue.end_seq:
            frame = frames[self._committed_seq - base_seq]
            if frame.last > committed:
                break
            self._committed_seq += 1
            size_bytes += frame.size_bytes
            if entries:
                entries += frame.entries
            else:
                entries = frame.entries
            frame.entries = []
        if not entries:
            return
        self.confirmations.committed(self._committed_seq - 1)
        self._trim()
        self._on_committed(entries, size_bytes)

    def _trim(self) -> None:
        """Let go of committed frames nobody needs, and of slow replicas that would need too many."""
        queue = self.queue
        needed = queue.end_seq
        catching_up = False
        for replica in self._members:
            if replica.live:
                if replica.next_seq < needed:
                    needed = replica.next_seq
            elif not replica.ended:
                catching_up = True
        most_bytes = self.settings.replica_backlog_bytes
        while queue.base_seq < self._committed_seq:
            over = queue.retained_bytes > most_bytes
            if not over and (catching_up or queue.base_seq >= needed):
                return
            if queue.base_seq >= needed:
                for replica in self._members:
                    if replica.live and replica.next_seq <= queue.base_seq:
                        replica.become_catching_up()
                catching_up = True
                needed = min((r.next_seq for r in self._members if r.live), default=queue.end_seq)
            queue.drop_first()

    async def read(self, first: int, max_count: int, max_bytes: int) -> RecordRun:
        """Committed records from `first` <= `committed` on; raises `ReadFailedError`."""
        committed = self.committed
        max_count = min(max_count, committed - first + 1)
        return await self.router.read(self._readable(first), first, max_count, max_bytes, committed=committed)

    async def read_for_copy(self, first: int, last: int, *, exclude: str) -> RecordRun | None:
        """Committed records for a replica that catches up; None when nobody can give them just now."""
        sources = {
            name: source._replace(turns=self.replicas[name].reads)
            for name, source in self._readable(first).items()
            if name != exclude
        }
        committed = self.committed
        count, most_bytes = min(last, committed) - first + 1, self.settings.catch_up_batch_bytes
        if count <= 0:
            return None
        try:
            return await self.router.read(sources, first, count, most_bytes, committed=committed)
        except ReadFailedError:
            return None

    def _readable(self, txid: int) -> dict[str, Source]:
        """Who may be asked for committed records from `txid` on (rule D11): replicas that take part in this
        session, each for what it has acknowledged in it."""
        sources: dict[str, Source] = {}
        for name, replica in self.replicas.items():
            if replica.ended:
                continue
            held = self.votes.durable(name)
            if held >= txid:
                sources[name] = Source(replica.link, held)
            else:
                self.router.slow_down(name)
        return sources

    async def drained(self, timeout_seconds: float) -> None:
        """Wait until everything assigned is committed, at most so long, and only while there is a quorum."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while not self.idle and not self.ended and self.has_quorum and loop.time() < deadline:
            await asyncio.sleep(0.005)
