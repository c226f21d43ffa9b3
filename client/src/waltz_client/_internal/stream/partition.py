"""One partition on the stream side: mount, feed, appends (client-server protocol, client behaviour).

State: *attached* to a session (one TCP connection of the server that owns the partition) or not; *mounted*
(the server said READY on that session) or not; *client ahead* (the log ends before what this client has
read).

The first mount is at the server's high-water mark (asked over RPC): a client that only appends reads nothing
old. Readers that start further back get feed requests of their own on the mounted connection (see
``readers``), so a long catch-up never holds up a mount. Remounts are at ``received``, the last transaction
seen in order.

Owner: the loop. All methods are synchronous and called from frame handlers, timers and the client's
coroutines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from waltz_client._internal.append.transaction_monitor import NEVER
from waltz_client._internal.append.window import AppendWindow, LockHashes, PendingAppend
from waltz_client._internal.req_ids import ReqIdSource, follows
from waltz_client._internal.stream.feed_cursor import FeedCursor
from waltz_client._internal.stream.readers import Readers
from waltz_client._internal.stream.session import StreamSession
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
from waltz_protocol.messages.client import MountState
from waltz_protocol.types import ReqId

log = logging.getLogger("waltz_client.mount")

NOT_READY_INITIAL_SECONDS = 0.02
NOT_READY_MAX_SECONDS = 0.5
FIRST_MOUNT_SILENCE_SECONDS = 2.0
MOUNT_SILENCE_SECONDS = 5.0
CLIENT_AHEAD_RETRY_SECONDS = 5.0
LEAST_CREDIT = 100  # of a feed request at the end of the log (the default of server.minFetchSize)
NOT_STARTED = -2
WAKE_ALL = 2**31


class PartitionHost(Protocol):
    """What a partition needs of the client around it."""

    async def start_mark(self, partition_id: int) -> int:
        """Where the first mount begins. Raises while that cannot be known yet; asked again with back-off."""
        ...

    async def server_high_water_mark(self, partition_id: int) -> int:
        """The server's high-water mark now (RPC)."""
        ...

    def mark_told(self, partition_id: int, mark: int) -> None:
        """A server has named this mark: the log reaches it."""
        ...

    def need_ticks(self) -> None:
        """Call ``on_tick`` from now on, as long as ``needs_ticks``."""
        ...

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine that ends with the client."""
        ...


class StreamPartition:
    """See the module.

    Invariants: ``received`` only grows, by exactly one per accepted FEED_DATA; a feed request never names a
    mark above ``received``, and is only sent while mounted; appends are only sent while mounted.
    """

    def __init__(
        self, req_ids: ReqIdSource, host: PartitionHost, max_outstanding: int, random: Random
    ) -> None:
        self.partition_id = req_ids.partition_id
        self.req_ids = req_ids
        self.window = AppendWindow(req_ids, max_outstanding, host.need_ticks)
        self.readers = Readers(self)
        self.session: StreamSession | None = None
        self.active = False
        self.mounted = False
        self.client_ahead = False
        self.received = NOT_STARTED
        self.ready_mark = NOT_STARTED
        self.mounts = 0
        self.host = host
        self._client_id = req_ids.client_id
        self._feed_req_id: ReqId | None = None
        self._spare_feeds: list[int] = []  # numbers of readers' feeds that have ended; of this mount
        self._mount_seqs: dict[int, None] = {}  # mounts without an answer, in the order of their sending
        self._mount_names: set[int] = (
            set()
        )  # of the mount that was answered READY, and of those sent after it
        self._mount_timer: asyncio.TimerHandle | None = None
        self._received_at_mount = NOT_STARTED
        self._not_ready = Backoff(NOT_READY_INITIAL_SECONDS, NOT_READY_MAX_SECONDS, random)
        self._start_backoff = Backoff(NOT_READY_INITIAL_SECONDS, NOT_READY_MAX_SECONDS, random)
        self._starting: asyncio.Task[None] | None = None
        self._in_turn = False
        self._ask_pending = False
        self._stuck_at = NOT_STARTED
        self._stuck_since = 0
        self._restless_until = 0
        self.why_unavailable = "no server owns it yet"

    # -- attaching -------------------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether the place of the first mount is known."""
        return self.received != NOT_STARTED

    def activate(self) -> None:
        """Take part: mount as soon as there is a session."""
        self.active = True
        self.window.stopped = False

    def session_ready(self, session: StreamSession) -> None:
        """The session of this partition's server can be used: mount."""
        if not self.active or self.session is session:
            return
        self._unmount("moving to another connection")
        self.session = session
        self.client_ahead = False
        self._not_ready.reset()
        self._begin_mount()

    def session_lost(self, session: StreamSession) -> None:
        """The session ended, or the partition moved away from it. Fails nothing: the flush after the remount
        decides."""
        if self.session is not session:
            return
        self.end_turn()
        self._unmount(f"the connection to {session.endpoint} was lost")
        self.session = None

    def generation_raised(self) -> None:
        """The generation grew: mount again, so that an owner that closed and reopened the partition knows us.

        Appends carry the new number from now on. Those sent under the old one may have been dropped silently:
        the flush after the mount decides them, and for a while silence is nudged sooner, because servers
        learn of a new generation a little earlier or later than clients do.
        """
        self._restless_until = self.window.tick + 20
        if self.session is not None and self.active:
            self._unmount("its generation grew")
            self._not_ready.reset()
            self._begin_mount()

    def _unmount(self, reason: str) -> None:
        self.mounted = False
        self.why_unavailable = reason
        self._feed_req_id = None
        self._spare_feeds.clear()
        self._ask_pending = False
        self._mount_seqs.clear()
        self._mount_names.clear()
        self._cancel_timer()
        self.readers.unmounted()

    def _mount_again(self, reason: str) -> None:
        self.window.numbers_moved = False
        self._unmount(reason)
        self._begin_mount()

    def deactivate(self) -> None:
        """No part any more: readers end, writers get an error; the server feeds on until its credit is used
        up."""
        self.active = False
        self.window.stopped = True
        self._unmount("it is not active")
        self.session = None
        self.window.fail_waiters(PartitionInactiveError(self.partition_id))
        self.readers.fail_all(PartitionInactiveError(self.partition_id))
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        # The next activation starts afresh; keeping the place would feed everything missed in between.
        self.received = NOT_STARTED

    def close(self) -> None:
        """The client closes: pending appends end as unknown, readers and writers with ClientClosedError."""
        self.active = False
        self._unmount("the client is closed")
        self.session = None
        self.window.close()
        self.window.fail_waiters(ClientClosedError("the client is closed"))
        self.readers.fail_all(ClientClosedError("the client is closed"))

    # -- mounting --------------------------------------------------------------------------------------------

    def _begin_mount(self) -> None:
        if self.started:
            self._send_mount()
        elif self._starting is None:
            self._starting = self.host.spawn(self._find_start(), f"start of partition {self.partition_id}")

    async def _find_start(self) -> None:
        while not self.started:
            try:
                mark = await self.host.start_mark(self.partition_id)
            except Exception as error:
                self.why_unavailable = f"its high-water mark is not known yet: {error}"
                level = logging.DEBUG if isinstance(error, WaltzClientError) else logging.WARNING
                log.log(level, "partition %d: %s", self.partition_id, self.why_unavailable)
                await asyncio.sleep(self._start_backoff.next_seconds())
                continue
            self.received = self.ready_mark = mark
        self._starting = None
        if self.session is not None:
            self._send_mount()

    def _send_mount(self) -> None:
        session = self.session
        if session is None:
            return
        req_id = self.req_ids.next_req_id()
        self._mount_seqs[req_id.seq_num] = None
        self._received_at_mount = self.received
        silence = FIRST_MOUNT_SILENCE_SECONDS if len(self._mount_seqs) == 1 else MOUNT_SILENCE_SECONDS
        self._start_timer(silence, self._mount_silent)
        session.send_mount(req_id, self.received)
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

    def mount_response(self, seq_num: int, state: MountState) -> None:
        """MOUNT_RESPONSE; anything but the answer to a mount of this session is ignored."""
        session = self.session
        if session is not None and self._is_withdrawn(seq_num, state):
            # The server closed the partition and opened it again: it does not know this mount any more.
            self._mount_again("its server lost the mount")
            return
        if seq_num not in self._mount_seqs or session is None:
            return
        asked = list(self._mount_seqs)
        self._mount_seqs.clear()
        self._cancel_timer()
        if state is MountState.READY:
            self._mount_names = set(asked[asked.index(seq_num) :])
            self._mounted(session, seq_num)
        elif state is MountState.CLIENT_AHEAD:
            self._is_ahead()
        else:
            self.why_unavailable = "its server is not ready"
            self._start_timer(self._not_ready.next_seconds(), self._send_mount)

    def _is_withdrawn(self, seq_num: int, state: MountState) -> bool:
        """Whether this ends the mount. A mount that was asked for again before its answer came counts on the
        server as the newer one, and is withdrawn by that one's number."""
        return state is MountState.NOT_READY and seq_num in self._mount_names

    def _mounted(self, session: StreamSession, seq_num: int) -> None:
        self.mounted = True
        self.client_ahead = False
        self.ready_mark = self.received
        self.mounts += 1
        self._not_ready.reset()
        self._feed_req_id = ReqId(self._client_id, self.req_ids.generation, self.partition_id, seq_num)
        log.debug("partition %d mounted at %d on %s", self.partition_id, self.received, session.endpoint)
        # Everything sent before the mount is settled on the server; the flush makes it known here.
        self.window.flush(session)
        session.send_feed_request(self._feed_req_id, self.received)
        self.readers.mounted()
        self.window.wake(WAKE_ALL)

    def _is_ahead(self) -> None:
        self.client_ahead = True
        self.why_unavailable = "this client is ahead of the log"
        error = ClientAheadError(self.partition_id, self.received)
        log.error("partition %d: %s", self.partition_id, error)
        self.window.fail_waiters(error)
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
        """One FEED_DATA. True when it is the first of this turn (``end_turn`` is due). Hot."""
        txid = fields[4]
        readers = self.readers
        if txid == self.received + 1:
            self.received = txid
            window = self.window
            if fields[0] == self._client_id:
                resolved = window.monitor.committed(fields[3], fields[1], txid, fields[5])
                if resolved:
                    window.deliver(resolved)
                else:
                    window.not_awaited(fields)
            if txid >= window.monitor.next_release:
                window.deliver(window.monitor.advance(txid))
            if readers.live:
                readers.turn.append(fields)
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
        if self.window.numbers_moved and self.mounted:
            self._mount_again(
                "its request ids move away from somebody else's"
            )  # a mount names where they count from
        if self.window.has_waiters:
            self.wake_writers()

    def feed_suspended(self, seq_num: int) -> None:
        """The credit of a feed is used up: ask for more at once, unless all readers have enough to do."""
        session = self.session
        feed = self._feed_req_id
        if session is None or not self.mounted or feed is None:
            return
        if seq_num != feed.seq_num:
            self.readers.suspended(seq_num)
        elif self.window.monitor.outstanding or self.readers.want_live:
            session.send_feed_request(feed, self.received)
        else:
            self._ask_pending = True

    def ask_if_pending(self) -> None:
        """Send the feed request that was held back (a reader drained, an append was sent)."""
        if self._ask_pending and self.session is not None and self._feed_req_id is not None:
            self._ask_pending = False
            self.session.send_feed_request(self._feed_req_id, self.received)

    def send_backfill(self, cursor: FeedCursor) -> bool:
        """A feed request of a reader's own, from its place. False when not mounted."""
        feed = self._feed_req_id
        if self.session is None or not self.mounted or feed is None or cursor.tail is None:
            return False
        if cursor.feed_seq_num is None:
            spare = self._spare_feeds
            cursor.feed_seq_num = spare.pop() if spare else self.req_ids.next_seq_num()
        cursor.expected = cursor.tail + 1
        cursor.feed_at_least_to = self.received
        return self.session.send_feed_request(feed._replace(seq_num=cursor.feed_seq_num), cursor.tail)

    def end_backfill(self, cursor: FeedCursor) -> None:
        """A reader has no use for a feed of its own any more: cut short what is left of it (see
        ``readers``)."""
        seq_num, cursor.feed_seq_num = cursor.feed_seq_num, None
        feed = self._feed_req_id
        if seq_num is None or self.session is None or not self.mounted or feed is None:
            return
        self._spare_feeds.append(seq_num)
        if cursor.feed_at_least_to - cursor.expected >= LEAST_CREDIT:
            self.session.send_feed_request(feed._replace(seq_num=seq_num), self.received)

    # -- appends ---------------------------------------------------------------------------------------------

    @property
    def can_send(self) -> bool:
        """Mounted, room in the window, and the socket keeps up."""
        return self.mounted and self.window.room > 0 and self.session is not None and self.session.writable

    def send_append(
        self,
        handle: PendingAppend,
        data: bytes,
        header: int,
        high_water_mark: int,
        write_locks: LockHashes,
        read_locks: LockHashes,
        append_locks: LockHashes,
    ) -> None:
        """Send one append now; the caller has seen :attr:`can_send`. AppendFailedError: its version lacks a
        kind of lock."""
        session = self.session
        if session is None or not self.mounted:
            raise RuntimeError("send_append without a mount")
        try:
            self.window.send(
                session, handle, high_water_mark, write_locks, read_locks, append_locks, header, data
            )
        except EncodeError as error:
            raise AppendFailedError(
                f"append to partition {self.partition_id} was not sent: {error}",
                partition_id=self.partition_id,
            ) from None
        if self._ask_pending:
            self.ask_if_pending()
        if session.paused:
            session.reconsider_reading()

    def wake_writers(self) -> None:
        """There may be room: let waiting writers look."""
        if self.window.has_waiters and self.can_send:
            self.window.wake(self.window.room)

    def flush_response(self, seq_num: int, mark: int) -> None:
        """FLUSH_RESPONSE."""
        self.window.flushed(seq_num, mark, self.received)
        self.wake_writers()

    def lock_failure(self, req_id: ReqId, mark: int) -> None:
        """LOCK_FAILURE. Its mark may become a caller's next view before the feed has reached it."""
        self.host.mark_told(self.partition_id, mark)
        self.window.lock_failed(req_id, mark, self.received)
        self.wake_writers()

    @property
    def needs_ticks(self) -> bool:
        """Something waits that silence must not keep waiting for ever."""
        window = self.window
        return window.monitor.outstanding > 0 or window.has_waiters or self._drops_in_silence

    @property
    def _drops_in_silence(self) -> bool:
        """An append was dropped though it was sent after the mount: the server may not know the mount any
        more."""
        dropped, mount = self.window.dropped_seq_num, self._feed_req_id
        return dropped is not None and mount is not None and follows(dropped, mount.seq_num)

    def on_tick(self, nudge_ticks: int) -> None:
        """Time passes: nudge silent appends; mount again when the server has moved on and the feed does not
        say so."""
        self.window.tick += 1
        session = self.session
        if session is None or not self.mounted:
            return
        self.wake_writers()  # a writer that was woken and did not send leaves its chance to the others
        if self.window.monitor.outstanding:
            restless = self.window.tick < self._restless_until
            self.window.nudge(session, min(nudge_ticks, 2) if restless else nudge_ticks)
        behind = (
            self.window.monitor.outstanding > 0 and self.received < self.window.monitor.next_release < NEVER
        )
        if self._drops_in_silence:
            self.window.dropped_seq_num = None
            # Or the numbers are taken: a server keeps them for a client that uses the same id and was there
            # before.
            self.req_ids.move(away_from=self._feed_req_id.seq_num if self._feed_req_id else 0)
            self._mount_again("its server drops appends")
        elif not behind or self.received != self._stuck_at:
            self._stuck_at = self.received
            self._stuck_since = self.window.tick
        elif self.window.tick - self._stuck_since >= 2 * nudge_ticks:
            self._stuck_since = self.window.tick
            log.warning(
                "partition %d: the feed is silent at %d, mounting again", self.partition_id, self.received
            )
            self._mount_again("its feed went silent")

    # -- flow control ----------------------------------------------------------------------------------------

    @property
    def reader_full(self) -> bool:
        """A reader has enough to do: reading on is not urgent."""
        return self.readers.any_full

    @property
    def needs_reading(self) -> bool:
        """Somebody waits for what this connection brings."""
        if self.window.monitor.outstanding or self.readers.any_starving:
            return True
        return self.session is not None and not self.mounted and not self.client_ahead
