"""One client connection: frames in, calls on partitions out (docs/protocol.md, clients and servers).

A `ChannelHandler`: every method is synchronous and called on the loop; a frame is handled completely before
the next one, and nothing in here waits, so no partition can hold up another one on the same connection
(weakness 13.14, safety D7). What takes time is waited for elsewhere: by a partition's owner tasks, or by the
admin desk.

Invariants
* `client_id` is that of the first message, `connection_seq_num` that of the first mount;
  neither ever changes (the fence in `partition.mounts` depends on it).
* Appends are taken under request ids of `client_id` only: all that 0.13.2 sends on a connection is of one
  client.
* A frame that breaks the protocol raises ProtocolError: the channel closes with that reason. Since version 5
  an append above the limit of a frame does not: it is answered, and passed over.
* A client that sends requests and reads no answers is closed once `max_pending_bytes` wait for it, or once
  what it asked for while it was behind is more than its share of what all such connections may have
  (`UNREAD_BYTES`). Data and feeds are not among it: they wait until it has caught up.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import structlog

from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.incoming import FRAME_UNITS
from waltz_protocol.aio.unsent import UnsentReplies
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError, TooManyLocksError
from waltz_protocol.frame import MAX_READ_BYTES
from waltz_protocol.frames.append import LARGE_BYTES, MAX_LOCKS, Append, parse_append, parse_large_append
from waltz_protocol.frames.append_batch import (
    APPEND_BATCH_TYPE,
    FIRST_VERSION,
    REPEATED_APPEND_TYPE,
    Repeated,
    Verdict,
    split_batch,
    split_repeated,
)
from waltz_protocol.frames.replies import mount_response
from waltz_protocol.messages.client import (
    AppendRequest,
    BlockCredit,
    BlockFailureCode,
    BlockFeedEnd,
    BlockFeedRequest,
    CloseCode,
    CloseNotice,
    FeedRequest,
    FlushRequest,
    HighWaterMarkRequest,
    MountRequest,
    MountState,
    TransactionDataRequest,
    UnmountRequest,
)
from waltz_protocol.messages.producers import ProducerMountRequest
from waltz_protocol.types import ReqId
from waltz_server.admin_rpc import ADMIN_TYPES, AdminDesk
from waltz_server.directory import DIRECTORY_TYPES, DirectoryDesk
from waltz_server.partition.append_answers import AppendAnswers
from waltz_server.partition.append_outcomes import refuse
from waltz_server.partition.block_feeds import block_failure
from waltz_server.partition.client import Parked
from waltz_server.partition.owned_partition import Partition
from waltz_server.producers import PRODUCER_TYPES, ProducerDesk
from waltz_server.registry import PartitionRegistry
from waltz_server.store.callbacks import Callbacks

log = structlog.get_logger(__name__)

DEFAULT_MAX_PENDING_BYTES = 256 * 1024 * 1024
_BYTES_PER_UNIT_SHIFT = 9
_PRODUCER_BYTES_PER_UNIT_SHIFT = 4
"""Each of its checkpoints is decoded and checked."""
MARKER_UNITS = 200
"""Of work (see `aio.turns`) for a mount, flush or feed request beside that for its frame: each may be a
question to the storage nodes, and a client has a handful of them per partition in its life."""
APPENDS_PER_STEP = 32
"""Of a batch, between two looks at whether it is somebody else's turn."""
UNREAD_BYTES = 32 * 1024 * 1024
"""Of all connections of a server: answers to what was asked for while megabytes of answers were waiting
already."""

_I32 = struct.Struct(">i")
_CLIENT_AND_PARTITION = struct.Struct(">i4xi")
_GENERATION_AND_PARTITION = struct.Struct(">ii")
_GENERATION_OFFSET = 5
_PARTITION_OFFSET = 9
_FIELDS_OFFSET = 17
_I64 = struct.Struct(">q")
_APPEND = AppendRequest.TYPE
_DATA = TransactionDataRequest.TYPE
BLOCKS_SINCE = BlockFeedRequest.SINCE
_BLOCK_TYPES = (BlockFeedRequest.TYPE, BlockCredit.TYPE, BlockFeedEnd.TYPE)
_FIXED_SIZES = {
    MountRequest.TYPE: _FIELDS_OFFSET + 16,
    ProducerMountRequest.TYPE: _FIELDS_OFFSET + 20,
    FeedRequest.TYPE: _FIELDS_OFFSET + 8,
    FlushRequest.TYPE: _FIELDS_OFFSET,
    HighWaterMarkRequest.TYPE: _FIELDS_OFFSET,
}
_DATA_SIZE = _FIELDS_OFFSET + 8


class ClientConnection:
    """See the module. Made by the listener for every accepted connection."""

    def __init__(
        self,
        registry: PartitionRegistry,
        admin: AdminDesk,
        *,
        max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
        max_locks: int = MAX_LOCKS,
        unread: UnsentReplies | None = None,
        directory: DirectoryDesk | None = None,
        producers: ProducerDesk | None = None,
    ) -> None:
        """`unread`, `directory` and `producers`: shared by all connections of the server."""
        self.client_id = 0
        self.connection_seq_num = 0
        self.version = 0
        self.answers: AppendAnswers | None = None
        self._registry = registry
        self._partitions = registry.partitions
        self._admin = admin
        self._directory = directory
        self._producers = producers
        self._max_pending_bytes = max_pending_bytes
        self._max_locks = max_locks
        self._unread = unread if unread is not None else UnsentReplies(UNREAD_BYTES)
        self.pending_bytes = 0
        """Queued while the connection was not writable."""
        self._warned_of_locks = self._warned_of_size = False
        self._close_code = CloseCode.LEAVING
        """Of a close without an error: the listener's, unless it is our own."""
        self._channel: Channel | None = None
        self._has_client_id = False
        self._has_seq_num = False
        self._parked: list[Parked] = []
        self._mounted: dict[int, tuple[object, bytes]] = {}

    # -- the face the partitions see (`partition.client.Client`) ---------------------------------------------

    @property
    def closed(self) -> bool:
        return self._channel is None or self._channel.closed

    @property
    def writable(self) -> bool:
        return self._channel is not None and self._channel.writable

    @property
    def peer(self) -> str:
        """Its address."""
        return "?" if self._channel is None else self._channel.peer

    @property
    def unsent_bytes(self) -> int:
        """What waits for it to read."""
        return 0 if self._channel is None else self._channel.pending_bytes

    def mounted(self) -> Iterable[int]:
        """Partitions of which READY was sent last."""
        return self._mounted.keys()

    def send(self, *parts: bytes | memoryview) -> None:
        """Queue whole frames; one write per loop turn."""
        channel = self._channel
        if channel is not None:
            if not channel.writable:
                self.pending_bytes += sum(map(len, parts))
            channel.send(*parts)

    def close(self, reason: str) -> None:
        """End the connection."""
        if self._channel is not None:
            log.info(
                "client connection closed", client=self.client_id, peer=self._channel.peer, reason=reason
            )
            self._close_code = CloseCode.TOO_MUCH
            self._channel.close(reason)

    def dismiss(self, reason: str) -> None:
        """End the connection because the server leaves."""
        if self._channel is not None:
            self._channel.close(reason)

    def _farewell(self, reason: str, error: Exception | None) -> bytes:
        code = self._close_code
        if error is not None:
            protocol = isinstance(error, ProtocolError)
            code = CloseCode.PROTOCOL_ERROR if protocol else CloseCode.INTERNAL_ERROR
        notice = CloseNotice(ReqId(self.client_id, -1, -1, -1), code, reason)
        return CLIENT.encode(notice, self.version)

    def misbehaved(self, what: str) -> None:
        """A line in the log that names the peer."""
        if self._channel is not None:
            self._registry.peer_log.warn(self._channel.peer, f"client {self.client_id}: {what}")

    def park(self, parked: Parked) -> None:
        """Call back when the buffer has drained."""
        self._parked.append(parked)

    def note_mount(self, partition_id: int, incarnation: object, req_id: bytes) -> None:
        """READY was sent for this mount by this partition object."""
        self._mounted[partition_id] = (incarnation, req_id)

    def unmount_stale(self, partition: Partition) -> None:
        """Ask the client to mount again if it believes itself mounted on an earlier object of this
        partition."""
        mounted = self._mounted.get(partition.partition_id)
        if mounted is not None and mounted[0] is not partition:
            self.withdraw_mount(partition.partition_id)

    def withdraw_mount(self, partition_id: int) -> None:
        """NOT_READY for a mount that was READY."""
        mounted = self._mounted.pop(partition_id, None)
        if mounted is not None:
            self.send(mount_response(self.version, mounted[1], MountState.NOT_READY))

    # -- channel handler -------------------------------------------------------------------------------------

    def channel_ready(self, channel: Channel) -> None:
        """Hello exchanged."""
        self._channel = channel
        self.version = channel.version
        if self.version >= FIRST_VERSION:
            self.answers = AppendAnswers(self, Callbacks(channel.failed), self._registry.address_of)
            channel.farewell = self._farewell
            channel.pass_over(self._too_large)
        self._registry.connection_opened(self)

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:
        """One message; see `ChannelHandler`."""
        if len(body) < _FIELDS_OFFSET:
            raise ProtocolError(f"a message of {len(body)} bytes has no request id")
        kind = body[0]
        if not self._has_client_id:
            self._note_client_id(body)
        if kind == _APPEND:
            if len(body) > LARGE_BYTES:
                return self._large_append(channel, body)
            self._append(channel, body)
        elif kind == APPEND_BATCH_TYPE and self.answers is not None:
            return self._append_batch(channel, _lasting(body))
        elif kind == _DATA:
            self._transaction_data(body)
        elif kind in _FIXED_SIZES and (kind != ProducerMountRequest.TYPE or self.answers is not None):
            if kind != HighWaterMarkRequest.TYPE:
                channel.charge(MARKER_UNITS)
            self._fixed_size(kind, body)
        elif kind in _BLOCK_TYPES and self.version >= BLOCKS_SINCE:
            channel.charge(MARKER_UNITS)
            self._blocks(body)
        elif kind in ADMIN_TYPES:
            self._admin.handle(self, body)
        elif kind in DIRECTORY_TYPES and self.answers is not None and self._directory is not None:
            channel.charge(MARKER_UNITS)
            self._directory.handle(self, body)
        elif kind in PRODUCER_TYPES and self.answers is not None and self._producers is not None:
            channel.charge(MARKER_UNITS + (len(body) >> _PRODUCER_BYTES_PER_UNIT_SHIFT))
            self._producers.handle(self, body)
        elif kind == UnmountRequest.TYPE and self.answers is not None:
            channel.charge(MARKER_UNITS)
            self._unmount(body)
        elif kind == REPEATED_APPEND_TYPE and self.answers is not None:
            repeated, body = split_repeated(_lasting(body))
            return self._large_append(channel, body, repeated)
        else:
            raise ProtocolError(f"message type {kind} is unknown or not for servers")
        return None

    def _note_client_id(self, body: memoryview) -> None:
        self._has_client_id = True
        self.client_id = _I32.unpack_from(body, 1)[0]

    def _too_large(self, head: memoryview, size: int) -> bool:
        """Of a frame above the limit only its head is read. An append that goes alone is refused, so that its
        client does not send it again on the next connection, which would end as this one; whatever else it is
        ends the connection."""
        channel = self._channel
        if head[0] not in (_APPEND, REPEATED_APPEND_TYPE) or channel is None:
            return False
        if not self._has_client_id:
            self._note_client_id(head)
        limit = channel.settings.max_frame_bytes
        text = f"its frame has {size} bytes, and the server takes {limit} (server.maxFrameBytes)"
        refuse(self, bytes(head[1:_FIELDS_OFFSET]), Verdict.TOO_LARGE, limit, text)
        if not self._warned_of_size:
            self._warned_of_size = True
            channel.warn(f"an append is refused: {text}")
        return True

    def _append(self, channel: Channel, body: memoryview) -> None:
        try:
            append = parse_append(body, self.version, self._max_locks)
        except TooManyLocksError as error:
            self._drop(channel, body, error)
            return
        client_id, partition_id = _CLIENT_AND_PARTITION.unpack_from(body, 1)
        self._take(client_id, partition_id, append)

    def _append_batch(self, channel: Channel, body: memoryview) -> Iterator[int]:
        """Appends that came in one frame, in steps of some."""
        for count, append in enumerate(split_batch(body, self.version), 1):
            kind = append[0]
            if kind == _APPEND and len(append) <= LARGE_BYTES:
                self._append(channel, append)
            elif kind == _APPEND:
                yield from self._large_append(channel, append)
            elif kind == REPEATED_APPEND_TYPE:
                repeated, again = split_repeated(append)
                yield from self._large_append(channel, again, repeated)
            else:
                raise ProtocolError(f"message type {kind} in a batch of appends")
            if not count % APPENDS_PER_STEP:
                yield APPENDS_PER_STEP * FRAME_UNITS

    def _large_append(
        self, channel: Channel, body: memoryview, repeated: Repeated | None = None
    ) -> Iterator[int]:
        """The same in steps of a millisecond or two."""
        client_id, partition_id = _CLIENT_AND_PARTITION.unpack_from(body, 1)
        try:
            steps = parse_large_append(body, self.version, self._max_locks)
            while True:
                yield next(steps) >> _BYTES_PER_UNIT_SHIFT
        except TooManyLocksError as error:
            self._drop(channel, body, error)
        except StopIteration as parsed:
            self._take(client_id, partition_id, parsed.value, repeated)

    def _take(
        self, client_id: int, partition_id: int, append: Append | None, repeated: Repeated | None = None
    ) -> None:
        """To the partition that is here now: while a large append was parsed, its partition may have left or
        begun anew."""
        partition = self._partitions.get(partition_id)
        if append is None:
            if self.answers is not None:
                raise ProtocolError("an append with a null lock array")
        elif client_id != self.client_id:
            # its commit would be taken for one of that client's (safety D10)
            self.misbehaved(f"dropped an append under a request id of client {client_id}")
            refuse(self, append.req_id, Verdict.REQUEST_ID_IN_USE)
        elif partition is not None:
            partition.append(self, append, repeated)
        else:
            refuse(self, append.req_id, Verdict.NOT_SERVED)

    def _drop(self, channel: Channel, body: memoryview, error: TooManyLocksError) -> None:
        """Before version 5 the protocol has no word for it: the append vanishes, and its client learns by a
        flush that it failed. The partitions of its other appends have nothing to do with it."""
        refuse(self, bytes(body[1:_FIELDS_OFFSET]), Verdict.TOO_LARGE, self._max_locks, str(error))
        if not self._warned_of_locks:
            self._warned_of_locks = True
            channel.warn(f"dropped: {error}; server.maxLocksPerAppend is {self._max_locks}")

    def _transaction_data(self, body: memoryview) -> None:
        if len(body) != _DATA_SIZE:
            raise ProtocolError(f"a transaction data request of {len(body)} bytes")
        req_id = bytes(body[1:_FIELDS_OFFSET])
        transaction_id: int = _I64.unpack_from(body, _FIELDS_OFFSET)[0]
        partition_id: int = _I32.unpack_from(body, _PARTITION_OFFSET)[0]
        partition = self._partitions.get(partition_id)
        if partition is None:
            self._registry.hold_read(self, partition_id, req_id, transaction_id)
        else:
            partition.transaction_data(self, req_id, transaction_id)

    def _blocks(self, body: memoryview) -> None:
        """What concerns feeds of blocks; see `partition.block_feeds`."""
        message = CLIENT.decode(body, self.version)
        partition_id: int = _I32.unpack_from(body, _PARTITION_OFFSET)[0]
        partition = self._partitions.get(partition_id)
        req_id = bytes(body[1:_FIELDS_OFFSET])
        match message:
            case BlockFeedRequest() if partition is None:
                text = "the partition is not served here"
                self.send(block_failure(self.version, req_id, BlockFailureCode.NOT_SERVED, text))
            case BlockFeedRequest() if partition is not None:
                partition.block_feeds_of(self).open(self, message)
            case BlockCredit() if partition is not None:
                partition.block_feeds_of(self).credit(self, req_id, message.transactions, message.size_bytes)
            case BlockFeedEnd() if partition is not None:
                partition.block_feeds_of(self).end(self, req_id)

    def _fixed_size(self, kind: int, body: memoryview) -> None:
        if len(body) != _FIXED_SIZES[kind]:
            raise ProtocolError(f"a message of type {kind} with {len(body)} bytes")
        req_id = bytes(body[1:_FIELDS_OFFSET])
        generation, partition_id = _GENERATION_AND_PARTITION.unpack_from(body, _GENERATION_OFFSET)
        partition = self._partitions.get(partition_id)
        if kind == MountRequest.TYPE:
            self._mount(partition, partition_id, req_id, generation, body)
        elif kind == ProducerMountRequest.TYPE:
            epoch: int = _I32.unpack_from(body, _FIELDS_OFFSET + 16)[0]
            if epoch < 1:
                raise ProtocolError(f"a mount of a named producer with the epoch {epoch}")
            self._mount(partition, partition_id, req_id, generation, body, epoch)
        elif partition is None:
            # silence, as in the reference: these messages have no answer that says so (13.2)
            log.debug(
                "message for a partition that is not here",
                partition=partition_id,
                client=self.client_id,
                type=kind,
            )
        elif kind == FeedRequest.TYPE:
            partition.feed(self, req_id, generation, _mark(body))
        elif kind == FlushRequest.TYPE:
            partition.flush(self, req_id, generation)
        else:
            partition.high_water_mark_request(self, req_id)

    def _mount(
        self,
        partition: Partition | None,
        partition_id: int,
        req_id: bytes,
        generation: int,
        body: memoryview,
        epoch: int = 0,
    ) -> None:
        # the client has left whatever mount it had here
        self._mounted.pop(partition_id, None)
        if not self._has_seq_num:
            self.connection_seq_num = _I64.unpack_from(body, _FIELDS_OFFSET + 8)[0]
            self._has_seq_num = True
        if partition is None:
            self._registry.hold_mount(self, partition_id, req_id, generation, _mark(body), epoch)
        else:
            partition.mount(self, req_id, generation, _mark(body), epoch)

    def _unmount(self, body: memoryview) -> None:
        if len(body) != _FIELDS_OFFSET:
            raise ProtocolError(f"an unmount request of {len(body)} bytes")
        partition_id: int = _I32.unpack_from(body, _PARTITION_OFFSET)[0]
        self._mounted.pop(partition_id, None)
        self._registry.forget_mount(self, partition_id)
        partition = self._partitions.get(partition_id)
        if partition is not None:
            partition.unmount(self)

    def frames_ended(self, channel: Channel) -> None:
        """End of one socket read. Appends were scheduled when they arrived; only the bound is looked at
        here."""
        if channel.pending_bytes > self._max_pending_bytes:
            self.close(f"{channel.pending_bytes} bytes of answers wait for a client that does not read them")
        elif self.pending_bytes:
            self._unread.sent(self)
            if self._unread.beyond_share(self):
                channel.warn(
                    f"the connection is closed: it asks on and does not read {channel.pending_bytes} bytes of answers"
                )
                self.close("it asks on and does not read the answers")

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Back pressure of the channel."""
        if writable:
            self.pending_bytes = 0
            parked, self._parked = self._parked, []
            for waiting in parked:
                waiting.client_writable(self)

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """The connection has gone, for whatever reason."""
        self._parked.clear()
        self._mounted.clear()
        if self._directory is not None:
            self._directory.forget(self)
        if self._producers is not None:
            self._producers.forget(self)
        self._registry.connection_closed(self)


def _lasting(body: memoryview) -> memoryview:
    """A body that is worked on in steps: a small one is in a buffer that all connections share."""
    return body if len(body) > MAX_READ_BYTES else memoryview(bytes(body))


def _mark(body: memoryview) -> int:
    """A client's high-water mark; below -1 makes no sense and counts as "nothing"."""
    mark: int = _I64.unpack_from(body, _FIELDS_OFFSET)[0]
    return max(mark, -1)
