"""Bytes on the disk, against the recorded vectors of release 0.13.2."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_storage.engine.errors import PartitionDamagedError, RecordDamagedError, WireFormatError
from waltz_storage.engine.layout import (
    ControlHeader,
    SegmentHeader,
    disk_to_wire,
    segment_name,
    wire_to_disk,
)
from waltz_storage.engine.partition_info import (
    PartitionInfo,
    newer,
    next_sequence,
    read_entry,
    virgin,
    virgin_entry,
)

from .support import KEY, append, empty_disk, open_manager, path, segment_path, wire_record

CREATED = 0x174876E8000
CONTROL_HEADER = "00000000 00000174876e8000 00112233445566778899aabbccddeeff 00000004" + "00" * 96
VIRGIN_0 = (
    "00000000 ffffffffffffffff ffffffffffffffff ffffffffffffffff 00000001 ffffffff 58d1a22d"
    "ffffffffffffffff ffffffffffffffff ffffffffffffffff 00000001 00000000 866a82ce"
)
SESSION_5 = (
    "00000003 0000000000000005 000000000000002a 0000000000000029 00000005 00000001 ca06e9e5"
    "ffffffffffffffff ffffffffffffffff ffffffffffffffff 00000001 00000000 866a82ce"
)
SEGMENT_HEADER = (
    "00000000 00000174876e8000 00112233445566778899aabbccddeeff 00000003 0000000000000000" + "00" * 88
)
RECORDS = [
    "0000000000000000 00000007000000010000000300000001 000004d2 00000005 3610a686 68656c6c6f feeb1228",
    "0000000000000001 00000007000000010000000300000002 000004d3 00000000 00000000 4f9c278e",
    "0000000000000002 00000007000000010000000300000003 000004d4 00000006 b806cb32 77616c747a21 ba83ff2a",
]
INDEX_BODY = "0000000000000080 00000000000000ad 00000000000000d5"
DATA = [b"hello", b"", b"waltz!"]


def vector(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def test_control_header_bytes() -> None:
    header = ControlHeader(0, CREATED, KEY, 4)
    assert header.to_bytes() == vector(CONTROL_HEADER)
    assert ControlHeader.from_bytes(vector(CONTROL_HEADER)) == header


def test_control_entry_bytes() -> None:
    assert virgin_entry(0) == vector(VIRGIN_0)
    assert read_entry(3, vector(SESSION_5)) == (PartitionInfo(5, 42, 41, 5, 1), 0)
    assert vector(SESSION_5)[4:40] == PartitionInfo(5, 42, 41, 5, 1).to_bytes()


@pytest.mark.parametrize(
    ("info", "checksum"),
    [
        (PartitionInfo(-1, -1, -1, 5, 1), "04ed1498"),
        (PartitionInfo(0, -1, -1, 5, 2), "049e6766"),
        (PartitionInfo(100, 10, 3, 5, 4), "2d986286"),
    ],
)
def test_control_struct_checksums(info: PartitionInfo, checksum: str) -> None:
    assert info.to_bytes()[-4:].hex() == checksum


def test_segment_header_bytes() -> None:
    header = SegmentHeader(0, CREATED, KEY, 3, 0)
    assert header.to_bytes() == vector(SEGMENT_HEADER)
    assert SegmentHeader.from_bytes(vector(SEGMENT_HEADER)) == header
    assert segment_name(5) == "0000000000000000005"


def test_record_bytes_both_ways() -> None:
    wire = b"".join(wire_record(t, data, header=1234 + t) for t, data in enumerate(DATA))
    disk = b"".join(map(vector, RECORDS))
    converted = wire_to_disk(wire, 0, 3)
    assert converted.problem is None
    assert converted.batch.data == disk
    assert converted.batch.sizes == [45, 40, 46]
    assert converted.next_offset == len(wire)
    assert b"".join(disk_to_wire(disk, 0)) == wire


def test_a_new_directory_has_the_recorded_bytes() -> None:
    """Initialise, assign, append three records: every byte is the reference's, creation times aside."""
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(3)
    wire = b"".join(wire_record(t, data, header=1234 + t) for t, data in enumerate(DATA))
    assert partition.append([wire_to_disk(wire, 0, 3).batch]) == [None]
    partition.set_low_water_mark(5, 42)
    data = disk.content(segment_path(3, 0))
    index = disk.content(segment_path(3, 0, ".idx"))
    header = SegmentHeader(0, 1_600_000_000_000, KEY, 3, 0).to_bytes()
    assert data == header + b"".join(map(vector, RECORDS))
    assert index == header + vector(INDEX_BODY)
    control = disk.content("/data/waltz-storage.ctl")
    assert len(control) == 128 + 76 * 4
    assert control[128 : 128 + 76] == vector(VIRGIN_0)
    assert control[128 + 3 * 76 + 4 :][:36] == PartitionInfo(-1, -1, -1, 5, 1).to_bytes()
    assert control[128 + 3 * 76 + 40 :][:36] == PartitionInfo(5, 42, 2, 5, 2).to_bytes()
    manager.close()


def test_nothing_else_is_written_beside_the_sidecar() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(0), 0, 3)
    manager.close()
    names = {name.rsplit("/", 1)[1] for name in disk.files()}
    assert names == {"waltz-storage.ctl", "waltz-fence", "0000000000000000000.seg", "0000000000000000000.idx"}


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(0, 2**60))
def test_conversion_round_trip(data: list[bytes], first: int) -> None:
    wire = b"".join(wire_record_at(first + i, item) for i, item in enumerate(data))
    converted = wire_to_disk(b"xyz" + wire, 3, len(data))
    assert converted.problem is None
    assert converted.batch.sizes == [40 + len(item) for item in data]
    assert b"".join(disk_to_wire(converted.batch.data, first)) == wire


def wire_record_at(txid: int, data: bytes) -> bytes:
    return struct.pack(">q", txid) + wire_record(0, data)[8:]


@given(st.binary(max_size=200), st.integers(0, 5))
def test_random_bytes_are_no_worse_than_a_format_error(raw: bytes, count: int) -> None:
    try:
        wire_to_disk(raw, 0, count)
    except WireFormatError:
        pass
    try:
        disk_to_wire(raw, 0)
    except RecordDamagedError:
        pass


def test_storage_7_05_wrong_data_checksum_is_a_problem() -> None:
    raw = bytearray(wire_record(0, b"hello"))
    raw[34] ^= 1
    assert "checksum of transaction 0" in str(wire_to_disk(bytes(raw), 0, 1).problem)


def test_ids_of_a_request_follow_one_another() -> None:
    raw = wire_record(4) + wire_record(6)
    assert "transaction 6 where 5 was expected" in str(wire_to_disk(raw, 0, 2).problem)


def test_storage_7_06_sequence_numbers_wrap() -> None:
    top = 2**31 - 1
    assert next_sequence(top) == -(2**31)
    assert newer(next_sequence(top), top)
    assert not newer(top, next_sequence(top))
    assert newer(0, -1)
    old = PartitionInfo(1, 1, 1, 5, top)
    new = PartitionInfo(2, 2, 2, 5, -(2**31))
    raw = struct.pack(">i", 0) + old.to_bytes() + new.to_bytes()
    assert read_entry(0, raw) == (new, 1)


def test_storage_7_06_equal_sequence_numbers() -> None:
    """A reset of 0.13.2 that stopped half-way leaves two equal virgin structs: accepted. Two different ones:
    not."""
    raw = struct.pack(">i", 0) + virgin(-1).to_bytes() * 2
    assert read_entry(0, raw)[0] == virgin(-1)
    raw = struct.pack(">i", 0) + virgin(-1).to_bytes() + PartitionInfo(3, 1, 1, 5, -1).to_bytes()
    with pytest.raises(PartitionDamagedError, match="two different newest copies"):
        read_entry(0, raw)


def test_storage_7_09_versions_and_entry_ids_are_checked() -> None:
    with pytest.raises(PartitionDamagedError, match="names partition 3"):
        read_entry(2, vector(SESSION_5))
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(0), 0)
    manager.close()
    disk.overwrite(segment_path(0, 0), 0, struct.pack(">i", 7))
    reopened = open_manager(disk)
    assert "format version 7" in reopened.damaged[0]
    reopened.close()
    assert path(0, "waltz-fence") in disk.files()
