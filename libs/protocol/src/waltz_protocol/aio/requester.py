"""Requests and replies matched by sequence number, over one channel (storage and admin protocols).

Model: a request is a callback in a dict keyed by its sequence number; no task and no future per request
(`call` makes one future, for those who want to await). All requests of a connection have the same time limit,
so the dict is ordered by deadline and one timer looks at its head. Appends, of which nothing but the success
is of interest, are in `append_requests`.

Invariants:
* every callback is called exactly once: with the reply, or with the error that ended it;
* a request that timed out is never answered later: its reply is ignored (at most `MAX_LATE_REPLIES` such
  requests are remembered, then the connection is closed);
* a reply nobody asked for ends the connection.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from waltz_protocol.aio.channel import Channel
from waltz_protocol.errors import ChannelClosedError, ProtocolError, RequestTimeoutError, WaltzProtocolError

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_SEQ_NUM = struct.Struct(">q")

MAX_LATE_REPLIES = 10_000
"""Timed-out requests whose replies may still come. A peer that stays silent for so many is given up."""

ReplyCallback = Callable[[memoryview | None, WaltzProtocolError | None], None]
"""Called with the reply's body (valid during the call only) or with the error. What it raises closes the
connection."""

Request = tuple[float, Callable[..., None], int | None, int]
"""One without an answer: its deadline, whom to call, and of an append, whose callback takes the error only,
session and partition (else None and -1)."""


class Requester:
    """The handler of a connecting channel whose protocol has sequence numbers. Owner of the pending
    requests."""

    def __init__(self, seq_num_offset: int, request_timeout_seconds: float) -> None:
        """`seq_num_offset`: where the i64 sequence number sits in a body."""
        self.request_timeout_seconds = request_timeout_seconds
        self.on_closed: list[Callable[[str], None]] = []
        self.on_batch_ended: list[Callable[[], None]] = []
        self.on_writable: list[Callable[[bool], None]] = []
        self._offset = seq_num_offset
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self.next_seq_num = 0
        """The number that the next request goes out with: 0, 1, 2, …"""
        self._pending: dict[int, Request] = {}
        self._late: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed_reason: str | None = None

    @property
    def pending(self) -> int:
        """Requests without an answer yet."""
        return len(self._pending)

    def submit(
        self,
        seq_num: int,
        parts: tuple[bytes | bytearray | memoryview, ...],
        callback: Callable[..., None],
        session_id: int | None = None,
        partition_id: int = -1,
    ) -> None:
        """Send a whole frame, given in parts, and call back with its reply: a `ReplyCallback`, unless it is
        an append (`append_requests`).

        On a closed connection the callback gets ChannelClosedError in the next loop turn, never inside this
        call.
        """
        self.next_seq_num = seq_num + 1
        request = (self._loop.time() + self.request_timeout_seconds, callback, session_id, partition_id)
        channel = self._channel
        if channel is None or channel.closed:
            reason = self._closed_reason or (channel.close_reason if channel else None) or "not connected"
            self._loop.call_soon(self._answer, request, None, ChannelClosedError(reason))
            return
        self._pending[seq_num] = request
        if self._timer is None:
            self._timer = self._loop.call_later(self.request_timeout_seconds, self._expire)
        channel.send(*parts)

    def start(
        self,
        seq_num: int,
        parts: tuple[bytes | bytearray | memoryview, ...],
        parse: Callable[[memoryview], _T],
    ) -> asyncio.Future[_T]:
        """Send a frame now; the future gets `parse(reply)`, or what `parse` raises (a ProtocolError also
        closes the connection), RequestTimeoutError or ChannelClosedError. Cancelling the future stops the
        waiting, not the request."""
        future: asyncio.Future[_T] = self._loop.create_future()

        def replied(body: memoryview | None, error: WaltzProtocolError | None) -> None:
            if body is not None:
                try:
                    value = parse(body)
                except WaltzProtocolError as e:
                    if not future.done():
                        future.set_exception(e)
                    if isinstance(e, ProtocolError):
                        raise
                    return
                if not future.done():
                    future.set_result(value)
            elif not future.done():
                future.set_exception(error or ProtocolError("no reply"))

        self.submit(seq_num, parts, replied)
        return future

    async def call(
        self,
        seq_num: int,
        parts: tuple[bytes | bytearray | memoryview, ...],
        parse: Callable[[memoryview], _T],
    ) -> _T:
        """Send a frame and wait for `parse(reply)`; see `start`."""
        return await self.start(seq_num, parts, parse)

    # -- the channel's handler -------------------------------------------------------------------------------

    def channel_ready(self, channel: Channel) -> None:
        """Requests may be submitted from now on."""
        self._channel = channel

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        """A reply: find its request."""
        try:
            seq_num: int = _SEQ_NUM.unpack_from(body, self._offset)[0]
        except struct.error:
            raise ProtocolError("a reply is cut short") from None
        request = self._pending.pop(seq_num, None)
        if request is None:
            if seq_num not in self._late:
                raise ProtocolError(f"a reply with the unknown sequence number {seq_num}")
            self._late.discard(seq_num)
            return
        self._answer(request, body, None)

    def frames_ended(self, channel: Channel) -> None:
        """All replies of one socket read are handed out."""
        for batch_ended in self.on_batch_ended:
            batch_ended()

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Passed on to whoever watches the backlog of this connection."""
        for changed in self.on_writable:
            changed(writable)

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """Every outstanding request fails with the reason; it may or may not have been executed."""
        self._closed_reason = reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        self._late.clear()
        for request in pending.values():
            self._safely(self._answer, request, None, ChannelClosedError(reason))
        for closed in self.on_closed:
            self._safely(closed, reason)
        self._batch_ended_safely()

    # -- inside ----------------------------------------------------------------------------------------------

    def _answer(self, request: Request, body: memoryview | None, error: WaltzProtocolError | None) -> None:
        """The end of a request: with a reply, or with the error that ended it."""
        request[1](body, error)

    def _expire(self) -> None:
        """The connection's one request timer: fails what is overdue, sleeps until the next deadline."""
        self._timer = None
        now = self._loop.time()
        overdue: list[Request] = []
        for seq_num, request in self._pending.items():
            if request[0] > now:
                self._timer = self._loop.call_at(request[0], self._expire)
                break
            overdue.append(request)
            self._late.add(seq_num)
        if not overdue:
            return
        for seq_num in list(self._pending)[: len(overdue)]:
            del self._pending[seq_num]
        for request in overdue:
            error = RequestTimeoutError(f"no reply within {self.request_timeout_seconds:g} s")
            self._safely(self._answer, request, None, error)
        self._batch_ended_safely()
        if len(self._late) > MAX_LATE_REPLIES and self._channel is not None:
            self._channel.abort(f"more than {MAX_LATE_REPLIES} requests without a reply")

    def _batch_ended_safely(self) -> None:
        for batch_ended in self.on_batch_ended:
            self._safely(batch_ended)

    def _safely(self, callback: Callable[..., None], *args: Any) -> None:
        """Outside of frames one failing callback must not keep the others from being informed."""
        try:
            callback(*args)
        except Exception as e:
            peer = self._channel.peer if self._channel is not None else "?"
            _log.error("a callback of the connection with %s failed: %r", peer, e, exc_info=e)
