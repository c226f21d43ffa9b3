"""One stream connection: mounts, appends, feeds of all partitions of one server (channel handler).

The hot path is `StreamSession.frame_received` for FEED_DATA: one unpack, one dictionary lookup, one
call, no object but the unpacked tuple. What arrived in one read of the socket is handed over together in
`frames_ended`.

Reading is paused when a reader's buffer is full and nobody else needs the connection (no append outstanding,
no mount under way, no reader starving). When somebody does, reading continues and the full reader is dropped
back instead, so a slow reader can never hold up an outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from waltz_client._internal.link import close_noticed
from waltz_client.transaction import FeedFields
from waltz_protocol.aio.channel import Channel
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.append_batch import (
    APPEND_ANSWERS_TYPE,
    BATCH_BYTES,
    FIRST_VERSION,
    MAX_BATCH_APPENDS,
    Answer,
    encode_batch,
    parse_answers,
)
from waltz_protocol.frames.feed import FEED_DATA, FEED_DATA_BODY_BYTES, unpack_feed_data
from waltz_protocol.messages.client import (
    CloseNotice,
    FeedData,
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    LockFailure,
    MountRequest,
    MountResponse,
    MountState,
    UnmountRequest,
)
from waltz_protocol.messages.producers import ProducerMountRequest
from waltz_protocol.types import Endpoint, ReqId


class AttachedPartition(Protocol):
    """What a session needs of a partition: it hands over what arrived for it."""

    session: StreamSession | None
    """The one that the partition is attached to."""

    @property
    def client_id(self) -> int:
        """Of the client; answers to another one are not for it."""
        ...

    @property
    def reader_full(self) -> bool:
        """A reader has enough to do: reading on is not urgent."""
        ...

    @property
    def needs_reading(self) -> bool:
        """Somebody waits for what this connection brings."""
        ...

    def session_ready(self, session: StreamSession) -> None:
        """The connection can be used."""
        ...

    def session_lost(self, session: StreamSession) -> None:
        """The connection is gone."""
        ...

    def feed_data(self, fields: FeedFields) -> bool:
        """FEED_DATA. True when it is the first of this turn (`end_turn` is due). Hot."""
        ...

    def end_turn(self) -> None:
        """The end of one read of the socket."""
        ...

    def mount_response(self, seq_num: int, state: MountState) -> None:
        """MOUNT_RESPONSE."""
        ...

    def feed_suspended(self, seq_num: int) -> None:
        """FEED_SUSPENDED."""
        ...

    def flush_response(self, seq_num: int, mark: int) -> None:
        """FLUSH_RESPONSE."""
        ...

    def lock_failure(self, req_id: ReqId, mark: int) -> None:
        """LOCK_FAILURE."""
        ...

    def append_answered(self, answer: Answer) -> bool:
        """One of APPEND_ANSWERS. True when `end_turn` is due."""
        ...

    def wake_writers(self) -> None:
        """The socket takes more."""
        ...


class StreamSession:
    """The stream side of one TCP connection.

    Invariants: `connection_seq_num` is larger than that of every earlier stream connection of this client
    object (the server's fence against stale connections); partitions are attached to at most one session.
    """

    def __init__(
        self, endpoint: Endpoint, connection_seq_num: int, partitions: Mapping[int, AttachedPartition]
    ) -> None:
        self.endpoint = endpoint
        self.connection_seq_num = connection_seq_num
        self.channel: Channel | None = None
        self.version = 0
        self.paused = False
        self._partitions = partitions  # of this server; shared with the link, changed by discovery
        self._touched: list[AttachedPartition] = []
        self._batch: list[bytes] = []
        self._batch_bytes = 0

    # -- sending ---------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Handshake done and not closed."""
        return self.channel is not None and not self.channel.closed

    def send_frame(self, frame: bytes) -> bool:
        """Queue a whole frame; False when the connection is gone (nothing was sent)."""
        channel = self.channel
        if channel is None or channel.closed:
            return False
        if self._batch:
            self._send_batch()  # what was said first comes first
        channel.send(frame)
        return True

    def send_append(self, frame: bytes) -> bool:
        """Queue the frame of an append: since version 5 with all others of this turn of the loop, in one
        frame. False when the connection is gone (nothing was sent)."""
        if self.version < FIRST_VERSION:
            return self.send_frame(frame)
        if not self.ready:
            return False
        batch = self._batch
        if batch and self._batch_bytes + len(frame) > BATCH_BYTES:
            self._send_batch()
            batch = self._batch
        if not batch:
            asyncio.get_running_loop().call_soon(self._send_batch)
        batch.append(frame)
        self._batch_bytes += len(frame)
        if self._batch_bytes >= BATCH_BYTES or len(batch) == MAX_BATCH_APPENDS:
            self._send_batch()
        return True

    def _send_batch(self) -> None:
        batch, channel = self._batch, self.channel
        self._batch, self._batch_bytes = [], 0
        if not batch or channel is None or channel.closed:
            return
        channel.send(batch[0] if len(batch) == 1 else encode_batch(batch, self.version))

    def send_mount(self, req_id: ReqId, high_water_mark: int, epoch: int = 0) -> bool:
        """Queue a mount request; with an epoch that of a named producer, where the server knows these."""
        if epoch and self.version >= ProducerMountRequest.SINCE:
            request = ProducerMountRequest(req_id, high_water_mark, self.connection_seq_num, epoch)
            return self.send_frame(CLIENT.encode(request, self.version))
        return self.send_frame(
            CLIENT.encode(MountRequest(req_id, high_water_mark, self.connection_seq_num), self.version)
        )

    def send_feed_request(self, req_id: ReqId, high_water_mark: int) -> bool:
        """Queue a feed request."""
        return self.send_frame(CLIENT.encode(FeedRequest(req_id, high_water_mark), self.version))

    def send_unmount(self, req_id: ReqId) -> None:
        """Queue an unmount request; before version 5 there is none, and the feed runs until its credit is
        used up."""
        if self.version >= UnmountRequest.SINCE:
            self.send_frame(CLIENT.encode(UnmountRequest(req_id), self.version))

    def send_flush(self, req_id: ReqId) -> bool:
        """Queue a flush request naming an append."""
        return self.send_frame(CLIENT.encode(FlushRequest(req_id), self.version))

    def abort(self, reason: str) -> None:
        """Give the connection up; the link replaces it."""
        if self.channel is not None:
            self.channel.close(reason)

    # -- channel handler -------------------------------------------------------------------------------------

    def channel_ready(self, channel: Channel) -> None:
        """Nothing yet: the link calls `established`."""

    def established(self, channel: Channel) -> None:
        """The handshake is done: mount what belongs to this server."""
        self.channel = channel
        self.version = channel.version
        for partition in list(self._partitions.values()):
            partition.session_ready(self)

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        """One frame. FEED_DATA inline, the rest by message type."""
        if body[0] == FEED_DATA:
            if len(body) != FEED_DATA_BODY_BYTES:
                raise ProtocolError(f"feed data of {len(body)} bytes")
            fields = unpack_feed_data(body, 1)
            partition = self._partitions.get(fields[2])
            if partition is not None and partition.session is self and partition.feed_data(fields):
                self._touched.append(partition)
            return
        if body[0] == APPEND_ANSWERS_TYPE and channel.version >= FIRST_VERSION:
            self._answers(body)
            return
        self._message(channel, CLIENT.decode(body, channel.version))

    def _answers(self, body: memoryview) -> None:
        client_id, answers = parse_answers(body)
        for answer in answers:
            partition = self._partitions.get(answer.partition_id)
            if (
                partition is not None
                and partition.session is self
                and client_id == partition.client_id
                and partition.append_answered(answer)
            ):
                self._touched.append(partition)

    def _message(self, channel: Channel, message: object) -> None:
        match message:
            case CloseNotice():
                close_noticed(channel, message)
                return
            case MountResponse() | FeedSuspended() | FlushResponse() | LockFailure():
                partition = self._partitions.get(message.req_id.partition_id)
            case FeedData():
                raise ProtocolError("feed data by the slow path")
            case _:
                raise ProtocolError(f"unexpected {type(message).__name__} on a stream connection")
        if partition is None or partition.session is not self:
            return
        if message.req_id.client_id != partition.client_id:
            return
        match message:
            case MountResponse():
                partition.mount_response(message.req_id.seq_num, message.state)
            case FeedSuspended():
                partition.feed_suspended(message.req_id.seq_num)
            case FlushResponse():
                partition.flush_response(message.req_id.seq_num, message.transaction_id)
            case LockFailure():
                partition.lock_failure(message.req_id, message.transaction_id)

    def frames_ended(self, channel: Channel) -> None:
        """The end of one read: hand over what came."""
        touched = self._touched
        if touched:
            self._touched = []
            for partition in touched:
                partition.end_turn()

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Writers waiting for the socket may continue."""
        if writable:
            for partition in list(self._partitions.values()):
                partition.wake_writers()

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """The connection is gone: its partitions are unmounted, nothing is failed by that."""
        self.frames_ended(channel)
        for partition in list(self._partitions.values()):
            partition.session_lost(self)

    # -- flow control ----------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether something can be sent: the connection is open and the socket keeps up."""
        channel = self.channel
        return channel is not None and channel.writable and not channel.closed

    def reconsider_reading(self) -> None:
        """Pause or resume reading according to who is full and who is in need."""
        channel = self.channel
        if channel is None or channel.closed:
            return
        full = in_need = False
        for partition in self._partitions.values():
            if partition.session is self:
                full = full or partition.reader_full
                in_need = in_need or partition.needs_reading
        if full and not in_need:
            if not self.paused:
                self.paused = True
                channel.pause_reading()
        elif self.paused:
            self.paused = False
            channel.resume_reading()
