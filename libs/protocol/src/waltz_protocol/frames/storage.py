"""Frames of the two storage ports without message objects, for the hot paths of servers and storage nodes.

Pure. The records of an append stay one slice of wire records (`records`) from the server to the node; those
of version 1 are stored records (`blocks`), one slice from disk to disk.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.frame import Magic, frame_header
from waltz_protocol.messages import admin, storage

APPEND_TYPE = storage.AppendRequest.TYPE
SUCCESS_TYPE = storage.SuccessResponse.TYPE
RECORD_LIST_RESPONSE_TYPE = storage.RecordListResponse.TYPE
STORED_RANGE_RESPONSE_TYPE = storage.StoredRangeResponse.TYPE
STORED_APPEND_TYPE = storage.StoredAppendRequest.TYPE
SEQ_NUM_OFFSET = 9
"""Where the i64 sequence number begins in a body of the storage port."""
ADMIN_SEQ_NUM_OFFSET = 1
"""The same of the admin port."""

_PREFIX = struct.Struct(">bqqi")
_PREFIX_BYTES = _PREFIX.size
unpack_prefix = _PREFIX.unpack
"""`unpack_prefix(body)` -> (type, session id, sequence number, partition id) of a body that has nothing else;
`struct.error` for any other."""
_FRAME_PREFIX = struct.Struct(">bhibqqi")
_FRAME_PREFIX_COUNT = struct.Struct(">bhibqqii")
_APPEND_HEAD = struct.Struct(">bqqii")
_ADMIN_LIST_HEAD = struct.Struct(">bqii")
_STORED_APPEND_HEAD = struct.Struct(">bqqiqqi")
_FRAME_STORED_APPEND_HEAD = struct.Struct(">bhibqqiqqi")
_STORED_RANGE = struct.Struct(">qi")
_COUNT = struct.Struct(">i")

APPEND_HEAD_BYTES = _APPEND_HEAD.size
unpack_append_head = _APPEND_HEAD.unpack_from
"""`unpack_append_head(body)` -> (type, session id, sequence number, partition id, count of records); the
records follow, then one byte that is 1 for offline recovery."""
STORED_APPEND_HEAD_BYTES = _STORED_APPEND_HEAD.size
unpack_stored_append_head = _STORED_APPEND_HEAD.unpack_from
"""`unpack_stored_append_head(body)` -> (type, session id, sequence number, partition id, committed mark, id
of the first record, count of records); the stored records follow."""


class StoragePrefix(NamedTuple):
    """What every storage message begins with."""

    type: int
    session_id: int
    seq_num: int
    partition_id: int


def parse_prefix(body: memoryview | bytes) -> StoragePrefix:
    """The prefix of a storage message; ProtocolError when the body is shorter."""
    try:
        return StoragePrefix._make(_PREFIX.unpack_from(body))
    except struct.error:
        raise ProtocolError("a storage message is cut short") from None


def storage_append_parts(
    version: int,
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
            Magic.STORAGE, version, size, APPEND_TYPE, session_id, seq_num, partition_id, count
        )
    except struct.error as e:
        raise EncodeError(f"a storage append cannot be encoded: {e}") from None
    return head, wire_records, b"\x01" if offline else b"\x00"


def stored_append_parts(
    version: int,
    session_id: int,
    seq_num: int,
    partition_id: int,
    committed: int,
    first: int,
    count: int,
    records: bytes,
) -> tuple[bytes, bytes]:
    """The same with stored records, and the committed mark of the session."""
    head = _FRAME_STORED_APPEND_HEAD.pack(
        Magic.STORAGE, version, STORED_APPEND_HEAD_BYTES + len(records),
        STORED_APPEND_TYPE, session_id, seq_num, partition_id, committed, first, count,
    )  # fmt: skip
    return head, records


def reply_head(
    version: int, kind: int, session_id: int, seq_num: int, partition_id: int, rest_bytes: int = 0
) -> bytes:
    """Frame header and prefix of a reply with `rest_bytes` of other fields: without any it is whole."""
    return _FRAME_PREFIX.pack(
        Magic.STORAGE, version, _PREFIX_BYTES + rest_bytes, kind, session_id, seq_num, partition_id
    )


def found_parts(
    version: int, kind: int, session_id: int, seq_num: int, partition_id: int, found: bytes | None
) -> tuple[bytes, bytes]:
    """The frame of a reply that is one record or record header, or says that there is none."""
    body = b"\0" if found is None else b"\1" + found
    return reply_head(version, kind, session_id, seq_num, partition_id, len(body)), body


def list_parts(
    version: int, kind: int, session_id: int, seq_num: int, partition_id: int, items: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """The frame of a reply that is a list of wire records or record headers."""
    body = b"".join(items)
    head = _FRAME_PREFIX_COUNT.pack(
        Magic.STORAGE,
        version,
        _PREFIX_BYTES + _COUNT.size + len(body),
        kind,
        session_id,
        seq_num,
        partition_id,
        len(items),
    )
    return head, body


def stored_range_parts(
    version: int,
    session_id: int,
    seq_num: int,
    partition_id: int,
    first: int,
    count: int,
    pieces: Sequence[bytes],
) -> tuple[bytes, ...]:
    """The frame of a reply that is stored records back to back, in pieces that are not copied here."""
    rest = _STORED_RANGE.pack(first, count)
    size = len(rest) + sum(map(len, pieces))
    head = reply_head(version, STORED_RANGE_RESPONSE_TYPE, session_id, seq_num, partition_id, size)
    return head + rest, *pieces


def parse_stored_range(body: memoryview) -> tuple[int, int, memoryview]:
    """(first id, count, stored records as one view) of such a reply; ProtocolError when it is none."""
    if len(body) < _PREFIX_BYTES + _STORED_RANGE.size or body[0] != STORED_RANGE_RESPONSE_TYPE:
        raise ProtocolError("a reply with stored records is cut short")
    first, count = _STORED_RANGE.unpack_from(body, _PREFIX_BYTES)
    return first, count, body[_PREFIX_BYTES + _STORED_RANGE.size :]


def admin_record_list_parts(
    version: int, seq_num: int, partition_id: int, count: int, wire_records: bytes
) -> tuple[bytes, bytes, bytes]:
    """The frame of a record list reply of the admin port, around wire records."""
    head = _ADMIN_LIST_HEAD.pack(admin.RecordListResponse.TYPE, seq_num, partition_id, count)
    return frame_header(Magic.ADMIN, version, len(head) + len(wire_records)), head, wire_records


def parse_record_list(body: memoryview) -> tuple[int, memoryview]:
    """(count, wire records as one view) of a record list reply; ProtocolError when it is none."""
    if len(body) < _PREFIX_BYTES + _COUNT.size or body[0] != RECORD_LIST_RESPONSE_TYPE:
        raise ProtocolError("a record list reply is cut short")
    (count,) = _COUNT.unpack_from(body, _PREFIX_BYTES)
    return count, body[_PREFIX_BYTES + _COUNT.size :]
