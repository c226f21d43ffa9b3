"""Reading files without trusting them: scans, and what tools see of segments and directories."""

from __future__ import annotations

import struct

import pytest

from waltz_storage.engine.errors import (
    RecordDamagedError,
    StorageStartError,
)
from waltz_storage.engine.inspect import inspect_directory
from waltz_storage.engine.layout import (
    CONTROL_FILE_NAME,
    HEADER_SIZE,
    RECORD_HEAD,
    SegmentHeader,
    disk_to_wire,
)
from waltz_storage.engine.scan import record_end, scan, unwritten_sector
from waltz_storage.engine.segment_view import (
    data_lengths,
    segment_records,
    verify_segment,
    view_segment,
)
from waltz_testkit.faulty_disk import FaultyDisk
from waltz_testkit.stored_records import iterate_records

from .support import (
    KEY,
    NOW_MS,
    ROOT,
    append,
    batch,
    empty_disk,
    open_manager,
    segment_path,
)

HEADER = SegmentHeader(0, NOW_MS, KEY, 3, 0)


def filled(count: int = 10, threshold: int = 1_000_000_000) -> FaultyDisk:
    disk = empty_disk()
    manager = open_manager(disk, threshold=threshold)
    append(manager.assign(3), 0, count)
    manager.close()
    return disk


def test_a_file_that_shrinks_while_it_is_read_ends_the_record() -> None:
    """The size was asked for before; the node cuts its tail meanwhile (tools read a running node's files)."""
    disk = filled(3)
    name = segment_path(3, 0)
    file = disk.open(name, read_only=True)
    size = file.size()
    end = record_end(file, HEADER_SIZE, 0, size)
    assert end > 0
    assert record_end(file, HEADER_SIZE, 0, end - 1) == -1
    assert record_end(file, HEADER_SIZE, 1, size) == -1, "another transaction"
    disk.set_size(name, HEADER_SIZE + 20)
    assert record_end(file, HEADER_SIZE, 0, size) == -1
    disk.set_size(name, HEADER_SIZE + 50)
    assert record_end(file, HEADER_SIZE, 0, size) == -1
    assert scan(file, HEADER_SIZE, 0, size).next_txid == 0


def test_a_negative_length_is_no_record() -> None:
    """It points to zeros before the record, which are the checksum of nothing."""
    disk = empty_disk()
    disk.put("/data/f", bytes(HEADER_SIZE + 100))
    file = disk.open("/data/f", read_only=True)
    for length in range(-100, 0):
        disk.overwrite("/data/f", HEADER_SIZE, RECORD_HEAD.pack(5, length))
        assert record_end(file, HEADER_SIZE, 5, file.size()) == -1


def test_zeros_are_an_unwritten_sector_only_where_a_record_could_not_have_them() -> None:
    disk = empty_disk()
    disk.put("/data/f", bytes(HEADER_SIZE + 600))
    file = disk.open("/data/f", read_only=True)
    assert unwritten_sector(file, HEADER_SIZE, HEADER_SIZE + 600, 5)
    assert not unwritten_sector(file, 508, 512, 5)  # four zeros may be the first half of a small id
    assert unwritten_sector(file, 508, 512, 5 << 32)
    assert unwritten_sector(file, HEADER_SIZE, HEADER_SIZE + 10, 5 << 56)


def test_damaged_disk_records_are_cut_off_or_refused() -> None:
    raw = batch(0, 3).data
    size = len(raw) // 3
    assert len(disk_to_wire(raw[: 2 * size + 10], 0)) == 2
    assert len(disk_to_wire(raw[: size + 39] + raw[:1], 0)) == 1
    assert len(disk_to_wire(raw[: 2 * size] + raw[:size], 0)) == 2, "a whole record of another transaction"
    with pytest.raises(RecordDamagedError, match="transaction 1"):
        disk_to_wire(raw, 1)
    for length in range(-100, 0):
        with pytest.raises(RecordDamagedError):
            disk_to_wire(RECORD_HEAD.pack(0, length) + bytes(100), 0)
    for broken in (raw[:20], bytes(80), raw[1:]):
        with pytest.raises(RecordDamagedError, match="transaction 0"):
            disk_to_wire(broken, 0)


def test_a_segment_is_seen_by_tools_as_it_is() -> None:
    disk = filled(6)
    name, index = segment_path(3, 0), segment_path(3, 0, ".idx")
    view = view_segment(name, fs=disk)
    assert (view.next_txid, view.end) == (6, view.file_bytes)
    assert [r.transaction_id for r in segment_records(view, 2, 3, fs=disk)] == [2, 3, 4]
    assert [r.transaction_id for r in segment_records(view, 4, fs=disk)] == [4, 5]
    assert data_lengths(view) == [40] * 6
    assert verify_segment(view, fs=disk) == []
    disk.overwrite(index, HEADER_SIZE + 8, struct.pack(">q", 5))
    disk.flip_bit(name, view.offsets[3] + 40)
    view = view_segment(name, fs=disk)
    problems = verify_segment(view, fs=disk)
    assert view.next_txid == 3
    assert any("transaction 3 is broken" in p for p in problems)
    assert any("transaction 1 is at byte" in p for p in problems)
    assert verify_segment(view, 4, fs=disk) == []  # 4 and 5 stand where the index says
    disk.overwrite(index, HEADER_SIZE + 8 * 5, struct.pack(">q", 5))
    view = view_segment(name, fs=disk)
    assert verify_segment(view, 4, fs=disk) == [
        "transaction 5 is not, or not whole, at byte 5 where the index says"
    ]
    disk.remove(index)
    assert verify_segment(view_segment(name, fs=disk), fs=disk)[-1].endswith(".idx is missing")


def test_what_is_no_segment_is_said_so() -> None:
    disk = filled(1)
    disk.put("/data/3/short.seg", b"x")
    disk.put("/data/3/other.seg", HEADER._replace(version=9).to_bytes())
    for name, text in (
        ("f.idx", "must end with .seg"),
        ("short.seg", "too few"),
        ("other.seg", "not the header"),
    ):
        with pytest.raises(StorageStartError, match=text):
            view_segment(f"/data/3/{name}", fs=disk)


def test_inspection_names_what_is_missing_foreign_or_damaged() -> None:
    disk = filled(6, threshold=200)
    assert inspect_directory(ROOT, fs=disk).problems == []
    disk.put(segment_path(3, 77), b"torn")
    disk.overwrite(segment_path(3, 0), 0, HEADER._replace(partition_id=1).to_bytes())
    disk.remove(segment_path(3, 3))
    disk.remove(segment_path(3, 3, ".idx"))
    disk.overwrite(f"{ROOT}/{CONTROL_FILE_NAME}", HEADER_SIZE, bytes(76))
    problems = inspect_directory(ROOT, fs=disk).problems
    for text in ("no header", "belongs to partition 1", "both copies of its control entry", "partition 3:"):
        assert any(text in problem for problem in problems), (text, problems)


def test_inspection_notices_an_end_below_the_local_mark_and_a_wrong_index() -> None:
    disk = filled(6)
    manager = open_manager(disk)
    manager.get(3).set_low_water_mark(1, 5)
    manager.close()
    disk.overwrite(segment_path(3, 0, ".idx"), HEADER_SIZE + 16, struct.pack(">q", 1))
    assert "does not match" in inspect_directory(ROOT, fs=disk).problems[0]
    disk.remove(segment_path(3, 0, ".idx"))
    assert inspect_directory(ROOT, fs=disk).problems == []
    disk.set_size(segment_path(3, 0), HEADER_SIZE)
    assert inspect_directory(ROOT, fs=disk).problems == ["partition 3: ends at -1, its local mark is 5"]


def test_records_are_listed_up_to_the_first_gap() -> None:
    disk = filled(9, threshold=200)
    names = sorted(n for n in disk.files() if n.startswith(f"{ROOT}/3/") and n.endswith(".seg"))
    assert len(names) >= 3
    assert len(list(iterate_records(ROOT, 3, 4, fs=disk))) == 5
    disk.remove(names[1])
    assert 0 < len(list(iterate_records(ROOT, 3, fs=disk))) < 9
