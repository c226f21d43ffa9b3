"""Requests to a storage node, the appends among them: whoever appends wants to know that it was carried out,
or why not.

An append costs its connection an entry and no function: one look at a reply finds the append that it answers,
and says that it is its success. Any other reply takes the way of all replies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.requester import Request, Requester
from waltz_protocol.errors import ProtocolError, RequestFailedError, WaltzProtocolError
from waltz_protocol.frames.storage import SEQ_NUM_OFFSET, SUCCESS_TYPE, unpack_prefix

AppendCallback = Callable[[WaltzProtocolError | None], None]
"""Called with None when the append is durable on the node, else with the error."""

CheckReply = Callable[[memoryview, int, int], object]
"""(body, session, partition): raises `RequestFailedError` for a refusal, and `ProtocolError` for what is no
reply to a request of these that only succeeds or fails."""


class AppendRequester(Requester):
    """The handler of a connection to a storage port. What is submitted with a session is an append, and its
    callback an `AppendCallback`."""

    def __init__(self, request_timeout_seconds: float, check: CheckReply) -> None:
        super().__init__(SEQ_NUM_OFFSET, request_timeout_seconds)
        self._check = check

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        """A reply: find its request."""
        try:
            kind, session_id, seq_num, partition_id = unpack_prefix(body)
        except struct.error:  # it has more fields, or fewer
            super().frame_received(channel, body)
            return
        request = self._pending.get(seq_num)
        if request is None or kind != SUCCESS_TYPE or request[2] != session_id or request[3] != partition_id:
            super().frame_received(channel, body)
            return
        del self._pending[seq_num]
        request[1](None)

    def _answer(self, request: Request, body: memoryview | None, error: WaltzProtocolError | None) -> None:
        _, callback, session_id, partition_id = request
        if session_id is None:
            callback(body, error)
        elif body is None:
            callback(error)
        else:
            try:
                self._check(body, session_id, partition_id)
            except RequestFailedError as refusal:
                callback(refusal)
            except ProtocolError as wrong:
                callback(wrong)
                raise  # closes the connection
