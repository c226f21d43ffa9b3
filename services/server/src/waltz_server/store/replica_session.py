"""One replica in one store session, after ZooKeeper listed it: live frames, or catching up.

Model: *live* means that the replica has everything before frame `next_seq` and gets frames from memory, in
order. One that falls out of the kept window, or joins late, *catches up*: it copies committed records only,
reading ahead of what it appends, until it is at the first record of a kept frame and everything is answered;
then it is live again, in the same loop turn (D3).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from functools import partial
from typing import Protocol

from waltz_protocol.errors import WaltzProtocolError
from waltz_server.store.api import StoreSettings
from waltz_server.store.callbacks import Callbacks
from waltz_server.store.copy_turns import CopyTurns
from waltz_server.store.frames import FrameQueue
from waltz_server.store.record_run import RecordRun
from waltz_server.store.replica_connection import ReplicaLink
from waltz_server.store.voting import Votes
from waltz_server.store.waiting import Signal, wait_for

_CATCH_UP_RETRY_SECONDS = 0.2
_FIRST_WINDOW = 4


class ReplicaMode(enum.Enum):
    """How a replica gets what is appended."""

    CATCHING_UP = enum.auto()
    """From storage: committed records only, one request at a time. `next_seq` means nothing."""
    LIVE = enum.auto()
    """From memory, in order: it has, or has been sent, everything before frame `next_seq`."""
    ENDED = enum.auto()
    """It is no longer part of the session: nothing is sent, answers change nothing. It does not leave this
    mode."""


class SessionOfReplica(Protocol):
    """What one replica needs of its store session, and reports to it."""

    @property
    def partition_id(self) -> int: ...

    @property
    def session_id(self) -> int: ...

    @property
    def settings(self) -> StoreSettings: ...

    @property
    def votes(self) -> Votes: ...

    @property
    def queue(self) -> FrameQueue: ...

    @property
    def committed(self) -> int: ...

    @property
    def callbacks(self) -> Callbacks: ...

    def pump(self) -> None: ...

    def stored(self, replica: ReplicaSession, first: int) -> None: ...

    def fail_replica(self, name: str, reason: str) -> None: ...

    async def read_for_copy(self, first: int, last: int, *, exclude: str) -> RecordRun | None: ...


class ReplicaSession:
    """Sends frames to one replica and counts what is unanswered. Owner: the store session, on the loop."""

    def __init__(
        self,
        name: str,
        link: ReplicaLink,
        *,
        max_frames: int,
        max_bytes: int,
        slow_seconds: float,
        copies: CopyTurns,
        reads: CopyTurns,
    ) -> None:
        """`slow_seconds`: an answer slower than this halves the number of frames in flight. `copies` and
        `reads`: the turns of copies to the node, and of those from it."""
        self.name = name
        self.link = link
        self.reads = reads
        self._copies = copies
        self.next_seq = 0
        self.mode = ReplicaMode.CATCHING_UP
        """Changed by the transitions below only."""
        self.live = self.ended = False
        """Whether that is its mode; attributes, as each frame and each answer asks for them."""
        self.reason = ""
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.latency_seconds = 0.0
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._slow_seconds = slow_seconds
        self._window = float(min(_FIRST_WINDOW, max_frames))
        self._loop = asyncio.get_running_loop()
        self._changed = Signal()

    @property
    def has_room(self) -> bool:
        return self.live and self.in_flight < self._window and self.in_flight_bytes < self._max_bytes

    def fill(self, session: SessionOfReplica) -> None:
        """Send kept frames while there is room."""
        queue = session.queue
        while self.next_seq < queue.end_seq and self.has_room:
            frame = queue.get(self.next_seq)
            self.next_seq += 1
            self.send(session, frame.records, frame.size_bytes)

    def send(
        self,
        session: SessionOfReplica,
        run: RecordRun,
        size_bytes: int,
        done: asyncio.Future[None] | None = None,
    ) -> None:
        """Send the records that come next, and count them; the caller moves `next_seq` past a frame."""
        votes, first = session.votes, run.first
        votes.sent(self.name, first, first + run.count - 1)
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        sent_at = self._loop.time()
        answered = partial(session.callbacks.run, self._answered, session, first, size_bytes, sent_at, done)
        submit_run(self.link, session.session_id, session.partition_id, votes.committed, run, answered)

    def submit(
        self,
        session: SessionOfReplica,
        count: int,
        wire_records: bytes,
        callback: Callable[[Exception | None], None],
    ) -> None:
        """Send an Append of this session without counting it."""
        self.link.submit_append(session.session_id, session.partition_id, count, wire_records, callback)

    def try_become_live(self, session: SessionOfReplica) -> bool:
        """Take over in-flight frames from memory if the replica is exactly at the first record of one."""
        if self.ended or self.in_flight:
            return False
        queue = session.queue
        next_txid = session.votes.durable(self.name) + 1
        if next_txid == queue.end_txid:
            self.next_seq = queue.end_seq
        else:
            frame = queue.find(next_txid)
            if frame is None or frame.first != next_txid:
                return False
            self.next_seq = frame.seq
        self._change(ReplicaMode.LIVE)
        return True

    def become_catching_up(self) -> None:
        """Its next frame is not kept any longer."""
        self._change(ReplicaMode.CATCHING_UP)
        self._changed.notify()

    def become_ended(self, reason: str) -> None:
        """The replica takes no part any longer; the first reason stays."""
        if not self.ended:
            self._change(ReplicaMode.ENDED)
            self.reason = reason
            self._changed.notify()

    def _change(self, mode: ReplicaMode) -> None:
        self.mode = mode
        self.live = mode is ReplicaMode.LIVE
        self.ended = mode is ReplicaMode.ENDED

    async def take_part(self, session: SessionOfReplica) -> None:
        """Keep the replica going until it or the session ends. Never raises for the replica's own
        failures."""
        while not self.ended:
            ticket = self._changed.ticket()
            if self.live or self.in_flight or self.ended:
                await ticket.wait()
                continue
            try:
                await self._catch_up(session)
            except WaltzProtocolError as error:
                session.fail_replica(self.name, f"catching up: {error}")

    async def _catch_up(self, session: SessionOfReplica) -> None:
        """Copy committed records until the replica is at a kept frame, the next ones being read while
        earlier ones are appended. One append waits for its answer at a time: all partitions share the node's
        connection and its time limit, and a node takes a request of any size only where no other one of the
        partition waits."""
        unanswered: asyncio.Future[None] | None = None
        first = session.votes.durable(self.name) + 1
        while not self.ended:
            if unanswered is None:
                if self.try_become_live(session):
                    break
                first = session.votes.durable(self.name) + 1
            last = self._copied_up_to(session, first)
            run = None
            if unanswered is None or last >= first:
                run = await session.read_for_copy(first, last, exclude=self.name)
            if unanswered is not None:
                await unanswered
                unanswered = None
            elif run is None:  # weakness 29: an empty answer is a pause, never an endless loop
                await wait_for(self._changed.ticket(), _CATCH_UP_RETRY_SECONDS)
            if run is None:
                continue
            await self._copies.take(run.size_bytes)
            if not session.votes.has_voice(self.name):
                self._copies.give_back(run.size_bytes)
                return  # it ended meanwhile
            unanswered = self._loop.create_future()
            self.send(session, run, run.size_bytes, unanswered)
            first = run.last + 1
        if self.live:
            session.pump()

    @staticmethod
    def _copied_up_to(session: SessionOfReplica, first: int) -> int:
        """The last record to copy next; below `first` when it continues with a kept frame, or there is
        none."""
        queue = session.queue
        frame = queue.find(first)
        last = min(session.committed, first + session.settings.catch_up_batch_records - 1)
        if first == queue.end_txid or (frame is not None and frame.first == first):
            return first - 1
        return last if frame is None else min(last, frame.last)

    def _answered(
        self,
        session: SessionOfReplica,
        first: int,
        size_bytes: int,
        sent_at: float,
        done: asyncio.Future[None] | None,
        error: Exception | None,
    ) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= size_bytes
        if done is not None:
            self._copies.give_back(size_bytes)
            if not done.done():
                done.set_result(None)
        if self.ended:
            return
        if error is not None:
            session.fail_replica(self.name, f"append: {error}")
            return
        seconds = self._loop.time() - sent_at
        self.latency_seconds += 0.125 * (seconds - self.latency_seconds)
        if seconds > self._slow_seconds or self._window < self._max_frames:
            self._adapt(seconds)
        session.stored(self, first)
        if not self.live and not self.in_flight:
            self._changed.notify()

    def _adapt(self, seconds: float) -> None:
        """Keep the time a frame waits in the node's queue far below the request time limit."""
        if seconds > self._slow_seconds:
            self._window = max(1.0, self._window / 2)
        else:
            self._window = min(float(self._max_frames), self._window + 1.0)


def submit_run(
    link: ReplicaLink,
    session_id: int,
    partition_id: int,
    committed: int,
    run: RecordRun,
    answered: Callable[[Exception | None], None],
) -> None:
    """Append records in the form that the node takes."""
    if link.stored_records:
        link.submit_stored_append(
            session_id, partition_id, committed, run.first, run.count, run.stored, answered
        )
    else:
        link.submit_append(session_id, partition_id, run.count, run.wire, answered)
