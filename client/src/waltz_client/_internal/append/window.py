"""The append side of one partition: the window of concurrent transactions around the transaction monitor.

Sends appends while the window has room, delivers outcomes, and sees to it
that silence ends: a flush request is sent when an append stays without an outcome (the *nudge*), after a
remount and after the generation grew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from waltz_client._internal.append.line import WritersLine
from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import AppendRequest
from waltz_client._internal.append.transaction_monitor import (
    Cause,
    MonitorEntry,
    Resolution,
    TransactionMonitor,
)
from waltz_client._internal.observers import Observers
from waltz_client._internal.raised import is_exit
from waltz_client._internal.req_ids import ReqIdSource
from waltz_client.errors import AppendError
from waltz_client.transaction import FeedFields
from waltz_protocol.frames.append import frame_for_version
from waltz_protocol.frames.append_batch import Answer, Repeated, Verdict, encode_repeated
from waltz_protocol.types import ReqId

log = logging.getLogger(__name__)

_CAUSES = {
    Verdict.LOCK_CONFLICT: Cause.LOCK_CONFLICT,
    Verdict.VIEW_AHEAD: Cause.LOCK_CONFLICT,
    Verdict.TOO_LARGE: Cause.TOO_LARGE,
    Verdict.OVERLOADED: Cause.OVERLOADED,
    Verdict.NO_QUORUM: Cause.NO_QUORUM,
    Verdict.REQUEST_ID_IN_USE: Cause.ID_IN_USE,
    Verdict.REPEAT_TOO_OLD: Cause.DROPPED,
    Verdict.DROPPED: Cause.DROPPED,
}
"""Of the answers that end an append; the others ask for a new mount."""
_LASTING = frozenset((Verdict.REPEAT_TOO_OLD, Verdict.TOO_LARGE, Verdict.REQUEST_ID_IN_USE))
"""What is sent again gets the same answer: whether an earlier copy is in the log is not to be learned."""
_LET_GO = 65_536
"""From so many numbers of appends without an outcome on, those of earlier choices are forgotten."""
_OF_THE_FEED = (Cause.SUPERSEDED, Cause.FLUSHED)
"""They follow from what the feed has not brought, and say nothing about what it has skipped."""


class AppendConnection(Protocol):
    """What a window needs of the connection that its partition is mounted on."""

    version: int

    def send_append(self, frame: bytes) -> bool:
        """Queue the frame of an append, with others of this turn; False when the connection is gone (nothing
        was sent)."""
        ...

    def send_flush(self, req_id: ReqId) -> bool:
        """Queue a flush request naming an append."""
        ...


class AppendWindow:
    """Window, line of writers and nudges of one partition. Owner: the partition, on the loop.

    Invariants: at most `max_outstanding` appends without an outcome (those that have joined another one and
    those whose caller gave up included),
    and none is sent while these have `max_bytes`; `outstanding_bytes` is the sum of their frames; an append
    is registered and handed to the socket in one step, so registry order is send order.
    """

    def __init__(
        self,
        req_ids: ReqIdSource,
        max_outstanding: int,
        max_bytes: int,
        on_waiting: Callable[[], object] = lambda: None,
        observers: Observers | None = None,
    ) -> None:
        """`on_waiting` is called when something begins to wait that only the passing of time may help
        on."""
        self.monitor = TransactionMonitor()
        self.max_outstanding = max_outstanding
        self.max_bytes = max_bytes
        self.outstanding_bytes = 0
        self.joined = 0
        """Appends that wait for the end of one that was sent, beside it (of a named producer)."""
        self.stopped = False
        self.ended_by: AppendError | None = None
        """Why nothing will ever be sent."""
        self.tick = 0
        self.flush_tick = 0
        self.dropped_seq_num: int | None = (
            None  # newest append that a flush found undone: its server dropped it
        )
        self.numbers_moved = False  # request ids count on from elsewhere, and no mount has said so yet
        self._shares_id = False
        self._let_go: set[int] = set()
        """Numbers of appends that had no outcome at a `close`, and may come to be in the log."""
        self._skipped = False
        """The feed has left out a part of the log that an append may be in."""
        self._flushes = 0
        """Without an answer."""
        self._stale_flushes = 0
        """Answers still to come to flushes that were sent before appends were sent again: they say nothing
        about these. One that never comes only makes another flush necessary."""
        self._flushed_on: AppendConnection | None = None
        self._req_ids = req_ids
        self.line = WritersLine(on_waiting)
        self._newest_size = 1
        self._on_waiting = on_waiting
        self._observers = observers

    @property
    def mount_epoch(self) -> int:
        """Of the instance of a named producer; 0 for other clients."""
        return 0

    @property
    def open(self) -> bool:
        """Whether another append may be sent."""
        return (
            self.monitor.outstanding + self.joined < self.max_outstanding
            and self.outstanding_bytes < self.max_bytes
            and not self.stopped
        )

    @property
    def room(self) -> int:
        """How many more appends may be sent, if they have the size of those that are on their way (of the
        last one, if none is); one at least while it is open."""
        if not self.open:
            return 0
        outstanding = self.monitor.outstanding
        size = self.outstanding_bytes / outstanding if outstanding else self._newest_size
        free = self.max_bytes - self.outstanding_bytes
        return min(self.max_outstanding - outstanding - self.joined, 1 + int((free - 1) / size))

    def send(self, session: AppendConnection, handle: PendingAppend, request: AppendRequest) -> None:
        """Register and send, with `handle.view`. EncodeError (nothing registered) when the server's version
        cannot carry the locks."""
        req_ids = self._req_ids
        generation = req_ids.generation
        seq_num = req_ids.next_seq_num()
        frame = request.frame(req_ids.pack(generation, seq_num), handle.view, session.version)
        handle.seq_num = seq_num
        handle.generation = generation
        handle.header = request.header
        handle.frame = frame
        self._take(handle)
        if not session.send_append(frame):
            self.deliver(self.monitor.abort(seq_num))

    def _take(self, handle: PendingAppend) -> None:
        """Register what is about to be sent."""
        handle.tick = self.tick
        handle.size = len(handle.frame)
        self.outstanding_bytes += handle.size
        self._newest_size = handle.size
        self.monitor.register(handle)
        if self._observers is not None:
            if handle.called_at is not None:
                waited = asyncio.get_running_loop().time() - handle.called_at
                self._observers.append_waited(handle.partition_id, waited)
            handle.sent = self._observers.append_sent(handle.partition_id, handle.size)
        if self.monitor.outstanding == 1:
            self._on_waiting()

    def deliver(self, resolved: Sequence[Resolution]) -> None:
        """Inform the callers. An error in a caller's function is logged and touches nobody else; an exit is
        raised when all are informed."""
        leaving: BaseException | None = None
        for entry, cause, mark in resolved:
            if not isinstance(entry, PendingAppend):
                continue
            if entry.searched is not None and cause in _OF_THE_FEED:
                cause = Cause.TOO_OLD
            entry.cause = cause
            entry.mark = mark
            entry.frame = b""
            self.outstanding_bytes -= entry.size
            if cause is Cause.FLUSHED:
                self.dropped_seq_num = entry.seq_num
            if self._observers is not None:
                self._observers.append_ended(entry.sent, entry)
            if self.line:
                self.line.wake(self.room)  # before `on_done`, which may send: who waits came first
            try:
                entry.on_done(entry)
            except BaseException as error:
                if is_exit(error):
                    leaving = error
                else:
                    log.exception(
                        "partition %d: the on_done function of an append raised",
                        entry.partition_id,
                        extra={"partition": entry.partition_id},
                    )
            if entry.watchers:
                for watcher in entry.watchers:
                    watcher()
        if leaving is not None:
            raise leaving

    def not_awaited(self, fields: FeedFields) -> None:
        """The own client id in the feed, and no append that waits for it.

        Either an own one that had been decided otherwise. Only servers of release 0.13.2 can do that: an
        append of an old connection that stalled between their check and their queue may land after the flush
        that failed it. Or somebody else has the same client id (safety E5): then our numbers must stay far
        from theirs.
        """
        client_id, _, partition_id, seq_num, txid, _ = fields
        awaited = seq_num in self.monitor
        if self._req_ids.gave_out(seq_num) and not awaited:
            if seq_num in self._let_go:
                self._let_go.remove(seq_num)
                return
            log.error(
                "partition %d: transaction %d is an append that was reported as failed before; it may be in the log twice",
                partition_id,
                txid,
                extra={"partition": partition_id, "transaction": txid},
            )
            return
        if not self._shares_id:
            self._shares_id = True
            log.error(
                "partition %d: transaction %d is of another client with the id %d of this one: the id was given out "
                "twice, or another program uses it",
                partition_id,
                txid,
                client_id,
                extra={"partition": partition_id, "transaction": txid, "client": client_id},
            )
        if awaited or self._req_ids.is_near(seq_num):
            self.numbers_moved = True
            self._req_ids.move(away_from=seq_num)

    def lock_failed(self, req_id: ReqId, mark: int, received: int) -> None:
        """A LOCK_FAILURE message."""
        self.monitor.high_water_mark = received
        _, resolved = self.monitor.lock_failure(req_id.seq_num, req_id.generation, mark)
        self.deliver(resolved)

    def answered(self, answer: Answer, received: int) -> bool:
        """An answer of version 5; whether a new mount is needed, behind which the append is sent again."""
        monitor, generation, seq_num = self.monitor, answer.generation, answer.seq_num
        monitor.high_water_mark = received
        if answer.verdict is Verdict.COMMITTED:
            if not self._skipped:
                return False  # the feed says so too, with nothing left out
            # What is ahead of the feed waits for it, as its caller's next view does.
            for offset in self._answered_offsets(answer, received - answer.number + 1):
                number = (seq_num + offset + 2**31) % 2**32 - 2**31
                self.deliver(monitor.committed_by_answer(number, generation, answer.number + offset))
            return False
        entry = monitor.entry(seq_num, generation)
        if not isinstance(entry, PendingAppend):
            return False
        cause = _CAUSES.get(answer.verdict)
        if entry.searched is not None and not answer.verdict.decides:
            # earlier copies may be in what the feed has skipped
            cause = Cause.TOO_OLD if answer.verdict in _LASTING else None
        if cause is None:
            return True
        entry.lock, entry.winner = answer.lock, answer.winner if answer.winner >= 0 else None
        entry.wait_ms, entry.detail = max(0, answer.number), answer.text or ""
        if cause is Cause.LOCK_CONFLICT:
            self.deliver(monitor.lock_failure(seq_num, generation, answer.number)[1])
        else:
            self.deliver(monitor.refused(seq_num, generation, cause))
        return False

    def _answered_offsets(self, answer: Answer, most: int) -> Sequence[int]:
        """Of the appends that an answer is to, up to so many, by their distance from its sequence number; it
        may name more than there are."""
        if answer.appends <= len(self.monitor):
            return range(min(answer.appends, most))
        offsets = [(one.seq_num - answer.seq_num) % 2**32 for one in self.monitor.pending_entries()]
        return sorted(offset for offset in offsets if offset < min(answer.appends, most))

    def position_lost(self, received: int) -> None:
        """The feed does not continue after `received`: where an append that is pending has to be looked for
        from now on, because it may come to be in what is skipped."""
        for entry in self.monitor.pending_entries():
            if isinstance(entry, PendingAppend) and entry.searched is None:
                entry.searched, self._skipped = received, True

    def send_again(self, session: AppendConnection, received: int) -> None:
        """The partition is mounted on a connection of version 5: what was sent before and has no outcome is
        not in the log, and nothing of it is on its way. So it is sent again, in order, under the ReqIds that
        it has (safety E6); what nobody waits for any longer has failed."""
        self._count_flushes(session)
        self._stale_flushes, self._flushes = self._stale_flushes + self._flushes, 0
        self.monitor.forget_flushes()
        over: list[int] = []
        for entry in self.monitor.pending_entries():
            if not isinstance(entry, PendingAppend) or entry.conflict >= 0:
                continue
            frame = frame_for_version(entry.frame, session.version)
            searched = received if entry.searched is None else entry.searched
            if frame is None or (entry.given_up and searched == received):
                over.append(entry.seq_num)
                continue
            entry.frame = frame
            entry.tick = self.tick
            repeated = Repeated(self._req_ids.generation, searched)
            if not session.send_append(encode_repeated(frame, repeated)):
                return
        for seq_num in over:
            self.deliver(self.monitor.abort(seq_num, Cause.FLUSHED))

    def flushed(self, seq_num: int, mark: int, received: int) -> None:
        """A FLUSH_RESPONSE message."""
        if self._stale_flushes:
            self._stale_flushes -= 1
            return
        self._flushes = max(0, self._flushes - 1)
        self.monitor.high_water_mark = received
        self.deliver(self.monitor.flush_response(seq_num, mark))

    def flush(self, session: AppendConnection) -> bool:
        """Ask for the end of everything sent so far; False when nothing is outstanding."""
        newest = self.monitor.newest
        if newest is None or not self.monitor.outstanding:
            return False
        self.flush_tick = self.tick
        req_ids = self._req_ids
        self._count_flushes(session)
        self._flushes += 1
        return session.send_flush(
            ReqId(req_ids.client_id, newest.generation, req_ids.partition_id, newest.seq_num)
        )

    def _count_flushes(self, session: AppendConnection) -> None:
        """Of this connection: answers to those of another one do not come."""
        if session is not self._flushed_on:
            self._flushed_on = session
            self._flushes = self._stale_flushes = 0

    async def settle(self, session: AppendConnection | None) -> None:
        """Ask for the outcome of everything sent so far (with a session that is mounted), and wait for it."""
        pending = [one for one in self.monitor.pending_entries() if isinstance(one, PendingAppend)]
        if not pending:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        left = len(pending)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0 and not done.done():
                done.set_result(None)

        for entry in pending:
            entry.watchers = [*(entry.watchers or ()), one_done]
        if session is not None:
            self.flush(session)
        try:
            await done
        finally:
            for entry in pending:
                entry.watchers = [watcher for watcher in entry.watchers or () if watcher is not one_done]

    def nudge(self, session: AppendConnection, threshold_ticks: int) -> bool:
        """Flush when the oldest append has been silent for the threshold, and again each threshold after
        that. Whether the partition is to be mounted again instead."""
        oldest: MonitorEntry | None = self.monitor.oldest
        if not isinstance(oldest, PendingAppend):
            return False
        if self.tick - max(oldest.tick, self.flush_tick) >= threshold_ticks:
            partition_id = self._req_ids.partition_id
            log.debug(
                "partition %d: an append is silent, flushing", partition_id, extra={"partition": partition_id}
            )
            self.flush(session)
        return False

    def refused(self) -> None:
        """The mount was answered FENCED, which only that of a named producer is."""

    def close(self, why: str = "the client was closed") -> None:
        """No further registrations; what is pending ends with an unknown outcome, for this reason."""
        self.stopped = True
        ended = self.monitor.close()
        if len(self._let_go) >= _LET_GO:
            self._let_go.clear()
        self._let_go.update(entry.seq_num for entry, _, _ in ended)
        for entry, _, _ in ended:
            if isinstance(entry, PendingAppend):
                entry.detail = why
        self.deliver(ended)
