"""One partition on the stream side: mount, feed, appends (docs/protocol.md, clients and servers).

It is *attached* to a session (one TCP connection of the server that owns the partition) or not. How far it is
on its way to being mounted is its `MountState`: see `mount_state` for the states, their invariants and
what leads from one to another.

The first mount is at the server's high-water mark (asked over RPC): a client that only appends reads nothing
old. Readers that start further back get feed requests of their own on the mounted connection (see
`readers`), so a long catch-up never holds up a mount. Remounts are at `received`, the last transaction
seen in order.

Owner: the loop. What changes state is synchronous, and called from frame handlers, timers and the client's
coroutines.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import AppendRequest
from waltz_client._internal.append.transaction_monitor import NEVER
from waltz_client._internal.append.window import AppendWindow
from waltz_client._internal.observers import Observers
from waltz_client._internal.req_ids import ReqIdSource, follows
from waltz_client._internal.stream.feed_cursor import FeedCursor
from waltz_client._internal.stream.host import Application, PartitionHost
from waltz_client._internal.stream.mount import Mount
from waltz_client._internal.stream.mount_state import MountEvent, MountState, after
from waltz_client._internal.stream.readers import Readers
from waltz_client._internal.stream.session import StreamSession
from waltz_client._internal.stream.silence import FeedSilence
from waltz_client.errors import (
    AppendFailedError,
    ClientAheadError,
    ClientClosedError,
    PartitionInactiveError,
    WaltzClientError,
)
from waltz_client.transaction import FeedFields
from waltz_protocol.backoff import Backoff, Random
from waltz_protocol.errors import EncodeError
from waltz_protocol.frames.append_batch import FIRST_VERSION, Answer, Verdict
from waltz_protocol.messages.client import MountState as MountAnswer
from waltz_protocol.types import ReqId

log = logging.getLogger(__name__)

NOT_READY_INITIAL_SECONDS = 0.02
NOT_READY_MAX_SECONDS = 0.5
FIRST_MOUNT_SILENCE_SECONDS = 2.0
MOUNT_SILENCE_SECONDS = 5.0
CLIENT_AHEAD_RETRY_SECONDS = 5.0
NOT_STARTED = -2
SEND_AGAIN_TICKS = 4
"""For discovery to say where a partition is whose server does not take appends."""


class StreamPartition:
    """See the module.

    Invariants: `received` only grows, by exactly one per accepted FEED_DATA; a feed request never names a
    mark above `received`, and is only sent while mounted; appends are only sent while mounted. There is a
    `_mount` exactly in the state MOUNTED.
    """

    def __init__(
        self,
        req_ids: ReqIdSource,
        host: PartitionHost,
        window: AppendWindow,
        random: Random,
        observers: Observers | None = None,
    ) -> None:
        self.partition_id = req_ids.partition_id
        self.client_id = req_ids.client_id
        self.req_ids = req_ids
        self.window = window
        self.readers = Readers(self, host)
        self.session: StreamSession | None = None
        self.state = MountState.INACTIVE
        self.active = False  # by the state; beside it because each append reads it
        self.received = NOT_STARTED
        self.ready_mark = NOT_STARTED
        self.application: Application | None = None  # None: no callbacks, the application reads it itself
        self._host = host
        self._observers = observers
        self._about = {"partition": self.partition_id}
        self._mount: Mount | None = None
        self._asked_mounts: dict[int, None] = {}  # without an answer, in the order of their sending
        self._mount_timer: asyncio.TimerHandle | None = None
        self._received_at_mount = NOT_STARTED
        self._not_ready = Backoff(NOT_READY_INITIAL_SECONDS, NOT_READY_MAX_SECONDS, random)
        self._start_backoff = Backoff(NOT_READY_INITIAL_SECONDS, NOT_READY_MAX_SECONDS, random)
        self._starting: asyncio.Task[None] | None = None
        self._in_turn = False
        self._silence = FeedSilence()
        self._restless_until = 0
        self._send_again_at: int | None = None  # tick at which a mount follows, if none has come by then
        self.why_unavailable = "no server owns it yet"  # for messages only

    # -- state -----------------------------------------------------------------------------------------------

    @property
    def mounted(self) -> bool:
        """Whether appends and feed requests can be sent."""
        return self._mount is not None

    @property
    def mounted_on(self) -> StreamSession | None:
        """The connection that appends may be sent on now."""
        return None if self._mount is None else self._mount.session

    def _happened(self, event: MountEvent) -> None:
        """The only place where the state changes."""
        self.state = state = after(self.state, event)
        self.active = state is not MountState.INACTIVE and state is not MountState.CLOSED

    # -- attaching -------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Take part: mount as soon as there is a session."""
        self._happened(MountEvent.ACTIVATED)
        self.window.stopped = False

    def session_ready(self, session: StreamSession) -> None:
        """The session of this partition's server can be used: mount."""
        if not self.active or self.session is session:
            return
        self._unmount(MountEvent.ATTACHED, "moving to another connection")
        self.session = session
        self._not_ready.reset()
        self._begin_mount()

    def session_lost(self, session: StreamSession) -> None:
        """The session ended, or the partition moved away from it. Fails nothing: the flush after the remount
        decides."""
        if self.session is not session:
            return
        self.end_turn()
        self._unmount(MountEvent.DETACHED, f"the connection to {session.endpoint} was lost")
        self.session = None

    def generation_raised(self) -> None:
        """The generation grew: mount again, so that an owner that closed and reopened the partition knows us.

        Appends carry the new number from now on. Those sent under the old one may have been dropped silently:
        the flush after the mount decides them, and for a while silence is nudged sooner, because servers
        learn of a new generation a little earlier or later than clients do.
        """
        self._restless_until = self.window.tick + 20
        if self.session is not None and self.active:
            self._unmount(MountEvent.OUTDATED, "its generation grew")
            self._not_ready.reset()
            self._begin_mount()

    def _unmount(self, event: MountEvent, reason: str) -> None:
        self._happened(event)
        self.why_unavailable = reason
        if self._mount is not None and self._observers is not None:
            self._observers.unavailable(self.partition_id, reason)
        self._mount = None
        self._asked_mounts.clear()
        self._cancel_timer()
        self.readers.unmounted()

    def _mount_again(self, reason: str) -> None:
        self.window.numbers_moved = False
        self._unmount(MountEvent.OUTDATED, reason)
        self._begin_mount()

    def deactivate(self) -> None:
        """Take no part any longer: readers end, writers get an error; a server before version 5 feeds on
        until its credit is used up."""
        self.window.stopped = True
        session = self.session
        if session is not None and (self._mount is not None or self._asked_mounts):
            session.send_unmount(ReqId(self.client_id, self.req_ids.generation, self.partition_id, 0))
        self._unmount(MountEvent.DEACTIVATED, "it is not active")
        self.session = None
        self.window.line.fail(PartitionInactiveError(self.partition_id))
        self.readers.fail_all(PartitionInactiveError(self.partition_id))
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if session is not None:
            session.reconsider_reading()  # without this partition's readers
        # The next activation starts afresh; keeping the place would feed everything missed in between.
        self.window.position_lost(self.received)
        self.readers.end_is_known = False
        self.received = NOT_STARTED

    def close(self) -> None:
        """The client closes: pending appends end as unknown, readers and writers with ClientClosedError."""
        self._unmount(MountEvent.CLOSED, "the client is closed")
        self.session = None
        try:
            self.window.close()
        finally:
            self.window.line.fail(ClientClosedError("the client is closed"))
            self.readers.fail_all(ClientClosedError("the client is closed"))

    # -- mounting --------------------------------------------------------------------------------------------

    def _begin_mount(self) -> None:
        if self.state is not MountState.STARTING:
            self._send_mount()
        elif self._starting is None:
            self._starting = self._host.spawn(self._find_start(), f"start of partition {self.partition_id}")

    async def _find_start(self) -> None:
        while self.state is MountState.STARTING:
            try:
                mark = await self._host.start_mark(self.partition_id)
            except Exception as error:
                self.why_unavailable = f"its high-water mark is not known yet: {error}"
                level = logging.DEBUG if isinstance(error, WaltzClientError) else logging.WARNING
                log.log(level, "partition %d: %s", self.partition_id, self.why_unavailable, extra=self._about)
                await asyncio.sleep(self._start_backoff.next_seconds())
                continue
            if self.state is MountState.STARTING:  # not closed meanwhile, nor started by another such task
                self._starting = None
                self.start_at(mark)
                if self.session is not None:
                    self._send_mount()

    def start_at(self, mark: int) -> None:
        """The position of the first mount is known."""
        self._happened(MountEvent.START_KNOWN)
        self.received = self.ready_mark = mark
        if not self.window.mount_epoch:  # a named producer starts further back
            self.readers.end_known(mark)

    def _send_mount(self) -> None:
        session = self.session
        if session is None:
            return
        req_id = self.req_ids.next_req_id()
        self._asked_mounts[req_id.seq_num] = None
        self._received_at_mount = self.received
        silence = FIRST_MOUNT_SILENCE_SECONDS if len(self._asked_mounts) == 1 else MOUNT_SILENCE_SECONDS
        self._start_timer(silence, self._mount_silent)
        session.send_mount(req_id, self.received, self.window.mount_epoch)
        if session.paused:
            session.reconsider_reading()

    def _mount_silent(self) -> None:
        """No answer: it may have been swallowed by a closing partition, or the store is recovering. Ask
        again."""
        if self.received != self._received_at_mount:  # the catch-up of the mount is flowing
            self._received_at_mount = self.received
            self._start_timer(MOUNT_SILENCE_SECONDS, self._mount_silent)
            return
        self.why_unavailable = "its server does not answer the mount"
        self._send_mount()

    def mount_response(self, seq_num: int, answer: MountAnswer) -> None:
        """MOUNT_RESPONSE; anything but the answer to a mount of this session is ignored."""
        session = self.session
        if self._is_withdrawn(seq_num, answer):
            # The server closed the partition and opened it again: it does not know this mount any longer.
            self._mount_again("its server lost the mount")
            return
        if seq_num not in self._asked_mounts or session is None:
            return
        asked = list(self._asked_mounts)
        self._asked_mounts.clear()
        self._cancel_timer()
        if answer is MountAnswer.READY and self.window.numbers_moved:
            self._mount_again("its request ids have moved since the mount")
        elif answer is MountAnswer.READY:
            self._mounted(session, seq_num, set(asked[asked.index(seq_num) :]))
        elif answer is MountAnswer.CLIENT_AHEAD:
            self._is_ahead()
        else:
            if answer is MountAnswer.FENCED:
                self.window.refused()
            self.why_unavailable = "its server is not ready"
            self._start_timer(self._not_ready.next_seconds(), self._send_mount)

    def _is_withdrawn(self, seq_num: int, answer: MountAnswer) -> bool:
        """Whether this ends the mount. A mount that was asked for again before its answer came counts on the
        server as the newer one, and is withdrawn by that one's number."""
        mount = self._mount
        return mount is not None and answer is MountAnswer.NOT_READY and seq_num in mount.seq_nums

    def _mounted(self, session: StreamSession, seq_num: int, seq_nums: set[int]) -> None:
        self._happened(MountEvent.READY)
        self.ready_mark = self.received
        self._not_ready.reset()
        self._mount = mount = Mount(session, self.req_ids, seq_num, seq_nums)
        log.debug(
            "partition %d: mounted at transaction %d",
            self.partition_id,
            self.received,
            extra={"partition": self.partition_id, "server": str(session.endpoint)},
        )
        if self._observers is not None:
            self._observers.available(self.partition_id, session.endpoint)
        # Everything sent before the mount is settled on the server, and what has committed is received.
        if session.version >= FIRST_VERSION:
            self.window.send_again(session, self.received)
        else:
            self.window.flush(session)  # it makes that known here
        self._send_again_at = None
        mount.ask(self.received)
        self.readers.end_known(self.received)
        self.readers.mounted()
        self.window.line.wake()

    def _is_ahead(self) -> None:
        self._happened(MountEvent.CLIENT_AHEAD)
        self.why_unavailable = "this client is ahead of the log"
        error = ClientAheadError(self.partition_id, self.received)
        log.error("partition %d: %s", self.partition_id, error, extra=self._about)
        self.window.line.fail(error)
        self.readers.fail_all(error)
        self._start_timer(CLIENT_AHEAD_RETRY_SECONDS, self._send_mount)

    def _start_timer(self, seconds: float, action: Any) -> None:
        self._cancel_timer()
        self._mount_timer = asyncio.get_running_loop().call_later(seconds, action)

    def _cancel_timer(self) -> None:
        if self._mount_timer is not None:
            self._mount_timer.cancel()
            self._mount_timer = None

    # -- feed ------------------------------------------------------------------------------------------------

    def feed_data(self, fields: FeedFields) -> bool:
        """One FEED_DATA. True when it is the first of this turn (`end_turn` is due). Hot."""
        txid = fields[4]
        readers = self.readers
        if txid == self.received + 1:
            self.received = txid
            if readers.live:  # before anybody is informed: what counts as received reaches the readers
                readers.turn.append(fields)
            window = self.window
            if fields[0] == self.client_id:
                resolved = window.monitor.committed(fields[3], fields[1], txid, fields[5])
                if resolved:
                    window.deliver(resolved)
                else:
                    window.not_awaited(fields)
            if txid >= window.monitor.next_release:
                window.deliver(window.monitor.advance(txid))
        for cursor in readers.backfills:
            if txid == cursor.expected and txid <= self.received:
                cursor.expected = txid + 1
                cursor.turn.append(fields)
        if self._in_turn:
            return False
        self._in_turn = True
        return True

    def end_turn(self) -> None:
        """Hand over what this turn brought."""
        self._in_turn = False
        self.readers.end_turn()
        if self.window.numbers_moved and self._mount is not None:
            # A mount names where they count from.
            self._mount_again("its request ids move away from somebody else's")
        if self.window.line:
            self.wake_writers()

    def feed_suspended(self, seq_num: int) -> None:
        """The credit of a feed is used up: ask for more at once, unless all readers have enough to do."""
        mount = self._mount
        if mount is None:
            return
        if seq_num != mount.feed_req_id.seq_num:
            self.readers.suspended(seq_num)
        elif self.window.monitor.outstanding or self.readers.want_live:
            mount.ask(self.received)
        else:
            mount.held_back = True

    def ask_if_pending(self) -> None:
        """See `FeedSource`; also after an append was sent."""
        mount = self._mount
        if mount is not None and mount.held_back:
            mount.ask(self.received)

    def send_backfill(self, cursor: FeedCursor) -> bool:
        """See `FeedSource`."""
        return self._mount is not None and self._mount.ask_backfill(cursor, self.received)

    def end_backfill(self, cursor: FeedCursor) -> None:
        """See `FeedSource`."""
        if self._mount is not None:
            self._mount.end_backfill(cursor, self.received)
        cursor.feed_seq_num = None

    # -- appends ---------------------------------------------------------------------------------------------

    @property
    def view(self) -> int:
        """The last transaction that the application has applied; without callbacks: that it has received."""
        application = self.application
        if application is None:
            return max(self.received, -1)
        return -1 if application.applied is None else application.applied

    @property
    def can_send(self) -> bool:
        """Mounted, room in the window, and the socket keeps up."""
        mount = self._mount
        return mount is not None and self.window.open and mount.session.writable

    @property
    def may_send(self) -> bool:
        """`can_send`, and nobody came before who waits or was woken for it."""
        line = self.window.line
        return not line and not line.woken and self.can_send

    @property
    def may_send_now(self) -> bool:
        """`can_send`, beside all who were woken for it and did not run yet."""
        woken = self.window.line.woken
        return self.can_send and (not woken or self.window.room > woken)

    def send_append(self, handle: PendingAppend, request: AppendRequest) -> None:
        """Send one append now; the caller has seen `can_send`. Its view is noted in `handle`.
        AppendFailedError: the server's version lacks a kind of lock."""
        mount = self._mount
        if mount is None:
            raise RuntimeError("send_append without a mount")
        session = mount.session
        handle.view = self.view if request.as_of is None else request.as_of
        try:
            self.window.send(session, handle, request)
        except EncodeError as error:
            raise AppendFailedError(
                f"append to partition {self.partition_id} was not sent: {error}",
                partition_id=self.partition_id,
            ) from None
        if self.window.line:
            self.wake_writers()  # who came after one that was woken
        if mount.held_back:
            self.ask_if_pending()
        if session.paused:
            session.reconsider_reading()

    async def wait_mounted(self) -> None:
        """Until the partition is mounted; PartitionInactiveError, ClientAheadError, ClientClosedError."""
        ticket = self.window.line.ticket()
        while not self.mounted:
            await self._wait(ticket)

    async def wait_writable(self) -> None:
        """Until an append can be sent, behind those that wait already; errors as `wait_mounted`."""
        if self.may_send:
            return
        ticket = self.window.line.ticket()
        await self._wait(ticket)
        while not self.can_send:
            await self._wait(ticket)

    async def _wait(self, ticket: int) -> None:
        match self.state:
            case MountState.CLOSED:
                raise ClientClosedError("the client is closed")
            case MountState.INACTIVE:
                raise PartitionInactiveError(self.partition_id)
            case MountState.AHEAD:
                raise ClientAheadError(self.partition_id, self.received)
        if self.window.ended_by is not None:
            raise self.window.ended_by
        await self.window.line.wait(ticket)

    async def flush(self) -> None:
        """Ask for the outcome of everything sent so far, and wait for it."""
        await self.window.settle(None if self._mount is None else self._mount.session)

    @property
    def pending(self) -> int:
        """Appends on their way."""
        return self.window.monitor.outstanding

    def wake_writers(self) -> None:
        """There may be room: let waiting writers look."""
        if self.window.line and self.can_send:
            self.window.line.wake(self.window.room)

    def flush_response(self, seq_num: int, mark: int) -> None:
        """FLUSH_RESPONSE."""
        self.window.flushed(seq_num, mark, self.received)
        self.wake_writers()

    def append_answered(self, answer: Answer) -> bool:
        """One of APPEND_ANSWERS: the marks that they name may become a caller's next view. A refusal that
        comes before the answer to the mount says nothing: another server may have the append meanwhile. True
        when `end_turn` is due: what this turn refuses ends before the request ids move to another mount."""
        window = self.window
        if self._mount is None and answer.verdict is not Verdict.COMMITTED:
            return False
        moves = False
        if answer.verdict is Verdict.COMMITTED:
            appends = min(answer.appends, max(1, len(window.monitor)))  # the feed names the others
            self._host.mark_named(self.partition_id, answer.number + appends - 1)
        elif answer.verdict is Verdict.LOCK_CONFLICT:
            self._host.mark_named(self.partition_id, answer.number)
        elif answer.verdict is Verdict.REQUEST_ID_IN_USE and not (window.mount_epoch or window.numbers_moved):
            moves = window.numbers_moved = True  # before anybody is informed, who may append again
            self.req_ids.move(away_from=answer.seq_num)
        if window.answered(answer, self.received):
            if answer.verdict is Verdict.NOT_MOUNTED:
                self._mount_again("its server lost the mount")
            elif self._send_again_at is None:
                self._send_again_at = window.tick + SEND_AGAIN_TICKS
        self.wake_writers()
        return moves

    def lock_failure(self, req_id: ReqId, mark: int) -> None:
        """LOCK_FAILURE. Its mark may become a caller's next view before the feed has reached it."""
        self._host.mark_named(self.partition_id, mark)
        self.window.lock_failed(req_id, mark, self.received)
        self.wake_writers()

    @property
    def needs_ticks(self) -> bool:
        """Something waits that silence must not keep waiting forever."""
        window = self.window
        return window.monitor.outstanding > 0 or bool(window.line) or self._drops_in_silence

    @property
    def _drops_in_silence(self) -> bool:
        """An append was dropped though it was sent after the mount: the server may no longer know the
        mount."""
        dropped, mount = self.window.dropped_seq_num, self._mount
        return dropped is not None and mount is not None and follows(dropped, mount.feed_req_id.seq_num)

    def on_tick(self, nudge_ticks: int) -> None:
        """Time passes: nudge silent appends; mount again when the server has moved on and the feed does not
        say so."""
        self.window.tick += 1
        mount = self._mount
        if mount is None:
            return
        self.wake_writers()  # a writer that was woken and did not send leaves its chance to the others
        if self.window.monitor.outstanding:
            restless = self.window.tick < self._restless_until
            if self.window.nudge(mount.session, min(nudge_ticks, 2) if restless else nudge_ticks):
                self._mount_again("an append has no answer")
                return
        behind = (
            self.window.monitor.outstanding > 0 and self.received < self.window.monitor.next_release < NEVER
        )
        if self._send_again_at is not None and self.window.tick >= self._send_again_at:
            self._send_again_at = None
            if self.window.monitor.outstanding:
                self._mount_again("an append has to be sent again")
        elif self._drops_in_silence:
            self.window.dropped_seq_num = None
            # Or the numbers are taken: a server keeps them for a client that uses the same id and was there
            # before.
            self.req_ids.move(away_from=mount.feed_req_id.seq_num)
            self._mount_again("its server drops appends")
        elif self._silence.is_over_limit(behind, self.received, self.window.tick, 2 * nudge_ticks):
            log.warning(
                "partition %d: the feed is silent after transaction %d, mounting again",
                self.partition_id,
                self.received,
                extra=self._about,
            )
            self._mount_again("its feed went silent")

    # -- flow control ----------------------------------------------------------------------------------------

    def reconsider_reading(self) -> None:
        """See `FeedSource`."""
        session = self.session
        if session is not None and (session.paused or self.readers.any_full):
            session.reconsider_reading()

    @property
    def reader_full(self) -> bool:
        """A reader has enough to do: reading on is not urgent."""
        return self.readers.any_full

    @property
    def needs_reading(self) -> bool:
        """Somebody waits for what this connection brings."""
        if self.window.monitor.outstanding or self.readers.any_starving:
            return True
        return self.session is not None and self._mount is None and self.state is not MountState.AHEAD
