"""Records as bytes, the form in which they travel from the client's append to the disks and back.

A *wire record* is `i64 transaction id | ReqId (16) | i32 header | i32 length | data | i32 crc`, 36 bytes
around the data (storage protocol, composite types). Only the transaction id is put in front by the server;
the rest is the slice that the client sent, checked and never encoded again.
"""

import struct

from waltz_protocol.checksum import crc32
from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.types import Record, RecordHeader, ReqId

RECORD_OVERHEAD = 36
RECORD_HEADER_SIZE = 28

_HEAD = struct.Struct(">q4iii")  # transaction id, ReqId, header, data length
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">q4ii")
_DATA_OFFSET = _HEAD.size
_LENGTH_OFFSET = _DATA_OFFSET - 4


def pack_record(r: Record) -> bytes:
    """The wire record; the checksum is written as it is, not computed. EncodeError when a value does not
    fit."""
    try:
        head = _HEAD.pack(r.transaction_id, *r.req_id, r.header, len(r.data))
        return b"".join((head, r.data, _LENGTH.pack(r.checksum)))
    except struct.error as e:
        raise EncodeError(f"record {r.transaction_id} cannot be encoded: {e}") from None


def unpack_record(buf: bytes | bytearray | memoryview, offset: int = 0) -> tuple[Record, int]:
    """Read one wire record and give it with the offset behind it. The checksum is not verified.

    ProtocolError when it is cut short or its length is negative (null data is not allowed in a record).
    """
    try:
        txid, client_id, generation, partition_id, seq_num, header, length = _HEAD.unpack_from(buf, offset)
        data_end = offset + _DATA_OFFSET + length
        if length < 0:
            raise ProtocolError(f"record {txid} has a negative data length {length}")
        (checksum,) = _LENGTH.unpack_from(buf, data_end)
    except struct.error:
        raise ProtocolError("a record is cut short") from None
    req_id = ReqId(client_id, generation, partition_id, seq_num)
    data = bytes(buf[offset + _DATA_OFFSET : data_end])
    return Record(txid, req_id, header, data, checksum), data_end + 4


def split_records(buf: memoryview, count: int) -> list[memoryview]:
    """Cut `buf`, which must hold exactly `count` wire records, into one view per record.

    The views share the memory of `buf`: copy what has to outlive it. ProtocolError when a record is cut
    short, has a negative length, or bytes are left over.
    """
    if count < 0:
        raise ProtocolError(f"negative record count {count}")
    size = len(buf)
    if count * RECORD_OVERHEAD > size:
        raise ProtocolError("a record is cut short")
    records: list[memoryview] = []
    read_length = _LENGTH.unpack_from
    start = 0
    for _ in range(count):
        if start + RECORD_OVERHEAD > size:
            raise ProtocolError("a record is cut short")
        length = read_length(buf, start + _LENGTH_OFFSET)[0]
        end = start + RECORD_OVERHEAD + length
        if length < 0 or end > size:
            raise ProtocolError("a record is cut short" if length >= 0 else "a record has a negative length")
        records.append(buf[start:end])
        start = end
    if start != size:
        raise ProtocolError(f"{size - start} bytes follow the last record")
    return records


def verify_record(raw: bytes | bytearray | memoryview) -> bool:
    """True when `raw` is exactly one wire record and its data matches its checksum."""
    size = len(raw)
    if size < RECORD_OVERHEAD:
        return False
    (length,) = _LENGTH.unpack_from(raw, _LENGTH_OFFSET)
    if length < 0 or length + RECORD_OVERHEAD != size:
        return False
    crc = crc32(memoryview(raw)[_DATA_OFFSET : size - 4])
    return crc == int.from_bytes(raw[size - 4 :], "big")


def pack_record_header(h: RecordHeader) -> bytes:
    """28 bytes: transaction id, ReqId, header."""
    try:
        return _HEADER.pack(h.transaction_id, *h.req_id, h.header)
    except struct.error as e:
        raise EncodeError(f"record header {h.transaction_id} cannot be encoded: {e}") from None


def unpack_record_header(buf: bytes | bytearray | memoryview, offset: int = 0) -> tuple[RecordHeader, int]:
    """Read one record header and give it with the offset behind it; ProtocolError when it is cut short."""
    try:
        txid, client_id, generation, partition_id, seq_num, header = _HEADER.unpack_from(buf, offset)
    except struct.error:
        raise ProtocolError("a record header is cut short") from None
    req_id = ReqId(client_id, generation, partition_id, seq_num)
    return RecordHeader(txid, req_id, header), offset + RECORD_HEADER_SIZE
