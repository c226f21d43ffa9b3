"""Stored records between servers and storage nodes: appends as the node parses them, ranges as the server
cuts them.

First byte, bit 0: make the checksum of every record right that can be found, so that what lies behind is
tried.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import cast

from tests.fuzz.codec_properties import decoded
from tests.fuzz.target import Target
from waltz_protocol.codec import STORAGE
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.blocks import (
    STORED_HEAD_BYTES,
    STORED_OVERHEAD_BYTES,
    cut_stored,
    record_of_stored,
    stored_of_entry,
    stored_of_record,
)
from waltz_protocol.frames.storage import (
    STORED_APPEND_HEAD_BYTES,
    STORED_APPEND_TYPE,
    STORED_RANGE_RESPONSE_TYPE,
    parse_prefix,
    parse_stored_range,
    stored_append_parts,
    stored_range_parts,
)
from waltz_protocol.messages import storage
from waltz_protocol.types import ReqId, data_checksum
from waltz_storage.engine.layout import disk_to_wire
from waltz_storage.service.requests import ReplyChannel, parse_append

PARTITION = 3
_NOBODY = cast(ReplyChannel, None)
"""Nothing is answered here."""
_RANGE_HEAD_BYTES = 21 + 12


def check(data: bytes) -> None:
    if not data:
        return
    body = data[1:]
    head = STORED_APPEND_HEAD_BYTES if body[:1] == bytes((STORED_APPEND_TYPE,)) else _RANGE_HEAD_BYTES
    if data[0] & 1:
        body = _signed(body, head)
    message = decoded(STORAGE, body, 1)
    if isinstance(message, storage.StoredAppendRequest):
        _check_append(body, message)
    elif isinstance(message, storage.StoredRangeResponse):
        _check_range(body, message)
    elif body[:1] == bytes((STORED_RANGE_RESPONSE_TYPE,)):
        _refused(body)


def _check_append(body: bytes, message: storage.StoredAppendRequest) -> None:
    try:
        request = parse_append(_NOBODY, memoryview(body), 0.0)
    except ProtocolError:
        return
    assert request.ids == (message.session_id, message.seq_num, message.partition_id)
    assert request.committed == message.committed
    assert (request.batch is None) == (request.problem is not None)
    assert request.problem is not None or not request.damaged  # a record of another partition is whole
    parts = stored_append_parts(
        1, *request.ids, message.committed, message.first, message.count, message.records
    )
    assert b"".join(parts) == STORAGE.encode(message, 1)
    if request.batch is not None:
        assert request.batch.data == message.records
        assert sum(request.batch.sizes) == len(message.records)
        assert len(request.batch.sizes) == request.batch.record_count == message.count
        _check_records(message.records, message.first, message.count)


def _check_range(body: bytes, message: storage.StoredRangeResponse) -> None:
    first, count, records = parse_stored_range(memoryview(body))
    assert (first, count, bytes(records)) == (message.first, message.count, message.records)
    parts = stored_range_parts(1, *parse_prefix(body)[1:], first, count, [message.records])
    assert b"".join(parts) == STORAGE.encode(message, 1)
    try:
        starts = cut_stored(message.records, 0, PARTITION, first, first + count - 1, count)
    except ProtocolError:
        return
    if count > 0:
        _check_records(message.records[: starts[-1]], first, count)


def _refused(body: bytes) -> None:
    try:
        parse_stored_range(memoryview(body))
    except ProtocolError:
        return
    raise AssertionError("a range that is no message was taken")


def _check_records(data: bytes, first: int, count: int) -> None:
    wire = disk_to_wire(data, first)
    assert len(wire) == count
    stored = [stored_of_record(record) for record in wire]
    assert [record_of_stored(record) for record in stored] == wire


def _signed(body: bytes, offset: int) -> bytes:
    raw = bytearray(body)
    while offset + STORED_OVERHEAD_BYTES <= len(raw):
        length = int.from_bytes(raw[offset + 28 : offset + 32], "big", signed=True)
        end = offset + STORED_HEAD_BYTES + length
        if length < 0 or end + 4 > len(raw):
            break
        raw[end : end + 4] = zlib.crc32(raw[offset:end]).to_bytes(4, "big")
        offset = end + 4
    return bytes(raw)


def seeds() -> Iterator[bytes]:
    for count in range(4):
        records = b"".join(_record(10 + number, b"x" * number * 7) for number in range(count))
        append = storage.StoredAppendRequest(5, 6, PARTITION, 8, 10, count, records)
        found = storage.StoredRangeResponse(5, 6, PARTITION, 10, count, records)
        for message in (append, found):
            yield bytes((count & 1,)) + STORAGE.encode_body(message, 1)
    asked = storage.StoredRangeRequest(5, 6, PARTITION, 10, 20, 15, 1000, storage.UNRESOLVED)
    yield b"\0" + STORAGE.encode_body(asked, 1)


def _record(transaction_id: int, data: bytes) -> bytes:
    checksum = data_checksum(data).to_bytes(4, "big", signed=True)
    tail = b"".join((bytes(4), len(data).to_bytes(4, "big"), data, checksum))
    return stored_of_entry(transaction_id, ReqId(7, 1, PARTITION, transaction_id).pack(), tail)


TARGET = Target(check, seeds)
