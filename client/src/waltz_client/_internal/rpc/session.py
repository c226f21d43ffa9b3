"""One RPC connection: data, high-water mark and administrative requests to one server (channel handler).

Requests are calls with a callback; which partition's they are and when to send them again is the RPC client's
business. Every request has a request id of its own, administrative ones too, so that two calls of the same
kind never share an answer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from waltz_client._internal.link import close_noticed
from waltz_client._internal.rpc.block_feed import BLOCKS_SINCE, BlockFeed
from waltz_client._internal.rpc.call import PartitionCall
from waltz_client.errors import ConfigError
from waltz_protocol.aio.channel import Channel
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.blocks import FEED_BLOCK, feed_of_block, parse_block
from waltz_protocol.frames.compressed_blocks import BlockExpander
from waltz_protocol.frames.data import TRANSACTION_DATA_RESPONSE, parse_data_response
from waltz_protocol.handshake import ZSTD_BLOCKS
from waltz_protocol.messages.client import BlockFailure, CloseNotice, HighWaterMarkResponse
from waltz_protocol.types import Endpoint

_PARTITION_AND_SEQ_NUM = struct.Struct(">ii")


class RpcSession:
    """The RPC side of one TCP connection.

    Invariant: a call is in `calls` (by partition and sequence number) exactly while its answer may come on
    this connection; when the connection ends they are handed back through `on_lost`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        on_ready: Callable[[RpcSession], None],
        on_lost: Callable[[RpcSession, str], None],
        expander: BlockExpander | None = None,
    ) -> None:
        """`expander`: if compressed blocks are asked for, where the server makes them."""
        self.endpoint = endpoint
        self.channel: Channel | None = None
        self.version = 0
        self.takes_zstd = False
        self._expander = expander
        self.calls: dict[tuple[int, int], PartitionCall] = {}
        self.admin_calls: dict[tuple[int, int], Callable[[object], None]] = {}
        self._on_ready = on_ready
        self._on_lost = on_lost

    @property
    def ready(self) -> bool:
        """Handshake done and not closed."""
        return self.channel is not None and not self.channel.closed

    def send_frame(self, frame: bytes) -> bool:
        """Queue a whole frame; False when the connection is gone."""
        channel = self.channel
        if channel is None or channel.closed:
            return False
        channel.send(frame)
        return True

    def channel_ready(self, channel: Channel) -> None:
        """Nothing yet: the link calls `established`."""

    def established(self, channel: Channel) -> None:
        """The handshake is done: send what is waiting."""
        self.channel = channel
        self.version = channel.version
        self.takes_zstd = self._expander is not None and ZSTD_BLOCKS in channel.peer_hello.features
        channel.pass_over(self._too_large)
        self._on_ready(self)

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        """One answer; an answer nobody waits for any longer is ignored."""
        if body[0] == TRANSACTION_DATA_RESPONSE:
            response = parse_data_response(body)
            key = (response.partition_id, response.seq_num)
            call = self.calls.pop(key, None)
            if call is not None and not call.data_answered(response):
                self.calls[key] = call
            return
        if body[0] == FEED_BLOCK and channel.version >= BLOCKS_SINCE:
            if self.takes_zstd and self._expander is not None:
                body = self._expander.expanded(body)
            feed = self.calls.get(feed_of_block(body))
            if isinstance(feed, BlockFeed):
                feed.block_received(feed.cut(body))
            else:
                parse_block(body)  # of a feed that has ended meanwhile
            return
        message = CLIENT.decode(body, channel.version)
        if isinstance(message, CloseNotice):
            close_noticed(channel, message)
            return
        req_id = getattr(message, "req_id", None)
        if req_id is None:
            raise ProtocolError(f"unexpected {type(message).__name__} on an RPC connection")
        if isinstance(message, HighWaterMarkResponse):
            call = self.calls.get((req_id.partition_id, req_id.seq_num))
            if call is not None and call.transaction_id is None:
                del self.calls[req_id.partition_id, req_id.seq_num]
                call.answered(message.transaction_id, None)
            return
        if isinstance(message, BlockFailure):
            feed = self.calls.pop((req_id.partition_id, req_id.seq_num), None)
            if isinstance(feed, BlockFeed):
                feed.failed(message.code, message.text or "no reason is given")
            return
        waiting = self.admin_calls.pop((req_id.partition_id, req_id.seq_num), None)
        if waiting is not None:
            waiting(message)

    def _too_large(self, head: memoryview, size: int) -> bool:
        """Data above `client.maxFrameBytes`: sent again, they would be as large. Whoever asked for them hears
        of it, the others on this connection do not."""
        channel = self.channel
        if head[0] not in (TRANSACTION_DATA_RESPONSE, FEED_BLOCK) or channel is None:
            return False
        call = self.calls.get(_PARTITION_AND_SEQ_NUM.unpack_from(head, 9))
        if call is not None:
            limit = channel.settings.max_frame_bytes
            text = f"the answer has {size} bytes, and client.maxFrameBytes is {limit}"
            call.session = None
            call.withdraw(self)
            call.finish(None, ConfigError(f"partition {call.partition_id}: {text}"))
        return True

    def frames_ended(self, channel: Channel) -> None:
        """Answers are delivered one by one."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Requests are small and bounded by the callers; nothing waits for the socket."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """Hand back what was not answered."""
        self._on_lost(self, reason)
        lost, self.admin_calls = self.admin_calls, {}
        for waiting in lost.values():
            waiting(None)
