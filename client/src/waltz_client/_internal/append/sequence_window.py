"""The append side of one partition of a named producer (ADR 38).

Another instance may append under the same number, with the same content or with another one. So the feed,
which has numbers only, ends nothing here: the server's answer does, once the feed has reached its id. Every
sending is a repeated one, and what has no answer is sent again behind the next mount. What a server refuses
for the moment is sent to it again after the wait that its answer names.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import AppendRequest
from waltz_client._internal.append.sequences import SequenceMarks, content_checksum
from waltz_client._internal.append.transaction_monitor import (
    NEVER,
    NOTHING,
    Cause,
    MonitorEntry,
    Resolution,
    TransactionMonitor,
)
from waltz_client._internal.append.window import AppendConnection, AppendWindow
from waltz_client._internal.observers import Observers
from waltz_client._internal.producer import Instance
from waltz_client._internal.req_ids import ReqIdSource
from waltz_client.errors import (
    Outcome,
    RepeatTooOldError,
    SequenceInUseError,
    SequenceUnsupportedError,
    TransactionTooLargeError,
    UsageError,
)
from waltz_client.transaction import FeedFields
from waltz_protocol.frames.append import frame_for_version
from waltz_protocol.frames.append_batch import FIRST_VERSION, Answer, Repeated, Verdict, encode_repeated

_REASONS = {
    Verdict.OVERLOADED: Cause.OVERLOADED.value,
    Verdict.NO_QUORUM: Cause.NO_QUORUM.value,
}
"""Of the verdicts that pass while the mount stays."""
NO_QUORUM_WAIT_SECONDS = 1.0
"""After an answer that names no wait; its server has waited for the storage nodes itself."""
LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 0.01, 5.0
"""Between two turns of sending what was refused for the moment."""


def _is_given_up(entry: MonitorEntry) -> bool:
    """Neither its caller waits for it, nor one that has joined it."""
    return isinstance(entry, PendingAppend) and all(one.given_up for one in (entry, *(entry.twins or ())))


class SequenceMonitor(TransactionMonitor):
    """Appends by sequence number. A commit is deferred, as a conflict is, until the feed has reached it."""

    def __init__(self) -> None:
        super().__init__()
        self._commits: list[tuple[int, int]] = []  # heap of (transaction id, sequence number)

    def pending_at(self, sequence: int) -> MonitorEntry | None:
        """What is on its way under a number."""
        entry = self._by_seq.get(sequence)
        return entry if entry is not None and entry.pending else None

    def undecided(self) -> list[MonitorEntry]:
        """What has no answer, oldest first; the end of others waits for the feed."""
        committed = {sequence for _, sequence in self._commits}
        return [one for one in self.pending_entries() if one.conflict < 0 and one.seq_num not in committed]

    def register(self, entry: MonitorEntry) -> bool:
        """See `TransactionMonitor`; a number whose append has ended may be used again."""
        ended = self._by_seq.get(entry.seq_num)
        if ended is not None and not ended.pending:
            self._order.remove(ended)
            del self._by_seq[entry.seq_num]
        return super().register(entry)

    def committed(
        self, seq_num: int, generation: int, transaction_id: int, header: int
    ) -> Sequence[Resolution]:
        """In the feed: says nothing about whose content it is."""
        return NOTHING

    def committed_by_answer(self, seq_num: int, generation: int, transaction_id: int) -> Sequence[Resolution]:
        """The server's answer: it takes effect when the feed has reached it."""
        if self.entry(seq_num, generation) is None:
            return NOTHING
        if self.high_water_mark >= transaction_id:
            return self._fail_one(seq_num, Cause.COMMITTED, transaction_id)
        heapq.heappush(self._commits, (transaction_id, seq_num))
        self._find_next_release()
        return NOTHING

    def advance(self, high_water_mark: int) -> Sequence[Resolution]:
        """See `TransactionMonitor`."""
        resolved = list(super().advance(high_water_mark))
        while self._commits and self._commits[0][0] <= high_water_mark:
            transaction_id, sequence = heapq.heappop(self._commits)
            resolved.extend(self._fail_one(sequence, Cause.COMMITTED, transaction_id))
        self._find_next_release()
        return resolved

    def close(self) -> list[Resolution]:
        """See `TransactionMonitor`."""
        self._commits.clear()
        return list(super().close())

    def _find_next_release(self) -> None:
        super()._find_next_release()
        self.next_release = min(self.next_release, self._commits[0][0] if self._commits else NEVER)


class SequenceWindow(AppendWindow):
    """See the module."""

    monitor: SequenceMonitor

    def __init__(
        self,
        req_ids: ReqIdSource,
        max_outstanding: int,
        max_bytes: int,
        on_waiting: Callable[[], object],
        observers: Observers | None,
        instance: Instance,
    ) -> None:
        super().__init__(req_ids, max_outstanding, max_bytes, on_waiting, observers)
        self.monitor = SequenceMonitor()
        self._instance = instance
        self._marks: SequenceMarks = instance.marks_of(req_ids.partition_id)
        self.received: Callable[[], int] = lambda: -1
        """Up to where the feed has come; set by who makes both."""
        self.session: Callable[[], AppendConnection | None] = lambda: None
        """What the partition is mounted on; set likewise."""
        self._refused: dict[int, float] = {}
        """Sequence number -> when it is sent again, on the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def mount_epoch(self) -> int:
        """See `AppendWindow`."""
        return 0 if self._instance.fenced else self._instance.epoch

    def refused(self) -> None:
        """See `AppendWindow`."""
        self._instance.superseded(None)

    def fence(self) -> None:
        """A newer instance has begun: nothing more is sent, and what is on its way has an unknown outcome."""
        partition_id = self._req_ids.partition_id
        self._forget_refused()
        self.stopped, self.ended_by = True, self._instance.fenced_error(partition_id)
        ended = self.monitor.close()
        for entry, _, _ in ended:
            if isinstance(entry, PendingAppend):
                entry.failure = self._instance.fenced_error(partition_id, Outcome.UNKNOWN)
        self.deliver([Resolution(entry, Cause.FENCED, mark) for entry, _, mark in ended])
        self.line.fail(self.ended_by)

    # -- sending ---------------------------------------------------------------------------------------------

    def send(self, session: AppendConnection, handle: PendingAppend, request: AppendRequest) -> None:
        """See `AppendWindow`. The same append under way is joined, locks and view are those of the first.
        SequenceUnsupportedError, SequenceInUseError."""
        sequence, partition_id = request.sequence, request.partition_id
        if sequence is None:
            raise UsageError("an append of a named producer has a sequence number")
        if session.version < FIRST_VERSION:
            raise SequenceUnsupportedError(partition_id=partition_id, version=session.version)
        content = content_checksum(request.header, request.data)
        first = self.monitor.pending_at(sequence)
        if isinstance(first, PendingAppend):
            if (first.generation, first.header, first.data) != (content, request.header, request.data):
                raise SequenceInUseError(partition_id=partition_id, sequence=sequence, transaction_id=None)
            if first.twins is None:
                first.twins = []
            first.twins.append(handle)
            handle.refusal, handle.view = first.refusal, first.view
            self.joined += 1
            return
        frame = request.frame(self._req_ids.pack(content, sequence), handle.view, session.version)
        handle.seq_num, handle.generation, handle.header = sequence, content, request.header
        handle.data, handle.frame = request.data, frame
        repeated = self._repeated(handle, sequence)
        self._take(handle)
        if not session.send_append(encode_repeated(frame, repeated)):
            self.deliver(self.monitor.abort(sequence))

    def _repeated(self, entry: PendingAppend, sequence: int) -> Repeated:
        """What was searched once stays so."""
        self.catch_up()
        searched = max(-1 if entry.searched is None else entry.searched, self._marks.searched(sequence))
        entry.searched = searched
        return Repeated(self._req_ids.generation, searched)

    def _searches_less(self, entry: PendingAppend) -> bool:
        """Whether more of the log need not be searched when the append is sent again behind the next mount:
        the feed was behind, or has advanced since."""
        self.catch_up()
        sequence, searched = entry.seq_num, -1 if entry.searched is None else entry.searched
        return sequence > self._marks.last or self._marks.searched(sequence) > searched

    def catch_up(self) -> None:
        """Note how far the feed has come."""
        self._marks.received(self.received())

    def send_again(self, session: AppendConnection, received: int) -> None:
        """See `AppendWindow`: what has no end yet, in order; what nobody waits for is left to who sends it
        next."""
        self.monitor.high_water_mark = received
        self._forget_refused()
        self._send_all(session, self.monitor.undecided())

    def _send_all(self, session: AppendConnection, entries: Sequence[MonitorEntry]) -> None:
        over: list[int] = []
        for entry in entries:
            if not isinstance(entry, PendingAppend):
                continue
            frame = frame_for_version(entry.frame, session.version)
            if frame is None or _is_given_up(entry):
                over.append(entry.seq_num)
                continue
            entry.frame, entry.tick = frame, self.tick
            if not session.send_append(encode_repeated(frame, self._repeated(entry, entry.seq_num))):
                return
        self._end(over)

    def _end(self, sequences: Sequence[int]) -> None:
        """Without an answer, and they are not sent again."""
        for sequence in sequences:
            self.deliver(self.monitor.abort(sequence, Cause.TOO_OLD))

    def _refused_for_now(self, entry: PendingAppend, answer: Answer) -> None:
        wait = answer.number / 1000 if answer.verdict is Verdict.OVERLOADED else NO_QUORUM_WAIT_SECONDS
        wait = min(max(wait, LEAST_WAIT_SECONDS), MOST_WAIT_SECONDS)
        loop = asyncio.get_running_loop()
        due = self._refused[entry.seq_num] = loop.time() + wait
        if self._timer is None or self._timer.when() > due + LEAST_WAIT_SECONDS:
            self._start_timer(due)

    def _start_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._send_refused)

    def _send_refused(self) -> None:
        """The time of one at least has come, if the partition is still mounted, and at a server that takes
        it; else `send_again` will do."""
        self._timer = None
        session = self.session()
        if session is None or session.version < FIRST_VERSION:
            self._refused.clear()
            return
        now = asyncio.get_running_loop().time()
        due = {sequence for sequence, at in self._refused.items() if at <= now}
        for sequence in due:
            del self._refused[sequence]
        if self._refused:
            self._start_timer(max(min(self._refused.values()), now + LEAST_WAIT_SECONDS))
        self._send_all(session, [one for one in self.monitor.undecided() if one.seq_num in due])

    def _forget_refused(self) -> None:
        self._refused.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self, why: str = "the client was closed") -> None:
        """See `AppendWindow`."""
        self._forget_refused()
        super().close(why)

    # -- outcomes --------------------------------------------------------------------------------------------

    def deliver(self, resolved: Sequence[Resolution]) -> None:
        """See `AppendWindow`; who has joined an append gets its end."""
        try:
            super().deliver(resolved)
        finally:  # also after an exit of a caller's function
            joined: list[Resolution] = []
            for entry, _, _ in resolved:
                if not isinstance(entry, PendingAppend) or not entry.twins:
                    continue
                twins, entry.twins = entry.twins, None
                self.joined -= len(twins)
                for twin in twins:
                    twin.lock, twin.winner, twin.detail = entry.lock, entry.winner, entry.detail
                    twin.failure = entry.failure
                    joined.append(Resolution(twin, entry.cause or Cause.CLOSED, entry.mark))
            super().deliver(joined)

    def not_awaited(self, fields: FeedFields) -> None:
        """The feed brings a number of the producer, of whichever instance."""
        self._marks.note(fields[4], fields[3])

    def answered(self, answer: Answer, received: int) -> bool:
        """See `AppendWindow`."""
        monitor, generation, sequence = self.monitor, answer.generation, answer.seq_num
        monitor.high_water_mark = received
        if answer.verdict is Verdict.COMMITTED:
            for offset in self._answered_offsets(answer, answer.appends):
                number, transaction_id = sequence + offset, answer.number + offset
                self.deliver(monitor.committed_by_answer(number, generation, transaction_id))
            return False
        entry = monitor.entry(sequence, generation)
        if not isinstance(entry, PendingAppend):
            return False
        entry.lock, entry.winner = answer.lock, answer.winner if answer.winner >= 0 else None
        entry.detail = answer.text or ""
        refusal = _REASONS.get(answer.verdict) or answer.verdict.name.lower().replace("_", " ")
        for one in (entry, *(entry.twins or ())):
            one.refusal = entry.detail or refusal
        if answer.verdict in (Verdict.LOCK_CONFLICT, Verdict.VIEW_AHEAD):
            self.deliver(monitor.lock_failure(sequence, generation, answer.number)[1])
        elif answer.verdict is Verdict.REQUEST_ID_IN_USE and answer.number >= 0:
            entry.failure = SequenceInUseError(
                partition_id=entry.partition_id, sequence=sequence, transaction_id=answer.number
            )
            self.deliver(monitor.refused(sequence, generation, Cause.ID_IN_USE))
        elif answer.verdict is Verdict.REPEAT_TOO_OLD and self._searches_less(entry):
            return True
        elif answer.verdict is Verdict.REPEAT_TOO_OLD:
            entry.failure = RepeatTooOldError(
                f"append to partition {entry.partition_id} has no outcome: its server does not look for the sequence "
                f"number {sequence} before transaction {answer.number}, and takes none that may be there: read the "
                "log to see whether it is, and append what is not with a number above last_sequence",
                partition_id=entry.partition_id,
            )
            self.deliver(monitor.refused(sequence, generation, Cause.TOO_OLD))
        elif answer.verdict is Verdict.TOO_LARGE:
            entry.failure = TransactionTooLargeError(
                f"append to partition {entry.partition_id} was refused: {entry.detail}; another instance may have "
                f"written the sequence number {sequence} all the same",
                partition_id=entry.partition_id,
                outcome=Outcome.UNKNOWN,  # the server has not looked for it
            )
            self.deliver(monitor.refused(sequence, generation, Cause.TOO_LARGE))
        elif answer.verdict in _REASONS:
            self._refused_for_now(entry, answer)
        else:
            return True
        return False

    def position_lost(self, received: int) -> None:
        """The feed stops here, and begins here again."""
        self._marks.received(received)

    def flush(self, session: AppendConnection) -> bool:
        """Nothing is asked: what is not answered is sent again. A server before version 5 takes none of it,
        so what nobody waits for has ended there."""
        if session.version < FIRST_VERSION:
            self._end([one.seq_num for one in self.monitor.undecided() if _is_given_up(one)])
        return False

    def nudge(self, session: AppendConnection, threshold_ticks: int) -> bool:
        """See `AppendWindow`."""
        if session.version < FIRST_VERSION:
            self.flush(session)  # callers have left since the mount
            return False
        oldest = self.monitor.oldest
        if not isinstance(oldest, PendingAppend) or oldest.seq_num in self._refused:
            return False
        return self.tick - oldest.tick >= threshold_ticks
