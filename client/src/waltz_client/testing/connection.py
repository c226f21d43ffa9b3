"""The server's end of one connection: frames in, answers out (channel handler). All versions of the
protocol."""

from __future__ import annotations

from collections.abc import Callable

from waltz_client.testing.answers import answer
from waltz_client.testing.block_feeds import not_served
from waltz_client.testing.partition import LogPartition
from waltz_protocol.aio.channel import Channel
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.append import APPEND_TYPE, parse_append
from waltz_protocol.frames.append_batch import (
    APPEND_BATCH_TYPE,
    FIRST_VERSION,
    REPEATED_APPEND_TYPE,
    Verdict,
    split_batch,
    split_repeated,
)
from waltz_protocol.messages import client as m
from waltz_protocol.messages.fields import Message
from waltz_protocol.messages.producers import ProducerMountRequest
from waltz_protocol.types import ReqId, data_checksum


class LogConnection:
    """One stream or RPC connection of one client. `seq_num` is that of its first mount."""

    def __init__(
        self,
        partition_of: Callable[[int], LogPartition | None],
        all_ids: Callable[[], list[int]],
        on_closed: Callable[[LogConnection], object],
    ) -> None:
        self.channel: Channel | None = None
        self.version = 0
        self.seq_num: int | None = None
        self._partition_of = partition_of  # None for a partition that is not served
        self._all_ids = all_ids
        self._on_closed = on_closed

    def send(self, message: Message) -> None:
        """Send one message; dropped when the connection is gone."""
        self.send_frame(CLIENT.encode(message, self.version))

    def send_frame(self, frame: bytes) -> None:
        """Send one whole frame; dropped when the connection is gone."""
        if self.channel is not None:
            self.channel.send(frame)

    def close(self, reason: str) -> None:
        """End the connection."""
        if self.channel is not None:
            self.channel.close(reason)

    # -- channel handler -------------------------------------------------------------------------------------

    def channel_ready(self, channel: Channel) -> None:
        """The Hellos are exchanged."""
        self.channel = channel
        self.version = channel.version

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        """One request."""
        kind = body[0]
        if kind == APPEND_TYPE or (kind == REPEATED_APPEND_TYPE and channel.version >= FIRST_VERSION):
            self._append(body)
            return
        if kind == APPEND_BATCH_TYPE and channel.version >= FIRST_VERSION:
            for append in split_batch(body, channel.version):
                self._append(append)
            return
        message = CLIENT.decode(body, channel.version)
        match message:
            case (
                m.MountRequest()
                | ProducerMountRequest()
                | m.FeedRequest()
                | m.FlushRequest()
                | m.UnmountRequest()
            ):
                self._stream(message)
            case m.BlockFeedRequest() | m.BlockCredit() | m.BlockFeedEnd():
                self._blocks(message)
            case m.TransactionDataRequest() | m.HighWaterMarkRequest():
                self._read(message)
            case _:
                self._admin(message)

    def _append(self, body: memoryview) -> None:
        repeated = None
        if body[0] == REPEATED_APPEND_TYPE:
            repeated, body = split_repeated(body)
        append = parse_append(body, self.version)
        if append is None:
            return
        partition = self._partition_of(ReqId.unpack(append.req_id).partition_id)
        if partition is not None:
            partition.append_received(self, append, repeated)
        else:
            answer(self, append.req_id, Verdict.NOT_SERVED)

    def _stream(
        self,
        message: m.MountRequest | ProducerMountRequest | m.FeedRequest | m.FlushRequest | m.UnmountRequest,
    ) -> None:
        partition = self._partition_of(message.req_id.partition_id)
        match message:
            case m.MountRequest() | ProducerMountRequest() if partition is None:
                self.send(m.MountResponse(message.req_id, m.MountState.NOT_READY))
            case m.MountRequest() | ProducerMountRequest() if partition is not None:
                if self.seq_num is None:
                    self.seq_num = message.connection_seq_num
                partition.mount_received(self, message)
            case m.FeedRequest() if partition is not None:
                partition.feed_received(self, message)
            case m.UnmountRequest() if partition is not None:
                partition.unmounted(self)
            case m.FlushRequest() if partition is not None:
                partition.flush_received(self, message)

    def _blocks(self, message: m.BlockFeedRequest | m.BlockCredit | m.BlockFeedEnd) -> None:
        partition = self._partition_of(message.req_id.partition_id)
        if partition is not None:
            partition.blocks_received(self, message)
        elif isinstance(message, m.BlockFeedRequest):
            self.send(not_served(message.req_id))

    def _read(self, message: m.TransactionDataRequest | m.HighWaterMarkRequest) -> None:
        partition = self._partition_of(message.req_id.partition_id)
        if isinstance(message, m.HighWaterMarkRequest):
            if partition is not None:
                self.send(m.HighWaterMarkResponse(message.req_id, partition.high_water_mark))
            return
        data, error = (
            (None, "partition not ready") if partition is None else partition.read(message.transaction_id)
        )
        checksum = 0 if data is None else data_checksum(data)
        self.send(m.TransactionDataResponse(message.req_id, message.transaction_id, data, checksum, error))

    def _admin(self, message: object) -> None:
        match message:
            case m.CheckStorageConnectivityRequest():
                self.send(m.CheckStorageConnectivityResponse(message.req_id, {}))
            case m.ServerPartitionsAssignmentRequest():
                self.send(m.ServerPartitionsAssignmentResponse(message.req_id, tuple(self._all_ids())))
            case m.ServerPartitionsHealthStatRequest():
                self.send(
                    m.ServerPartitionsHealthStatResponse(message.req_id, dict.fromkeys(self._all_ids(), True))
                )
            case m.AddPreferredPartitionRequest():
                self.send(m.AddPreferredPartitionResponse(message.req_id, True))
            case m.RemovePreferredPartitionRequest():
                self.send(m.RemovePreferredPartitionResponse(message.req_id, True))
            case _:
                raise ProtocolError(f"unexpected {type(message).__name__}")

    def frames_ended(self, channel: Channel) -> None:
        """Requests are answered one by one."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """The log of a test is small: answers wait in the channel."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """The partitions forget it."""
        for partition_id in self._all_ids():
            partition = self._partition_of(partition_id)
            if partition is not None:
                partition.connection_lost(self)
        self._on_closed(self)
