"""Storage protocol frames without message objects, for the hot paths of servers and storage nodes.

The records of an append stay one slice of wire records (`records`) from the server to the disk.
"""

import struct
from typing import NamedTuple

from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.frame import Magic

APPEND_TYPE = 6
SUCCESS_TYPE = 7
FAILURE_TYPE = 8
RECORD_LIST_RESPONSE_TYPE = 18
#: Type byte, session id, sequence number, partition id.
PREFIX_SIZE = 21

_PREFIX = struct.Struct(">bqqi")
_FRAME_PREFIX = struct.Struct(">bhibqqi")
_FRAME_PREFIX_COUNT = struct.Struct(">bhibqqii")
_APPEND_HEAD = struct.Struct(">bqqii")


class StoragePrefix(NamedTuple):
    """What every storage message begins with."""

    type: int
    session_id: int
    seq_num: int
    partition_id: int


class StorageAppend(NamedTuple):
    """An append as a storage node gets it; `records` is a view into the frame, to be cut by
    `split_records`."""

    session_id: int
    seq_num: int
    partition_id: int
    record_count: int
    records: memoryview
    offline: bool


def parse_prefix(body: memoryview | bytes) -> StoragePrefix:
    """The prefix of a storage message; ProtocolError when the body is shorter."""
    try:
        return StoragePrefix._make(_PREFIX.unpack_from(body))
    except struct.error:
        raise ProtocolError("a storage message is cut short") from None


def parse_storage_append(body: memoryview) -> StorageAppend:
    """Parse an append (type 6). The records themselves are checked by `records.split_records`."""
    try:
        code, session_id, seq_num, partition_id, count = _APPEND_HEAD.unpack_from(body)
    except struct.error:
        raise ProtocolError("a storage append is cut short") from None
    if code != APPEND_TYPE or len(body) < _APPEND_HEAD.size + 1:
        raise ProtocolError("a storage append is cut short")
    records = body[_APPEND_HEAD.size : -1]
    return StorageAppend(session_id, seq_num, partition_id, count, records, body[-1] == 1)


def storage_append_parts(
    session_id: int,
    seq_num: int,
    partition_id: int,
    count: int,
    wire_records: bytes,
    *,
    offline: bool = False,
) -> tuple[bytes, bytes, bytes]:
    """The frame of an append in three parts, so that the records are not copied here."""
    size = _APPEND_HEAD.size + len(wire_records) + 1
    try:
        head = _FRAME_PREFIX_COUNT.pack(
            Magic.STORAGE, 0, size, APPEND_TYPE, session_id, seq_num, partition_id, count
        )
    except struct.error as e:
        raise EncodeError(f"a storage append cannot be encoded: {e}") from None
    return head, wire_records, b"\x01" if offline else b"\x00"


def success_frame(session_id: int, seq_num: int, partition_id: int) -> bytes:
    """A whole success frame."""
    return _FRAME_PREFIX.pack(Magic.STORAGE, 0, PREFIX_SIZE, SUCCESS_TYPE, session_id, seq_num, partition_id)


def is_success(body: memoryview | bytes, session_id: int, partition_id: int) -> bool:
    """True for exactly a success reply to that session and partition."""
    if len(body) != PREFIX_SIZE:
        return False
    code, session, _, partition = _PREFIX.unpack(body)
    return bool(code == SUCCESS_TYPE and session == session_id and partition == partition_id)


def record_list_parts(
    session_id: int, seq_num: int, partition_id: int, count: int, wire_records: bytes
) -> tuple[bytes, bytes]:
    """The frame of a record list reply in two parts, around records that are already wire records."""
    size = PREFIX_SIZE + 4 + len(wire_records)
    head = _FRAME_PREFIX_COUNT.pack(
        Magic.STORAGE, 0, size, RECORD_LIST_RESPONSE_TYPE, session_id, seq_num, partition_id, count
    )
    return head, wire_records


def parse_record_list(body: memoryview) -> tuple[int, memoryview]:
    """(count, wire records as one view) of a record list reply; ProtocolError when it is none."""
    if len(body) < PREFIX_SIZE + 4 or body[0] != RECORD_LIST_RESPONSE_TYPE:
        raise ProtocolError("a record list reply is cut short")
    (count,) = struct.unpack_from(">i", body, PREFIX_SIZE)
    return count, body[PREFIX_SIZE + 4 :]
