"""Wire records, record headers and the values in them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol_tests.strategies import HEADERS, RECORDS
from protocol_tests.vectors import RECORD
from waltz_protocol.codec import ADMIN, STORAGE
from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.storage import (
    APPEND_HEAD_BYTES,
    APPEND_TYPE,
    SUCCESS_TYPE,
    admin_record_list_parts,
    found_parts,
    list_parts,
    parse_prefix,
    reply_head,
    storage_append_parts,
    unpack_append_head,
    unpack_prefix,
)
from waltz_protocol.messages import admin, storage
from waltz_protocol.records import (
    RECORD_OVERHEAD,
    pack_record,
    pack_record_header,
    split_records,
    unpack_record,
    unpack_record_header,
    verify_record,
)
from waltz_protocol.types import Endpoint, Record, RecordHeader, ReqId, data_checksum

WIRE = bytes.fromhex(
    "000000000000002a 00000007000000010000000300000001 000004d2 00000005 68656c6c6f 3610a686"
)


def test_the_known_record() -> None:
    assert pack_record(RECORD) == WIRE
    assert unpack_record(WIRE) == (RECORD, len(WIRE))
    assert verify_record(WIRE)
    assert len(WIRE) == RECORD_OVERHEAD + 5


@given(st.lists(RECORDS, max_size=5))
def test_records_split_where_they_were_joined(records: list[Record]) -> None:
    wires = [pack_record(r) for r in records]
    joined = memoryview(b"".join(wires))
    assert [bytes(v) for v in split_records(joined, len(records))] == wires
    offset = 0
    for record in records:
        unpacked, offset = unpack_record(joined, offset)
        assert unpacked == record
    with pytest.raises(ProtocolError):
        split_records(joined, len(records) + 1)
    if records:
        with pytest.raises(ProtocolError):
            split_records(joined, len(records) - 1)


@given(HEADERS)
def test_record_headers_round_trip(header: RecordHeader) -> None:
    packed = pack_record_header(header)
    assert unpack_record_header(packed) == (header, 28)
    with pytest.raises(ProtocolError):
        unpack_record_header(packed[:-1])


def test_storage_7_02_torn_length_is_bounded() -> None:
    torn = bytearray(WIRE)
    for length in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x06"):
        torn[28:32] = length
        with pytest.raises(ProtocolError):
            unpack_record(bytes(torn))
        with pytest.raises(ProtocolError):
            split_records(memoryview(torn), 1)
        assert not verify_record(torn)
    for end in range(len(WIRE)):
        with pytest.raises(ProtocolError):
            unpack_record(WIRE[:end])
        with pytest.raises(ProtocolError):
            split_records(memoryview(WIRE)[:end], 1)
    with pytest.raises(ProtocolError):
        split_records(memoryview(WIRE), -1)


@pytest.mark.parametrize("place", range(32, len(WIRE)))
def test_client_server_13_04_a_flipped_bit_in_data_or_checksum_is_seen(place: int) -> None:
    damaged = bytearray(WIRE)
    damaged[place] ^= 0x10
    assert not verify_record(damaged)


def test_a_record_that_does_not_fit_is_an_encode_error() -> None:
    with pytest.raises(EncodeError):
        pack_record(RECORD._replace(header=2**31))
    with pytest.raises(EncodeError):
        pack_record_header(RecordHeader(2**63, ReqId(0, 0, 0, 0), 0))


def test_a_storage_append_keeps_its_records_in_one_slice() -> None:
    head, records, end = storage_append_parts(0, 5, 3, 4, 2, wire := WIRE * 2)
    assert unpack_append_head(head, FRAME_HEADER_SIZE) == (APPEND_TYPE, 5, 3, 4, 2)
    assert len(head) == FRAME_HEADER_SIZE + APPEND_HEAD_BYTES
    assert records is wire
    assert end == b"\0"
    message = storage.AppendRequest(5, 3, 4, (RECORD, RECORD))
    assert head + records + end == STORAGE.encode(message, 0)
    offline = storage_append_parts(0, 5, 3, 4, 0, b"", offline=True)
    assert b"".join(offline) == STORAGE.encode(storage.AppendRequest(5, 3, 4, (), offline=True), 0)


def test_storage_frames_are_those_of_the_codec() -> None:
    ids = (5, 3, 4)
    success = reply_head(0, storage.SuccessResponse.TYPE, *ids)
    assert success == STORAGE.encode(storage.SuccessResponse(*ids), 0)
    assert parse_prefix(success[FRAME_HEADER_SIZE:]) == (storage.SuccessResponse.TYPE, *ids)
    assert unpack_prefix(success[FRAME_HEADER_SIZE:]) == (SUCCESS_TYPE, *ids)
    with pytest.raises(struct.error):
        unpack_prefix(success)
    kind = storage.RecordResponse.TYPE
    assert b"".join(found_parts(0, kind, *ids, WIRE)) == STORAGE.encode(
        storage.RecordResponse(*ids, RECORD), 0
    )
    assert b"".join(found_parts(0, kind, *ids, None)) == STORAGE.encode(storage.RecordResponse(*ids, None), 0)
    parts = list_parts(0, storage.RecordListResponse.TYPE, *ids, [WIRE, WIRE])
    assert b"".join(parts) == STORAGE.encode(storage.RecordListResponse(*ids, (RECORD, RECORD)), 0)
    parts_of_admin = admin_record_list_parts(0, 3, 4, 2, WIRE * 2)
    assert b"".join(parts_of_admin) == ADMIN.encode(admin.RecordListResponse(3, 4, (RECORD, RECORD)), 0)


@pytest.mark.parametrize(("data", "checksum"), [(b"hello", 0x3610A686), (b"123456789", -873187034), (b"", 0)])
def test_known_checksums(data: bytes, checksum: int) -> None:
    assert data_checksum(data) == checksum


def test_req_ids_pack_in_order() -> None:
    packed = bytes.fromhex("ffffffff ffffffff 00000000 ffffffff")
    assert ReqId(-1, -1, 0, -1).pack() == packed
    assert ReqId.unpack(b"xx" + packed, 2) == ReqId(-1, -1, 0, -1)
    assert str(ReqId(1, 2, 3, 4)) == "1:2:3:4"


def test_endpoints_parse_and_print() -> None:
    assert Endpoint.parse("st1:55280") == Endpoint("st1", 55280)
    assert str(Endpoint("st1", 55280)) == "st1:55280"
    for text in ("st1", ":1", "st1:", "st1:0", "st1:65536", "st1:-1", "st1:x"):
        with pytest.raises(ValueError, match="'"):
            Endpoint.parse(text)
