"""One connection that speaks frames: Hello both ways, then frames of one protocol and version.

Model: the transport fills the splitter's buffer, each whole frame goes to the handler as a memoryview, and
what the handler sends is joined and written once per turn of the loop. No task and no future per message; one
timer per connection does keep-alive and idle detection.

Reading, up to the frames that the handler gets, is in `incoming`.

Invariants (all on the loop's thread):
* the handler gets `channel_ready` at most once, frames only after it, `channel_closed` exactly once and last;
* after `close` or `abort` no frame is delivered, also not the rest of the bytes already read;
* nothing but keep-alives arrives before the Hello, and at most `MAX_HELLO_BYTES`;
* frames queued by `send` go out in order, whole, before a graceful close.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from waltz_protocol.aio import closing
from waltz_protocol.aio.incoming import Incoming, peer_address
from waltz_protocol.aio.peer_watch import PeerWatch, is_tcp, set_options
from waltz_protocol.aio.receive_budget import ReceiveBudget
from waltz_protocol.aio.turns import Turns
from waltz_protocol.errors import ChannelClosedError, HandshakeError, ProtocolError
from waltz_protocol.frame import DEFAULT_MAX_FRAME_BYTES, Magic, keep_alive_frame
from waltz_protocol.handshake import HELLO_VERSION, Hello, choose_version, decode_hello, encode_hello

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """What both ends of a connection need to know; times in seconds unless named otherwise."""

    magic: int
    versions: tuple[int, ...]
    hello_text: str
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    handshake_timeout_seconds: float = 10.0
    keep_alive_seconds: float = 600.0
    """The connecting side writes a keep-alive after this much write silence."""
    read_idle_seconds: float | None = None
    """Close after this much read silence; None = never. Defaults to 1900 on accepting channels (three
    keep-alives of a peer) and to never on connecting ones, where the peer sends none."""
    write_high_bytes: int = 1024 * 1024
    write_low_bytes: int = 256 * 1024
    tcp_user_timeout_ms: int = 30_000
    """Close when the peer acknowledges nothing for so long."""
    peers_may_pause: bool = False
    """The peer may stop reading for long (see `peer_watch`). One for which more than the high mark waits all
    the time is closed after `not_reading_seconds`."""
    not_reading_seconds: float = 900.0
    close_timeout_seconds: float = 5.0
    """How long a graceful close may take to write what is queued before the connection is cut."""
    features: tuple[int, ...] = ()
    """Of `handshake.FEATURES`, what this side has."""


class ChannelHandler(Protocol):
    """The owner of a channel's meaning. All methods are sync and run on the loop.

    A ProtocolError from any of them closes the channel with that reason; any other exception is logged and
    closes too.
    """

    def channel_ready(self, channel: Channel) -> None:
        """The Hellos are exchanged; `channel.version` is set, frames may be sent."""

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:
        """One whole frame (never empty). `body` is valid only during the call: copy what has to stay.

        An iterator is what is left to do: it yields what each step cost, in units of `turns`, and is stepped
        to its end before the next frame. A body larger than `frame.MAX_READ_BYTES` is valid until then.
        """

    def frames_ended(self, channel: Channel) -> None:
        """After the last whole frame of one socket read, or of a slice of it: the batch boundary.

        Called whenever `frame_received` was called before it, also when the channel closed meanwhile.
        """

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Queued bytes crossed the high mark (False) or fell below the low mark (True)."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """The channel is of no use any longer; exactly once, also when it never got ready."""


class ChannelOwner(Protocol):
    """Who keeps the set of open channels (a listener)."""

    budget: ReceiveBudget | None
    """What unfinished frames of all its channels may take together; None = no bound."""
    turns: Turns
    """Shares the loop among its channels."""

    def opened(self, channel: Channel) -> str | None:
        """The transport is up. A text refuses the connection with that reason."""

    def greeted(self, channel: Channel) -> None:
        """The Hellos are exchanged."""

    def warn(self, channel: Channel, text: str) -> None:
        """Something about the peer is worth a line in the log."""

    def lost(self, channel: Channel) -> None:
        """The transport is gone."""


Part = bytes | bytearray | memoryview
ACCEPTING_READ_IDLE_SECONDS = 1900.0
WATCHED = frozenset({(Magic.CLIENT, 5)})
"""Protocols and versions in which both sides write a keep-alive when they have said nothing for a while, and
close a connection on which they hear nothing: a peer that is there and does nothing is noticed, too."""
WATCHED_KEEP_ALIVE_SECONDS = 20.0
WATCHED_IDLE_SECONDS = 65.0
SECOND_LOOK_SECONDS = 0.05
MAX_WRITE_BYTES = 1024 * 1024
"""In one turn of the loop: joining and encrypting takes it a millisecond or two. A frame of any size is
written in pieces."""


class Channel(Incoming):
    """One framed connection. See the module's docstring for the invariants."""

    def __init__(
        self,
        settings: ChannelSettings,
        handler: ChannelHandler,
        connecting: bool,
        owner: ChannelOwner | None = None,
    ) -> None:
        shared = (owner.budget, owner.turns) if owner is not None else (None, None)
        super().__init__(settings.max_frame_bytes, *shared)
        self.settings = settings
        self.handler: ChannelHandler = handler
        self.connecting = connecting
        self.version = -1
        self.peer_hello = Hello((), None)
        self.peer = "?"
        self.writable = True
        self.close_reason: str | None = None
        self.farewell: Callable[[str, Exception | None], bytes] | None = None
        """Makes the last frame of a channel that is closed in order, of the reason and the error behind it;
        set by a handler whose peer understands it."""
        self._owner = owner
        self._parts: list[bytes | bytearray | memoryview] = []
        self._queued_bytes = 0
        self._flush_scheduled = False
        self._transport_writable = True
        self._behind = False
        """More is queued than one turn writes."""
        self._close_error: type[HandshakeError] | type[ChannelClosedError] = ChannelClosedError
        self._lost = self._notified = False
        self._ready_waiters: list[asyncio.Future[None]] = []
        self._lost_waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._last_write = self._opened_at = self._last_read
        self._watch: PeerWatch | None = None
        self._silent_since: float | None = None
        """The last read when an idle limit was over: a second look follows."""
        self._keep_alive = settings.keep_alive_seconds if connecting else None
        self._read_idle = settings.read_idle_seconds
        if self._read_idle is None and not connecting:
            self._read_idle = ACCEPTING_READ_IDLE_SECONDS

    # -- what the handler uses -------------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """Bytes queued here and in the transport, not yet taken by the kernel (TLS buffers included)."""
        transport = self._transport
        return self._queued_bytes + (transport.get_write_buffer_size() if transport is not None else 0)

    @property
    def ready(self) -> bool:
        """True from the exchange of the Hellos until the channel closes."""
        return self._ready and not self.closed

    @property
    def greeted(self) -> bool:
        """True once the Hellos were exchanged, also after the close."""
        return self._ready

    @property
    def received_nothing(self) -> bool:
        """True when the peer connected and said nothing."""
        return not self._received

    def extra(self, name: str) -> Any:
        """What the transport knows (`peercert`, `ssl_object`, …), or None."""
        return self._transport.get_extra_info(name) if self._transport is not None else None

    def warn(self, text: str) -> None:
        """A line in the log about this peer; a listener bounds how many there are."""
        if self._owner is not None:
            self._owner.warn(self, text)
        else:
            _log.warning("%s: %s", self.peer, text)

    def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """Queue whole frames, given in any number of parts, for one write at the end of this loop turn.

        The parts must stay unchanged until then. Dropped silently when the channel is closed. Before the
        channel is ready nothing may be sent (RuntimeError): the peer would not understand it.
        """
        if self.closed:
            return
        if not self._ready:
            raise RuntimeError("a frame was sent before the handshake")
        self._queue(parts)

    def flush_now(self) -> None:
        """Write what is queued at once instead of at the end of the loop turn; of very much, a turn's
        worth.

        A transport that is full gets nothing before it says that it has space again: it would encrypt and
        keep what its peer may never take, in buffers that double as they grow.
        """
        if self._parts and self._transport is not None and self._transport_writable:
            self._write(self._transport, MAX_WRITE_BYTES)

    def _write(self, transport: asyncio.Transport, most: int) -> None:
        parts, rest = _cut(self._parts, most) if self._queued_bytes > most else (self._parts, [])
        self._parts = rest
        self._queued_bytes = sum(map(len, rest)) if rest else 0
        self._last_write = self._loop.time()
        try:
            transport.write(b"".join(parts))
        except Exception as error:  # frames are lost: nothing may follow them
            self.abort(f"internal error: {type(error).__name__}: {error}")
            return
        if rest and not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        if bool(rest) != self._behind:
            self._behind = bool(rest)
            self._set_writable(self._transport_writable and not rest)

    def close(self, reason: str, error: Exception | None = None) -> None:
        """Write what is queued, and the farewell, then close. `channel_closed` follows in the next loop turn.
        Idempotent. `error`: what has failed, if anything."""
        if self.farewell is not None and not self.closed:
            self._queue((self.farewell(reason, error),))
        if not self._begin_close(reason) or self._transport is None:
            return
        if self._parts:
            self._write(self._transport, self._queued_bytes)
        self._close_timer = self._loop.call_later(self.settings.close_timeout_seconds, self._cut)
        closing.leaving(self, self._loop)
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; queued bytes are lost. Idempotent, also after `close`."""
        self._begin_close(reason)
        self._parts.clear()
        self._queued_bytes = 0
        self._cut()

    async def wait_ready(self) -> None:
        """Wait for the Hellos; raises HandshakeError or ChannelClosedError. Safe to cancel."""
        if self.closed:
            raise self._close_error(self.close_reason or "closed")
        if not self._ready:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._ready_waiters.append(waiter)
            await waiter

    async def wait_closed(self) -> None:
        """Wait until the transport is gone (after `close`, `abort` or the peer's end). Safe to cancel."""
        if not self._lost:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._lost_waiters.append(waiter)
            await waiter

    # -- what the transport calls ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket's options, send our Hello, start the clock for the peer's."""
        self._transport = transport  # type: ignore[assignment]
        self.peer = peer_address(transport.get_extra_info("peername"))
        now = self._loop.time()
        self._watch_peer(transport.get_extra_info("socket"), now)
        self._last_read = self._last_write = self._opened_at = now
        refusal = self._owner.opened(self) if self._owner is not None else None
        if self.closed or refusal is not None:
            self.abort(refusal or self.close_reason or "closed")
            return
        settings = self.settings
        self._transport.set_write_buffer_limits(  # type: ignore[union-attr]
            high=settings.write_high_bytes, low=settings.write_low_bytes
        )
        self._queue((encode_hello((*settings.versions, *settings.features), settings.hello_text),))
        self._schedule_timer(now)

    def eof_received(self) -> bool:
        """The peer ended the stream: half-open connections are not kept."""
        if not self.closed:
            self._deliver_what_waits()
            rest = self._splitter.buffered_bytes
            self._begin_close("the peer closed the connection" + (" inside a frame" if rest else ""))
        return False

    def pause_writing(self) -> None:
        """The transport's buffer crossed the high mark."""
        self._transport_writable = False
        self._set_writable(False)

    def resume_writing(self) -> None:
        """The transport's buffer fell below the low mark."""
        self._transport_writable = True
        self.flush_now()
        self._set_writable(self._transport_writable and not self._behind)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone: everything waiting gets the reason."""
        if exc is None:
            self._deliver_what_waits()
        self._lost = True
        closing.gone(self)
        self._begin_close(f"connection lost: {exc}" if exc is not None else "the peer closed the connection")
        for timer in (self._timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._close_timer = None
        self._transport = self._steps = None
        self._parts.clear()
        self._queued_bytes = 0
        self._splitter.discard()
        self._notify_closed()
        if self._owner is not None:
            self._owner.lost(self)
        for waiter in self._lost_waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- inside ----------------------------------------------------------------------------------------------

    def _queue(self, parts: tuple[bytes | bytearray | memoryview, ...]) -> None:
        self._parts += parts
        queued_bytes = self._queued_bytes
        for part in parts:
            queued_bytes += len(part)
        self._queued_bytes = queued_bytes
        if queued_bytes > self.settings.write_high_bytes and not self._behind:
            self.flush_now()  # bounds the copy, and lets the transport say that it is full
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self.flush_now()

    def _hello_received(self, body: memoryview) -> None:
        hello = decode_hello(body)
        self.version = choose_version(self.settings.versions, hello.versions)
        self.peer_hello = hello.brief()
        self._splitter.expected = (self.settings.magic, self.version)
        self._splitter.max_frame_bytes = self.settings.max_frame_bytes
        self._ready = True
        if (self.settings.magic, self.version) in WATCHED:
            self._keep_alive = min(WATCHED_KEEP_ALIVE_SECONDS, self._keep_alive or WATCHED_KEEP_ALIVE_SECONDS)
            self._read_idle = min(WATCHED_IDLE_SECONDS, self._read_idle or WATCHED_IDLE_SECONDS)
            if self._timer is not None:
                self._timer.cancel()
                self._schedule_timer(self._loop.time())
        if self._owner is not None:
            self._owner.greeted(self)
        self.handler.channel_ready(self)
        for waiter in self._ready_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._ready_waiters.clear()

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as e:
            self.failed(e)

    def failed(self, error: Exception) -> None:
        if isinstance(error, (ProtocolError, HandshakeError)):
            if self._ready:
                # The peer only sees the end of the connection: who looks for the reason finds it here.
                self.warn(f"the connection is closed: {error}")
            else:
                self._close_error = HandshakeError
            self.close(str(error), error)
        else:
            _log.error("the handler of the connection with %s failed: %r", self.peer, error, exc_info=error)
            self.close(f"internal error: {type(error).__name__}: {error}", error)

    def _set_writable(self, writable: bool) -> None:
        if writable != self.writable:
            self.writable = writable
            if self._ready and not self._notified:
                self._guard(lambda: self.handler.writable_changed(self, writable))

    def _begin_close(self, reason: str) -> bool:
        if self.closed:
            return False
        if not self._ready and self._close_error is ChannelClosedError and self._transport is not None:
            reason = f"{reason} (before the handshake was done)"
        self.closed = self._halted = self._stop = True
        self.close_reason = reason
        if self._budget is not None and self._holds:
            self._holds = False
            self._budget.hold(self, 0)
        self._loop.call_soon(self._notify_closed)
        return True

    def _notify_closed(self) -> None:
        if self._notified:
            return
        self._notified = True
        reason = self.close_reason or "closed"
        for waiter in self._ready_waiters:
            if not waiter.done():
                waiter.set_exception(self._close_error(reason))
        self._ready_waiters.clear()
        try:
            self.handler.channel_closed(self, reason)
        except Exception:
            _log.exception("the handler of the connection with %s failed while closing", self.peer)

    def _cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _schedule_timer(self, now: float) -> None:
        deadlines = []
        if not self._ready:
            deadlines.append(self._opened_at + self.settings.handshake_timeout_seconds)
        if self._keep_alive is not None:
            deadlines.append(self._last_write + self._keep_alive)
        if self._read_idle is not None:
            deadlines.append((now if self._not_reading else self._last_read) + self._read_idle)
        if self._watch is not None:
            deadlines.append(self._watch.due_at)
        if deadlines:
            self._timer = self._loop.call_at(max(min(deadlines), now), self._tick)

    def _watch_peer(self, sock: Any, now: float) -> None:
        settings = self.settings
        if is_tcp(sock):
            set_options(sock, settings.tcp_user_timeout_ms, peers_may_pause=settings.peers_may_pause)
            if settings.peers_may_pause:
                self._watch = PeerWatch(sock, settings.tcp_user_timeout_ms, settings.not_reading_seconds, now)

    def _tick(self) -> None:
        """The connection's only timer: handshake, keep-alive, read idle, vanished peers."""
        self._timer = None
        if self.closed:
            return
        now = self._loop.time()
        if not self._ready and now >= self._opened_at + self.settings.handshake_timeout_seconds:
            self._close_error = HandshakeError
            self.abort(f"no Hello within {self.settings.handshake_timeout_seconds:g} s")
            return
        idle = self._read_idle
        if idle is not None and not self._not_reading and now >= self._last_read + idle:
            if self._silent_since != self._last_read:
                # A process that stood still runs its timers before it reads what has arrived meanwhile.
                self._silent_since = self._last_read
                self._timer = self._loop.call_later(SECOND_LOOK_SECONDS, self._tick)
                return
            self.abort(f"nothing received for {idle:g} s")
            return
        if self._watch is not None and now >= self._watch.due_at:
            gone = self._watch.check(now, writable=self.writable)
            if gone is not None:
                self.warn(f"the connection is cut: {gone}")
                self.abort(gone)
                return
        if self._keep_alive is not None and now >= self._last_write + self._keep_alive:
            self._last_write = now
            if not self._parts and self._transport_writable:  # else there is more to say than that
                magic, version = self._splitter.expected or (Magic.HELLO, HELLO_VERSION)
                self._queue((keep_alive_frame(magic, version),))
                self.flush_now()
        self._schedule_timer(now)


def _cut(parts: list[Part], size: int) -> tuple[list[Part], list[Part]]:
    """The first `size` bytes, and the rest."""
    for number, part in enumerate(parts):
        if len(part) > size:
            view = memoryview(part)
            return [*parts[:number], view[:size]], [view[size:], *parts[number + 1 :]]
        size -= len(part)
    return parts, []
