"""What waits in a partition's queue: requests of the storage port and calls of the admin port.

A request is parsed on arrival, on the loop; an Append is converted to disk form there, so that the disk
thread only writes. No message object is built for an Append and none for its records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias, get_args

from waltz_protocol.checksum import crc32
from waltz_protocol.codec import STORAGE
from waltz_protocol.errors import ProtocolError, RecordChecksumError, RecordPartitionError
from waltz_protocol.frames.blocks import STORED_HEAD_BYTES, cut_stored
from waltz_protocol.frames.storage import (
    APPEND_HEAD_BYTES,
    STORED_APPEND_HEAD_BYTES,
    parse_prefix,
    reply_head,
    unpack_append_head,
    unpack_stored_append_head,
)
from waltz_protocol.messages import storage
from waltz_protocol.messages.fields import RpcError
from waltz_storage.engine.errors import WireFormatError
from waltz_storage.engine.layout import RECORD_HEAD_SIZE, RecordBatch, unpack_u32, wire_to_disk
from waltz_storage.engine.storage_manager import StorageManager

_SMALL_REQUEST_BYTES = 64
_LEAST_RECORD_BYTES = 36
"""Of either form."""
_COPIED_REQUEST_BYTES = 1 << 20
STEP_RECORDS = 2048
"""Converted without a turn for anybody else. A server's frame seldom has more, and then it is a matter of
milliseconds."""
MAX_APPEND_RECORDS = 65_536
"""In one request. Servers send at most `storage.maxBatchSize` (100); a record costs some hundred bytes while
it is converted, so a large frame of tiny ones would cost many times its size."""

ReadMessage: TypeAlias = (
    storage.RecordHeaderRequest
    | storage.RecordRequest
    | storage.RecordHeaderListRequest
    | storage.RecordListRequest
    | storage.StoredRangeRequest
)
RoutedMessage: TypeAlias = (
    storage.LastSessionInfoRequest
    | storage.SetLowWaterMarkRequest
    | storage.TruncateRequest
    | storage.MaxTransactionIdRequest
    | ReadMessage
)
"""What goes to a partition, without Append, which is not made into a message."""
READ_KINDS = frozenset(message.TYPE for message in get_args(ReadMessage))
"""For one comparison per queued request, appends included."""

APPEND = storage.AppendRequest.TYPE
STORED_APPEND = storage.StoredAppendRequest.TYPE
APPENDS = frozenset({APPEND, STORED_APPEND})
"""For one comparison per queued request."""
_SUCCESS = storage.SuccessResponse.TYPE
DAMAGED_APPENDS = "damaged-append-request"
"""Name of the counter of appends that are refused because a record does not match its checksum."""
COUNTERS: dict[int, str] = {
    storage.LastSessionInfoRequest.TYPE: "last-session-info-request",
    storage.SetLowWaterMarkRequest.TYPE: "set-low-water-mark-request",
    storage.TruncateRequest.TYPE: "truncate-request",
    storage.RecordHeaderRequest.TYPE: "record-header-request",
    storage.RecordRequest.TYPE: "record-request",
    storage.MaxTransactionIdRequest.TYPE: "max-transaction-request",
    storage.RecordHeaderListRequest.TYPE: "record-header-list-request",
    storage.RecordListRequest.TYPE: "record-list-request",
    storage.StoredRangeRequest.TYPE: "stored-range-request",
}
"""Names of the per-partition request counters, by message type."""


class ReplyChannel(Protocol):
    """Where replies go."""

    closed: bool
    version: int

    @property
    def pending_bytes(self) -> int:
        """Bytes queued and not taken by the peer yet."""
        ...

    def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """Queue whole frames."""


class Request:
    """One request of the storage port. `problem` set = to be answered with Failure when its turn comes."""

    __slots__ = (
        "arrived_seconds",
        "batch",
        "channel",
        "committed",
        "damaged",
        "kind",
        "message",
        "offline",
        "partition_id",
        "problem",
        "seq_num",
        "session_id",
        "size_bytes",
    )

    def __init__(
        self,
        channel: ReplyChannel,
        kind: int,
        session_id: int,
        seq_num: int,
        partition_id: int,
        arrived_seconds: float,
    ) -> None:
        self.channel = channel
        self.kind = kind
        self.session_id = session_id
        self.seq_num = seq_num
        self.partition_id = partition_id
        self.arrived_seconds = arrived_seconds
        self.offline = False
        self.batch: RecordBatch | None = None
        self.message: RoutedMessage | None = None
        self.problem: str | None = None
        self.damaged = False
        """`problem` is a record whose checksum does not match it."""
        self.committed = -1
        """The committed mark of its session, as far as the request says."""
        self.size_bytes = _SMALL_REQUEST_BYTES

    def success(self) -> bytes:
        """The Success frame."""
        return reply_head(self.channel.version, _SUCCESS, self.session_id, self.seq_num, self.partition_id)

    def failure(self, text: str) -> bytes:
        """The Failure frame: a text for people, never a stack (weakness 17)."""
        return STORAGE.encode(storage.FailureResponse(*self.ids, RpcError(text)), self.version)

    @property
    def version(self) -> int:
        """Of the protocol that the connection speaks."""
        return self.channel.version

    @property
    def ids(self) -> tuple[int, int, int]:
        """What a reply echoes: session, sequence number, partition."""
        return self.session_id, self.seq_num, self.partition_id


class Call:
    """Something the admin port wants done as the partition's job. `done` gets result or error, on the
    loop."""

    __slots__ = ("action", "done", "size_bytes")
    kind = -1
    """Of no message."""

    def __init__(
        self,
        action: Callable[[StorageManager], object],
        done: Callable[[object, Exception | None], None],
    ) -> None:
        self.action = action
        self.done = done
        self.size_bytes = _SMALL_REQUEST_BYTES


def parse_ids(channel: ReplyChannel, body: memoryview, now_seconds: float) -> Request:
    """Only whom to answer and with which ids: for a request that is refused unseen."""
    return Request(channel, *parse_prefix(body), now_seconds)


def parse_append(channel: ReplyChannel, body: memoryview, now_seconds: float) -> Request:
    """An Append request, of either kind, with its records in disk form. `ProtocolError` when it is
    malformed."""
    if body[0] == STORED_APPEND:
        whole, first, count, data = _stored_append_head(channel, body, now_seconds)
        starts = _cut(whole, data, 0, first, count)
        if starts is not None:
            _complete(whole, first, count, data, starts)
        return whole
    steps = parse_append_in_steps(channel, body, now_seconds)
    while True:
        try:
            next(steps)
        except StopIteration as parsed:
            request: Request = parsed.value
            return request


def is_much(body: memoryview) -> bool:
    """An Append request that is worth converting in steps."""
    if len(body) > _COPIED_REQUEST_BYTES:
        return True
    if len(body) <= STEP_RECORDS * _LEAST_RECORD_BYTES:
        return False
    if body[0] == STORED_APPEND:
        return bool(unpack_stored_append_head(body)[6] > STEP_RECORDS)
    return bool(unpack_append_head(body)[4] > STEP_RECORDS)


def parse_append_in_steps(
    channel: ReplyChannel, body: memoryview, now_seconds: float
) -> Generator[int, None, Request]:
    """The same; yields after each step what it cost, about two microseconds for a record and for each KiB. A
    body larger than `_COPIED_REQUEST_BYTES` must stay as it is until the end."""
    if body[0] == STORED_APPEND:
        return (yield from _parse_stored_append_in_steps(channel, body, now_seconds))
    try:
        kind, session_id, seq_num, partition_id, count = unpack_append_head(body)
    except struct.error:
        raise ProtocolError("an append request is cut short") from None
    if count < 0:
        raise ProtocolError("an append request without a list of records")
    if count > MAX_APPEND_RECORDS:
        raise ProtocolError(f"an append request of {count} records, more than {MAX_APPEND_RECORDS}")
    # Slices of bytes are faster than those of a view, but a large request is not worth a second copy.
    raw = bytes(body) if len(body) <= _COPIED_REQUEST_BYTES else body
    batches: list[RecordBatch] = []
    offset, problem, damaged, left = APPEND_HEAD_BYTES, None, False, count
    while left or not batches:
        try:
            converted = wire_to_disk(raw, offset, min(left, STEP_RECORDS))
        except WireFormatError as error:
            raise ProtocolError(str(error)) from None
        problem, damaged = problem or converted.problem, damaged or converted.damaged
        if batches and problem is None and converted.batch.first_txid != _next_txid(batches):
            problem = f"transaction {converted.batch.first_txid} where {_next_txid(batches)} was expected"
        done = converted.next_offset - offset
        offset, left = converted.next_offset, left - converted.batch.record_count
        batches.append(converted.batch)
        if left:
            yield 2 * (converted.batch.record_count + (done >> 10))
    if offset != len(raw) - 1:
        raise ProtocolError("an append request has left-over or missing bytes")
    request = Request(channel, kind, session_id, seq_num, partition_id, now_seconds)
    request.offline = raw[-1] == 1
    request.problem, request.damaged = problem, damaged
    request.size_bytes = len(raw) + _SMALL_REQUEST_BYTES
    if problem is None:
        request.batch = batches[0] if len(batches) == 1 else _joined(batches)
    return request


def _parse_stored_append_in_steps(
    channel: ReplyChannel, body: memoryview, now_seconds: float
) -> Generator[int, None, Request]:
    request, first, count, data = _stored_append_head(channel, body, now_seconds)
    starts, done = [0], 0
    while done < count:
        taken, begins = min(count - done, STEP_RECORDS), starts[-1]
        found = _cut(request, data, begins, first + done, taken)
        if found is None:
            return request
        starts += found[1:]
        done += taken
        if done < count:
            yield 2 * (taken + ((found[-1] - begins) >> 10))
    _complete(request, first, count, data, starts)
    return request


def _stored_append_head(
    channel: ReplyChannel, body: memoryview, now_seconds: float
) -> tuple[Request, int, int, bytes]:
    """The request without its records, the id of the first one, their count and their bytes."""
    try:
        kind, session_id, seq_num, partition_id, committed, first, count = unpack_stored_append_head(body)
    except struct.error:
        raise ProtocolError("an append of stored records is cut short") from None
    if not 0 <= count <= MAX_APPEND_RECORDS:
        raise ProtocolError(f"an append of {count} stored records, not 0 to {MAX_APPEND_RECORDS}")
    request = Request(channel, kind, session_id, seq_num, partition_id, now_seconds)
    request.committed = committed
    data = bytes(body[STORED_APPEND_HEAD_BYTES:])
    request.size_bytes = len(data) + _SMALL_REQUEST_BYTES
    return request, first, count, data


def _cut(request: Request, data: bytes, begins: int, first: int, count: int) -> Sequence[int] | None:
    """Where the records in disk form begin, and the end of the last one; each is checked as a whole. None,
    and a `problem`: one is changed, or of another partition."""
    try:
        starts = cut_stored(data, begins, request.partition_id, first, first + count - 1, count)
    except RecordChecksumError as error:
        request.problem, request.damaged = f"{error}: nothing of the append is stored", True
        return None
    except RecordPartitionError as error:  # whole, as a reader of version 0 may have given it: no damage
        request.problem = f"{error}: nothing of the append is stored"
        return None
    for start, end in pairwise(starts):  # the data's own checksum, by which version 0 is read
        if crc32(data[start + STORED_HEAD_BYTES : end - 4]) != unpack_u32(data, start + RECORD_HEAD_SIZE):
            request.problem = f"the data checksum of a record from {first} on is wrong"
            request.damaged = True
            return None
    return starts


def _complete(request: Request, first: int, count: int, data: bytes, starts: Sequence[int]) -> None:
    """All records are in order. `ProtocolError` when something follows them."""
    if starts[-1] != len(data):
        raise ProtocolError("an append of stored records has left-over bytes")
    sizes = [len(data)] if count == 1 else [end - start for start, end in pairwise(starts)]
    request.batch = RecordBatch(first, count, data, sizes)


def _next_txid(batches: list[RecordBatch]) -> int:
    return batches[-1].first_txid + batches[-1].record_count


def _joined(batches: list[RecordBatch]) -> RecordBatch:
    return RecordBatch(
        batches[0].first_txid,
        sum(batch.record_count for batch in batches),
        b"".join([batch.data for batch in batches]),
        [size for batch in batches for size in batch.sizes],
    )


def parse_routed(channel: ReplyChannel, message: RoutedMessage, now_seconds: float) -> Request:
    """Any other request that goes to a partition."""
    request = Request(
        channel, message.TYPE, message.session_id, message.seq_num, message.partition_id, now_seconds
    )
    request.message = message
    request.offline = not isinstance(message, ReadMessage) and message.offline
    return request
