"""The readers of one data file: scan, search behind a break, the sector rule, and what tools see of it.

First byte: the first id; with bit 7 checksums of what looks like records are made right. Second and third:
length of an index file, which is made of the first bytes of the rest.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from tests.fuzz.disk_form import HEADER, KEY, record, records
from tests.fuzz.target import Target
from waltz_storage.engine.errors import RecordDamagedError
from waltz_storage.engine.layout import SegmentHeader, disk_to_wire
from waltz_storage.engine.scan import (
    SearchGivenUpError,
    find_later_record,
    record_end,
    scan,
    unwritten_sector,
)
from waltz_storage.engine.segment_view import (
    data_lengths,
    segment_records,
    verify_segment,
    view_segment,
)
from waltz_testkit.faulty_disk import FaultyDisk

FIRSTS = (0, 1, 255, 256, 65535, 2**31 - 2, 2**62, 2**63 - 2)


def check(data: bytes) -> None:
    if len(data) < 3:
        return
    first = FIRSTS[data[0] & 7]
    image = bytes(HEADER) + (_signed(data[3:]) if data[0] & 0x80 else data[3:])
    disk = FaultyDisk()
    disk.put("/f", image)
    file = disk.open("/f", read_only=True)
    wanted = records(image, first)
    found = scan(file, HEADER, first, len(image))
    assert found.next_txid == first + len(wanted)
    assert found.end == HEADER + sum(map(len, wanted))
    assert [*found.offsets] == [HEADER + sum(map(len, wanted[:n])) for n in range(len(wanted))]
    stop = scan(file, HEADER, first, len(image), stop_txid=first + 1)
    assert stop.next_txid == first + min(1, len(wanted))
    try:
        later = find_later_record(file, found.end, len(image), found.next_txid)
    except SearchGivenUpError:
        later = -1
    if later >= 0:
        txid = int.from_bytes(image[later : later + 8], "big", signed=True)
        assert txid > found.next_txid
        assert records(image, txid, later)
        assert record_end(file, later, txid, len(image)) > later
    if found.end < len(image):
        unwritten_sector(file, found.end, len(image), found.next_txid)
    _seen_by_tools(image, first, len(wanted), int.from_bytes(data[1:3], "big"))
    if wanted:
        assert len(disk_to_wire(image[HEADER:], first)) == len(wanted)
    elif len(image) > HEADER:
        try:
            disk_to_wire(image[HEADER:], first)
        except RecordDamagedError:
            pass
        else:
            raise AssertionError("a record out of nothing")


def _seen_by_tools(image: bytes, first: int, count: int, index_bytes: int) -> None:
    disk = FaultyDisk()
    header = SegmentHeader(0, 1, KEY, 0, first).to_bytes()
    disk.put("/f.seg", header + image[HEADER:])
    disk.put("/f.idx", header + image[HEADER : HEADER + index_bytes])
    view = view_segment("/f.seg", fs=disk)
    assert view.next_txid == first + count
    assert len(list(segment_records(view, first, fs=disk))) == count
    assert len(data_lengths(view)) == count
    assert len(verify_segment(view, fs=disk)) <= 1 + len(view.index or ())


def _signed(body: bytes) -> bytes:
    raw = bytearray(body)
    offset = 0
    while offset + 40 <= len(raw):
        (length,) = struct.unpack_from(">i", raw, offset + 28)
        end = offset + 40 + length
        if length < 0 or end > len(raw):
            break
        raw[end - 4 : end] = zlib.crc32(raw[offset : end - 4]).to_bytes(4, "big")
        offset = end
    return bytes(raw)


def seeds() -> Iterator[bytes]:
    for number, first in enumerate(FIRSTS):
        run = [record(min(first + n, 2**63 - 1), b"d" * n * 7) for n in range(4)]
        yield bytes((number | 0x80, 0, 0)) + b"".join(run)
        yield bytes((number, 0, 0)) + b"".join((run[0], bytes(len(run[1])), run[2], run[3]))
        yield bytes((number, 0, 24)) + run[0] + run[1][:17]
    yield b"\0\0\0" + record(0, b"long" * 200) + bytes(600) + record(9, b"later")


TARGET = Target(check, seeds, memory_bytes=4 << 20)
