"""Byte layouts of a storage directory (docs/storage-files.md), pure.

All integers are big-endian. A *wire record* is `i64 txid | ReqId 16 | i32 header | i32 len | data |
i32 crc`; a *disk record* is `i64 txid | ReqId 16 | i32 header | i32 len | i32 crc | data | i32 record
crc`, the record crc covering everything before it. The two conversions are the hot path of the node:
they slice and checksum, they never build objects per field.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from waltz_protocol.checksum import crc32
from waltz_storage.engine.errors import RecordDamagedError, WireFormatError

FORMAT_VERSION = 0
HEADER_SIZE = 128  # control file, .seg and .idx alike
LOCK_SIZE = 128
ENTRY_SIZE = 76
INFO_SIZE = 36
ENTRY_PREFIX_SIZE = 4
INDEX_ENTRY_SIZE = 8
RECORD_HEAD_SIZE = 32  # txid, ReqId, header, data length
RECORD_FIXED_SIZE = 40  # a disk record without its data
RECORD_HEADER_SIZE = 28  # txid, ReqId, header
CHECKPOINT_INTERVAL = 1000  # records between two syncs of the index, fixed
NO_TRANSACTION = -1

CONTROL_FILE_NAME = "waltz-storage.ctl"
SIDECAR_NAME = "waltz-fence"
WITNESS_NAME = "waltz-witness"
DATA_SUFFIXES = (".seg", ".seq")
INDEX_SUFFIX = ".idx"

_CONTROL_HEADER = struct.Struct(">iq16si")
_SEGMENT_HEADER = struct.Struct(">iq16siq")
RECORD_HEAD = struct.Struct(">q20xi")  # txid and data length of a record, wire and disk alike
_U32 = struct.Struct(">I")
_unpack_head = RECORD_HEAD.unpack_from
_unpack_u32 = _U32.unpack_from
_pack_u32 = _U32.pack


class ControlHeader(NamedTuple):
    """First 128 bytes of the control file."""

    version: int
    created_ms: int
    cluster_key: UUID
    num_partitions: int

    def to_bytes(self) -> bytes:
        """The header, padded to 128 bytes."""
        return _CONTROL_HEADER.pack(
            self.version, self.created_ms, self.cluster_key.bytes, self.num_partitions
        ).ljust(HEADER_SIZE, b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes) -> ControlHeader:
        """Decode 128 bytes; nothing is checked here."""
        version, created_ms, key, num_partitions = _CONTROL_HEADER.unpack_from(raw)
        return cls(version, created_ms, UUID(bytes=key), num_partitions)


class SegmentHeader(NamedTuple):
    """First 128 bytes of a `.seg` or `.idx` file."""

    version: int
    created_ms: int
    cluster_key: UUID
    partition_id: int
    first_txid: int

    def to_bytes(self) -> bytes:
        """The header, padded to 128 bytes."""
        return _SEGMENT_HEADER.pack(
            self.version, self.created_ms, self.cluster_key.bytes, self.partition_id, self.first_txid
        ).ljust(HEADER_SIZE, b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes) -> SegmentHeader:
        """Decode 128 bytes; nothing is checked here."""
        version, created_ms, key, partition_id, first_txid = _SEGMENT_HEADER.unpack_from(raw)
        return cls(version, created_ms, UUID(bytes=key), partition_id, first_txid)


class RecordBatch(NamedTuple):
    """Consecutive records in disk form: one Append request after conversion."""

    first_txid: int
    record_count: int
    data: bytes
    sizes: list[int]  # bytes of each disk record


class WireRecords(NamedTuple):
    """What `wire_to_disk` made of an Append body. `problem` is set when it must be refused; `damaged`: a
    record does not match its checksum."""

    batch: RecordBatch
    next_offset: int
    problem: str | None
    damaged: bool


def segment_name(first_txid: int) -> str:
    """File name without suffix: 19 digits, zero padded."""
    return f"{first_txid:019d}"


def wire_to_disk(body: bytes | memoryview, offset: int, count: int) -> WireRecords:
    """Convert `count` wire records at `offset` to disk form, checking every data checksum.

    Records with a wrong data checksum or ids that do not follow one another are a `problem` (the request
    is answered with Failure). Bytes that are no records raise `WireFormatError`.
    """
    parts: list[bytes | memoryview] = []
    add = parts.append
    sizes: list[int] = []
    limit = len(body)
    problem: str | None = None
    damaged = False
    first_txid = expected = NO_TRANSACTION
    try:
        for number in range(count):
            txid, length = _unpack_head(body, offset)
            data_start = offset + RECORD_HEAD_SIZE
            data_end = data_start + length
            next_offset = data_end + 4
            if length < 0 or next_offset > limit:
                raise WireFormatError(f"record {number} of {count} reaches past the end of the request")
            data = body[data_start:data_end]
            checksum = body[data_end:next_offset]
            head = b"".join((body[offset:data_start], checksum))
            if _pack_u32(crc32(data)) != checksum:
                problem, damaged = problem or f"the data checksum of transaction {txid} is wrong", True
            if number == 0:
                first_txid = expected = txid
            elif txid != expected:
                problem = problem or f"transaction {txid} where {expected} was expected"
            expected += 1
            add(head)
            add(data)
            add(_pack_u32(crc32(data, crc32(head))))
            sizes.append(length + RECORD_FIXED_SIZE)
            offset = next_offset
    except struct.error:
        raise WireFormatError(f"the request ends inside one of its {count} records") from None
    return WireRecords(RecordBatch(first_txid, count, b"".join(parts), sizes), offset, problem, damaged)


def disk_to_wire(raw: bytes, first_txid: int) -> list[bytes]:
    """Split whole disk records into wire records, checking ids and record checksums.

    Raises `RecordDamagedError` naming the first bad transaction, but only when it is the very first
    one: otherwise the good ones before it are returned (a list reply may be short).
    """
    records: list[bytes] = []
    offset, limit, expected = 0, len(raw), first_txid
    while offset < limit:
        end = _checked_end(raw, offset, limit, expected)
        if end < 0:
            if not records:
                raise RecordDamagedError(f"transaction {expected}: the stored record is damaged")
            break
        head_end = offset + RECORD_HEAD_SIZE
        records.append(raw[offset:head_end] + raw[head_end + 4 : end - 4] + raw[head_end : head_end + 4])
        offset = end
        expected += 1
    return records


def _checked_end(raw: bytes, offset: int, limit: int, expected: int) -> int:
    """End of the valid record at `offset`, or -1."""
    if offset + RECORD_FIXED_SIZE > limit:
        return -1
    txid, length = _unpack_head(raw, offset)
    end: int = offset + RECORD_FIXED_SIZE + length
    if txid != expected or length < 0 or end > limit:
        return -1
    return end if crc32(raw[offset : end - 4]) == _unpack_u32(raw, end - 4)[0] else -1


def unpack_u32(raw: bytes, offset: int = 0) -> int:
    """One unsigned 32-bit integer."""
    value: int = _unpack_u32(raw, offset)[0]
    return value
