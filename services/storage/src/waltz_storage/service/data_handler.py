"""The storage port: frames to requests, in order of arrival (docs/protocol.md, servers and storage nodes).

Invariants:

* Open comes first. Until it has succeeded every other request is answered with Failure and moves no fence,
  and frames are small: a stranger's appends are not even received.
* A malformed frame ends the connection before anything of it has been done: it is parsed whole first.
* Reading pauses while the peer does not take its replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import UUID

from waltz_protocol.aio.channel import Channel
from waltz_protocol.codec import STORAGE
from waltz_protocol.errors import ProtocolError
from waltz_protocol.messages import storage
from waltz_protocol.messages.fields import RpcError
from waltz_storage.service.disk_pool import DiskPool, PartitionQueue
from waltz_storage.service.requests import (
    APPEND,
    STORED_APPEND,
    Request,
    RoutedMessage,
    is_much,
    parse_append,
    parse_append_in_steps,
    parse_ids,
    parse_routed,
)

STRANGER_FRAME_BYTES = 64 * 1024
"""Largest frame before a successful Open, which takes some fifty bytes itself."""
SMALL_MESSAGE_BYTES = 64 * 1024
"""Largest message that is decoded on the loop. All requests but those with records or lists take less than a
hundred bytes; what else decodes is a reply that has no business here, and a large one would hold up
everybody."""


class NodeIdentity:
    """What Open is compared with, and whether the node is leaving."""

    def __init__(self, cluster_key: UUID, num_partitions: int) -> None:
        self.cluster_key = cluster_key
        self.num_partitions = num_partitions
        self.closing = False

    def open_refusal(self, cluster_key: UUID, num_partitions: int) -> str | None:
        """Why an Open is refused, or `None`."""
        if cluster_key != self.cluster_key:
            # Whoever knows the key may raise fences: so the refusal does not name this node's key.
            return f"cluster key {cluster_key} is not that of this node"
        if num_partitions != self.num_partitions:
            return f"this cluster has {self.num_partitions} partitions, not {num_partitions}"
        return None


class DataHandler:
    """One connection of the storage port. See the module for the invariants."""

    def __init__(self, pool: DiskPool, identity: NodeIdentity) -> None:
        self._pool = pool
        self._identity = identity
        self._appends: tuple[int, ...] = (APPEND,)
        self._opened = False
        self._warned = False
        self._touched: dict[int, PartitionQueue] = {}
        self._time = asyncio.get_running_loop().time

    def channel_ready(self, channel: Channel) -> None:
        """The connecting side speaks first, and not much before it has said who it is."""
        if channel.version >= storage.StoredAppendRequest.SINCE:
            self._appends = (APPEND, STORED_APPEND)
        channel.set_max_frame_bytes(STRANGER_FRAME_BYTES)

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:
        """Parse one request and queue it; `ProtocolError` ends the connection."""
        if body[0] in self._appends:
            if self._opened and is_much(body):
                return self._large_append(channel, body)
            # The records of a stranger are not worth converting: the refusal needs its ids only.
            parse = parse_append if self._opened else parse_ids
            self._route(channel, parse(channel, body, self._time()))
            return None
        if len(body) > SMALL_MESSAGE_BYTES:
            raise ProtocolError(f"a message of type {body[0]} with {len(body)} bytes")
        message = STORAGE.decode(body, channel.version)
        if isinstance(message, storage.OpenRequest):
            self._open(channel, message)
        elif isinstance(message, RoutedMessage):
            self._route(channel, parse_routed(channel, message, self._time()))
        elif isinstance(message, _Replies):
            ids = (message.session_id, message.seq_num, message.partition_id)
            error = RpcError(f"a {type(message).__name__} is no request")
            channel.send(STORAGE.encode(storage.FailureResponse(*ids, error), channel.version))
        else:
            raise ProtocolError(f"{type(message).__name__} is no request of the storage port")
        return None

    def _large_append(self, channel: Channel, body: memoryview) -> Iterator[int]:
        """The same in steps of a few milliseconds."""
        request = yield from parse_append_in_steps(channel, body, self._time())
        self._route(channel, request)

    def _open(self, channel: Channel, message: storage.OpenRequest) -> None:
        ids = (message.session_id, message.seq_num, message.partition_id)
        refusal = self._identity.open_refusal(message.cluster_key, message.num_partitions)
        self._opened = refusal is None
        if refusal is None:
            channel.set_max_frame_bytes(channel.settings.max_frame_bytes)
            channel.send(STORAGE.encode(storage.SuccessResponse(*ids), channel.version))
        else:
            channel.set_max_frame_bytes(STRANGER_FRAME_BYTES)
            channel.warn(f"Open refused: {refusal}")
            channel.send(STORAGE.encode(storage.FailureResponse(*ids, RpcError(refusal)), channel.version))

    def _route(self, channel: Channel, request: Request) -> None:
        if not self._opened:
            if not self._warned:
                self._warned = True
                channel.warn("its requests are refused: it has not opened the connection")
            channel.send(request.failure("the connection has not been opened: send Open first"))
            return
        if self._identity.closing:
            channel.send(request.failure("the node is shutting down"))
            return
        manager = self._pool.manager
        if request.partition_id not in manager.partitions:
            channel.send(request.failure(str(manager.why_not_open(request.partition_id))))
            return
        queue = self._touched.get(request.partition_id)
        if queue is None:
            queue = self._touched[request.partition_id] = self._pool.queue(request.partition_id)
        queue.offer(request)

    def frames_ended(self, channel: Channel) -> None:
        """The batch is complete: start the jobs."""
        touched, self._touched = self._touched, {}
        alone = len(touched) == 1
        for queue in touched.values():
            queue.kick(alone=alone)

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """A peer that does not take its replies is not read from."""
        if writable:
            channel.resume_reading()
        else:
            channel.pause_reading()

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """Queued requests still run; their replies have nowhere to go."""


_Replies = (
    storage.SuccessResponse
    | storage.FailureResponse
    | storage.LastSessionInfoResponse
    | storage.RecordHeaderResponse
    | storage.RecordResponse
    | storage.MaxTransactionIdResponse
    | storage.RecordHeaderListResponse
    | storage.RecordListResponse
    | storage.StoredRangeResponse
)
