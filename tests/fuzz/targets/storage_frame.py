"""Appends and record lists on the storage port's hot path: parsed, cut into records, turned into disk records
and back.

First byte, bit 0: make the checksum of every record right that can be found, so that what lies behind is
tried.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import cast

from tests.fuzz.codec_properties import recorded_bodies
from tests.fuzz.target import Target
from waltz_protocol.codec import STORAGE
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import Magic
from waltz_protocol.frames.storage import (
    APPEND_HEAD_BYTES,
    APPEND_TYPE,
    RECORD_LIST_RESPONSE_TYPE,
    list_parts,
    parse_record_list,
    storage_append_parts,
)
from waltz_protocol.messages import storage
from waltz_protocol.records import pack_record, split_records, unpack_record, verify_record
from waltz_protocol.types import Record, ReqId, data_checksum
from waltz_storage.engine.errors import RecordDamagedError, WireFormatError
from waltz_storage.engine.layout import disk_to_wire, wire_to_disk
from waltz_storage.service.requests import ReplyChannel, parse_append

_RECORDS_AT = 25
_NOBODY = cast(ReplyChannel, None)
"""Nothing is answered here."""


def check(data: bytes) -> None:
    if not data:
        return
    body = _signed(data[1:]) if data[0] & 1 else data[1:]
    try:
        message: object = STORAGE.decode(body, 0)
    except ProtocolError:
        message = None
    records = _check_append(body, message)
    if records is None:
        records = _check_record_list(body, message)
    if records is not None:
        _check_disk_form(*records)
    try:
        disk_to_wire(body, 0)
    except RecordDamagedError:
        pass


def _check_append(body: bytes, message: object) -> tuple[bytes, int] | None:
    if body[:1] != bytes((APPEND_TYPE,)):
        return None
    try:
        request = parse_append(_NOBODY, memoryview(body), 0.0)
    except ProtocolError:
        assert not isinstance(message, storage.AppendRequest), f"refused, but it is {message}"
        return None
    assert isinstance(message, storage.AppendRequest)
    assert request.ids == (message.session_id, message.seq_num, message.partition_id)
    assert request.offline == message.offline
    records, count = body[APPEND_HEAD_BYTES:-1], len(message.records)
    _check_records(split_records(memoryview(records), count), message.records)
    assert (request.batch is None) == (request.problem is not None)
    if request.batch is not None and count:
        assert b"".join(disk_to_wire(request.batch.data, request.batch.first_txid)) == records
    parts = storage_append_parts(0, *request.ids, count, records, offline=request.offline)
    assert b"".join(parts) == STORAGE.encode(message, 0)
    return records, count


def _check_record_list(body: bytes, message: object) -> tuple[bytes, int] | None:
    try:
        count, view = parse_record_list(memoryview(body))
        parts = split_records(view, count)
    except ProtocolError:
        assert not isinstance(message, storage.RecordListResponse), f"refused, but it is {message}"
        return None
    assert isinstance(message, storage.RecordListResponse)
    _check_records(parts, message.records)
    prefix = (message.session_id, message.seq_num, message.partition_id)
    assert b"".join(list_parts(0, RECORD_LIST_RESPONSE_TYPE, *prefix, [bytes(part) for part in parts])) == (
        STORAGE.encode(message, 0)
    )
    return bytes(view), count


def _check_records(parts: list[memoryview], records: tuple[Record, ...]) -> None:
    assert len(parts) == len(records)
    for part, record in zip(parts, records, strict=True):
        assert unpack_record(part) == (record, len(part))
        assert pack_record(record) == part
        assert verify_record(part) == (data_checksum(record.data) == record.checksum)


def _check_disk_form(wire: bytes, count: int) -> None:
    converted = wire_to_disk(wire, 0, count)
    assert converted.next_offset == len(wire)
    if converted.problem is None and count:
        assert b"".join(disk_to_wire(converted.batch.data, converted.batch.first_txid)) == wire
    try:
        wire_to_disk(wire, 0, count + 1)
    except WireFormatError:
        pass
    else:
        raise AssertionError("one record more than there is")


def _signed(body: bytes) -> bytes:
    raw = bytearray(body)
    offset = _RECORDS_AT
    while offset + 36 <= len(raw):
        length = int.from_bytes(raw[offset + 28 : offset + 32], "big", signed=True)
        end = offset + 32 + length
        if length < 0 or end + 4 > len(raw):
            break
        raw[end : end + 4] = zlib.crc32(raw[offset + 32 : end]).to_bytes(4, "big")
        offset = end + 4
    return bytes(raw)


def seeds() -> Iterator[bytes]:
    for _, body in recorded_bodies(Magic.STORAGE):
        if body[0] in (APPEND_TYPE, RECORD_LIST_RESPONSE_TYPE):
            yield b"\0" + body
    records = tuple(
        Record(txid, ReqId(1, 2, 3, txid), 9, b"x" * txid, data_checksum(b"x" * txid)) for txid in range(3, 6)
    )
    for count in range(4):
        yield b"\1" + STORAGE.encode_body(storage.AppendRequest(1, 2, 3, records[:count], count == 1), 0)
        yield b"\1" + STORAGE.encode_body(storage.RecordListResponse(1, 2, 3, records[:count]), 0)
    yield b"\0" + STORAGE.encode_body(storage.SuccessResponse(1, 2, 2), 0)


TARGET = Target(check, seeds)
