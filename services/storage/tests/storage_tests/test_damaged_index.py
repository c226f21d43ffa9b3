"""An index entry that changed on the disk: reads notice, and a truncation neither cuts in the wrong place nor
half."""

from __future__ import annotations

import random
import struct

import pytest

from waltz_storage.engine.errors import DiskWriteError
from waltz_storage.engine.inspect import inspect_directory
from waltz_storage.engine.layout import HEADER_SIZE, RecordBatch, wire_to_disk
from waltz_storage.engine.partition_info import virgin
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .support import (
    ROOT,
    append,
    assert_holds,
    empty_disk,
    forget_our_files,
    open_manager,
    segment_path,
    wire_record,
)

RECORD = 80


def disk_with(count: int, threshold: int = 1_000_000) -> FaultyDisk:
    disk = empty_disk()
    manager = open_manager(disk, threshold=threshold)
    append(manager.assign(0), 0, count)
    manager.close()
    return disk


def batch_of(txid: int, data: bytes) -> RecordBatch:
    return wire_to_disk(wire_record(txid, data), 0, 1).batch


def set_index_entry(disk: FaultyDisk, txid: int, offset: int) -> None:
    disk.overwrite(segment_path(0, 0, ".idx"), 128 + 8 * txid, struct.pack(">q", offset))


@pytest.mark.parametrize("threshold", [1_000_000, 150_000], ids=["newest", "older"])
@pytest.mark.parametrize(("left", "zeros"), [(0, 0), (511, 0), (1700, 0), (500, 1800)])
def test_safety_c5_power_is_lost_while_an_index_is_made_again(left: int, zeros: int, threshold: int) -> None:
    """Whatever part of it reaches the disk, the next start takes no hole for entries: the file shows what is
    beyond a checkpoint, or its last entry, when everything before it is on the disk."""
    files = disk_with(2300, threshold).files()
    index = segment_path(0, 0, ".idx")
    files[index] = files[index][: HEADER_SIZE + 8 * left] + bytes(8 * zeros)

    def crashed(boundary: int, seed: int) -> tuple[FaultyDisk, bool]:
        disk = FaultyDisk()
        for name, raw in files.items():
            disk.add_dir(name.rpartition("/")[0])
            disk.put(name, raw)
        disk.crash_before = boundary
        try:
            open_manager(disk, threshold=threshold)
        except CrashError:
            disk.restart(CrashMode.SOME, random.Random(seed))
            return disk, True
        return disk, False

    boundary, went_on = 0, True
    while went_on:
        for seed in range(6):
            disk, went_on = crashed(boundary, seed)
            if not went_on:
                break
            manager = open_manager(disk, threshold=threshold)
            assert manager.damaged == {}
            assert_holds(manager.get(0), 2300)
            manager.close()
        boundary += 1
    assert boundary > 10


@pytest.mark.parametrize("offset", [-1, 0, 1 << 40, 128 + 5 * RECORD + 7, 128 + 3 * RECORD])
def test_safety_c4_truncation_does_not_believe_a_damaged_index(offset: int) -> None:
    """The entry of the first record to go is wrong: the cut is at the right byte, and what is appended then
    stays."""
    disk = disk_with(2500)
    manager = open_manager(disk)
    partition = manager.get(0)
    set_index_entry(disk, 5, offset)
    assert partition.truncate(4) == 4
    for result in partition.append([batch_of(5, b"new")]):
        assert result is None
    assert partition.read(5, 1, 1000) == [wire_record(5, b"new")]
    manager.close()
    assert inspect_directory(ROOT, fs=disk).problems == []
    manager = open_manager(disk)
    assert manager.damaged == {}
    assert manager.get(0).read(0, 9, 1000) == [*map(wire_record, range(5)), wire_record(5, b"new")]
    manager.close()


def test_safety_c4_a_truncation_that_fails_stops_the_partition() -> None:
    """The record to keep is damaged itself: nothing may be appended behind what could not be cut."""
    disk = disk_with(2500)
    manager = open_manager(disk)
    partition = manager.get(0)
    disk.flip_bit(segment_path(0, 0), 128 + 4 * RECORD + 40)
    with pytest.raises(Exception, match="transaction 4"):
        partition.truncate(4)
    assert partition.failed is not None
    (result,) = partition.append([batch_of(5, b"new")])
    assert result is not None
    manager.close()


@pytest.mark.parametrize("left", [1, 9, 20, 39, 127, "zeros"])
def test_an_index_without_its_whole_header_is_made_anew(left: int | str) -> None:
    disk = disk_with(5)
    whole = disk.content(segment_path(0, 0, ".idx"))
    if isinstance(left, int):
        disk.set_size(segment_path(0, 0, ".idx"), left)
    else:
        disk.overwrite(segment_path(0, 0, ".idx"), 0, bytes(HEADER_SIZE))
    manager = open_manager(disk)
    assert_holds(manager.get(0), 5)
    manager.close()
    assert disk.content(segment_path(0, 0, ".idx"))[: len(whole)] == whole


def test_a_huge_count_reads_no_more_of_the_index_than_its_bytes_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record list for 2**31 - 1 records must not load the index of a whole segment (200 MB of small
    records)."""
    disk = disk_with(5000)
    manager = open_manager(disk)
    sizes: list[int] = []
    original = type(disk.open(segment_path(0, 0))).pread

    def counting(self: object, size: int, offset: int) -> bytes:
        sizes.append(size)
        return original(self, size, offset)  # type: ignore[arg-type]

    monkeypatch.setattr("waltz_testkit.faulty_disk.FaultyFile.pread", counting)
    records = manager.get(0).read(0, 2**31 - 1, 4000)
    assert len(records) == 4000 // RECORD
    assert max(sizes) <= 4000
    manager.close()


def test_a_damaged_entry_without_a_directory_can_be_reset() -> None:
    """Both copies of a control entry are broken and the partition was never here: assigning it must be
    possible again."""
    disk = empty_disk()
    open_manager(disk).close()
    for offset in (4 + 10, 40 + 10):
        disk.flip_bit("/data/waltz-storage.ctl", 128 + 76 * 2 + offset)
    manager = open_manager(disk)
    manager.unassign(2, delete_files=False)
    assert manager.control.info(2) == virgin(0)
    assert manager.assign(2).max_txid == -1
    manager.close()


def test_safety_b2_unassigning_a_failed_partition_keeps_its_fence() -> None:
    """A directory of 0.13.2 has no sidecar: the fence is the persisted session, and it must outlive the
    control entry."""
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(0)
    append(partition, 0)
    partition.set_low_water_mark(5, 0)
    manager.close()
    forget_our_files(disk)
    manager = open_manager(disk)
    partition = manager.get(0)
    partition.failed = "a sync failed"
    manager.unassign(0, delete_files=True)
    manager.close()
    manager = open_manager(disk)
    assert manager.assign(0).durable_fence == 6  # past the session that counted on the copy
    manager.close()


def test_full_disk_at_a_roll_leaves_no_file_that_stops_a_later_start() -> None:
    """The half-made segment of a failed roll, then a truncation and rolls elsewhere: it lies between complete
    segments."""
    disk = empty_disk()
    manager = open_manager(disk, threshold=300)
    partition = manager.assign(0)
    append(partition, 0, 3)  # full: the next record rolls to a segment 3
    used = sum(len(content) for content in disk.files().values())
    disk.capacity_bytes = used + 128 + 64  # room for the index header, not for that of the data file
    with pytest.raises(DiskWriteError):
        append(partition, 3)
    disk.capacity_bytes = None
    assert [name for name in disk.files() if "0000003" in name] == [], "the half-made segment is still there"
    assert partition.truncate(1) == 1
    append(partition, 2, 1, 200)
    append(partition, 3, 2)
    append(partition, 5, 3)
    manager.close()
    manager = open_manager(disk, threshold=300)
    assert manager.damaged == {}
    assert manager.get(0).max_txid == 7
    manager.close()


def test_a_half_made_segment_between_complete_ones_is_no_damage() -> None:
    """What an earlier release of ours, or a cleanup that failed too, left behind."""
    disk = empty_disk()
    manager = open_manager(disk, threshold=300)
    append(manager.assign(0), 0, 9)
    manager.close()
    for suffix, size in ((".idx", 128), (".seg", 0)):
        disk.put(segment_path(0, 5, suffix), bytes(size))
    manager = open_manager(disk, threshold=300)
    assert manager.damaged == {}
    assert_holds(manager.get(0), 9)
    manager.close()
