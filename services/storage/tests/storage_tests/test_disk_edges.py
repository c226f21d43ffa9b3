"""What a disk may answer at the edges: short reads and writes, nothing at all, failed syncs in each place,
wrong headers."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import (
    DiskWriteError,
    NotAssignedError,
    PartitionDamagedError,
    PartitionFailedError,
    RecordDamagedError,
    RequestRefusedError,
    StorageError,
    StorageStartError,
)
from waltz_storage.engine.files import OsFileSystem, write_fully, write_parts_fully
from waltz_storage.engine.inspect import inspect_directory
from waltz_storage.engine.layout import CONTROL_FILE_NAME, HEADER_SIZE, WITNESS_NAME, SegmentHeader
from waltz_storage.engine.partition_info import PartitionInfo, read_entry, virgin_entry
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_storage.engine.segment import Segment
from waltz_storage.engine.storage_manager import StorageManager, delete_log, prepare_reset
from waltz_storage.engine.witness import Witness
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk, FaultyFile

from .support import (
    KEY,
    NOW_MS,
    OTHER_KEY,
    ROOT,
    append,
    assert_holds,
    batch,
    empty_disk,
    now_ms,
    open_manager,
    path,
    refusal,
    segment_path,
)

HEADER = SegmentHeader(0, NOW_MS, KEY, 3, 0)


def filled(count: int = 10, threshold: int = 1_000_000_000) -> FaultyDisk:
    disk = empty_disk()
    manager = open_manager(disk, threshold=threshold)
    append(manager.assign(3), 0, count)
    manager.close()
    return disk


# ---- system calls


def test_short_reads_and_writes_of_the_operating_system_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    real_read, real_write, real_writev = os.pread, os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real_read(fd, min(size, 3), at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_write(fd, bytes(data[:3]), at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real_writev(fd, [parts[0][:2]], at))
    write_parts_fully(file, [b"abcd", b"efgh", b"ij"], 0)
    write_fully(file, b"0123456789", 10)
    assert file.pread(20, 0) == b"abcdefghij0123456789"
    assert file.pread(50, 15) == b"56789"
    file.close()


def test_a_write_that_takes_nothing_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="took no bytes") as caught:
        write_fully(file, b"x", 0)
    assert caught.value.errno == errno.ENOSPC
    file.close()


def test_a_lock_that_fails_for_another_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with pytest.raises(StorageStartError, match="No locks available"):
        StorageManager.open(str(tmp_path), cluster_key=KEY, num_partitions=4, now_ms=now_ms)
    assert (tmp_path / CONTROL_FILE_NAME).stat().st_size == 0


# ---- control file


def test_control_entries_that_cannot_be_read_say_why() -> None:
    raw = virgin_entry(3)
    assert read_entry(3, raw)[0].session_id == -1
    for broken, text in (
        (raw[:50], "ends inside its entry"),
        (raw[:4] + bytes(72), "both copies"),
        (virgin_entry(2), "names partition 2"),
    ):
        with pytest.raises(PartitionDamagedError, match=text):
            read_entry(3, broken)
    older, newer = (PartitionInfo(s, 0, 0, 1, s).to_bytes() for s in (4, 5))
    assert read_entry(3, raw[:4] + older + bytes(36))[0].session_id == 4
    assert read_entry(3, raw[:4] + bytes(36) + newer) == (PartitionInfo(5, 0, 0, 1, 5), 1)


def test_tools_refuse_a_control_file_that_was_never_finished() -> None:
    disk = empty_disk()
    disk.put(f"{ROOT}/{CONTROL_FILE_NAME}", bytes(60))
    with pytest.raises(StorageStartError, match="never finished"):
        ControlFile.open_existing(disk, ROOT)
    with pytest.raises(StorageStartError, match="never finished"):
        reset_for_restore(ROOT, fs=disk)
    with pytest.raises(StorageStartError, match="never finished"):
        inspect_directory(ROOT, fs=disk)


def test_a_control_file_of_a_later_format_is_not_touched() -> None:
    disk = filled()
    disk.overwrite(f"{ROOT}/{CONTROL_FILE_NAME}", 0, struct.pack(">i", 7))
    before = disk.files()
    with pytest.raises(StorageStartError, match="format version 7"):
        open_manager(disk)
    assert disk.files() == before


def test_partitions_that_do_not_exist_are_refused_everywhere() -> None:
    disk = filled()
    manager = open_manager(disk)
    calls: list[Callable[[], object]] = [
        lambda: manager.control.update(9, lambda info: info),
        lambda: manager.control.reset(9),
        lambda: manager.control.info(9),
        lambda: manager.assign(9),
        lambda: manager.unassign(9, delete_files=True),
        lambda: manager.set_available(9, True),
    ]
    for call in calls:
        assert isinstance(refusal(call), NotAssignedError)
    manager.close()


def test_a_control_file_whose_first_sync_fails_is_one_clear_line() -> None:
    disk = empty_disk()
    disk.fail_sync = CONTROL_FILE_NAME
    with pytest.raises(StorageStartError):
        open_manager(disk)


# ---- opening


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (HEADER._replace(version=3), "format version 3"),
        (HEADER._replace(cluster_key=OTHER_KEY), "another cluster"),
        (HEADER._replace(partition_id=2), "belongs to partition 2"),
    ],
)
def test_a_file_of_somewhere_else_stops_the_partition(header: SegmentHeader, text: str) -> None:
    for suffix in (".seg", ".idx"):
        disk = filled()
        disk.overwrite(segment_path(3, 0, suffix), 0, header.to_bytes())
        before = disk.content(segment_path(3, 0))
        manager = open_manager(disk)
        assert text in manager.damaged[3]
        assert disk.content(segment_path(3, 0)) == before
        manager.close()


def test_a_data_file_that_lost_its_header_but_not_its_records_is_damage() -> None:
    disk = filled()
    disk.overwrite(segment_path(3, 0), 0, bytes(HEADER_SIZE))
    manager = open_manager(disk)
    assert "has no header" in manager.damaged[3]
    assert "has no header" in str(refusal(lambda: manager.get(3)))
    manager.close()


def test_two_files_that_start_with_the_same_record_are_damage() -> None:
    disk = filled()
    disk.put(segment_path(3, 5), disk.content(segment_path(3, 0)))
    manager = open_manager(disk)
    assert "start with the same transaction" in manager.damaged[3]
    manager.close()


# ---- a segment on its own


def test_a_name_that_holds_something_is_never_made_again() -> None:
    disk = empty_disk()
    disk.add_dir(f"{ROOT}/3")
    disk.put(segment_path(3, 0), bytes(HEADER_SIZE + 1))
    with pytest.raises(PartitionDamagedError, match="exists already"):
        Segment.create(disk, f"{ROOT}/3", HEADER)
    assert len(disk.content(segment_path(3, 0))) == HEADER_SIZE + 1


@pytest.mark.parametrize("place", [".idx", ".seg", f"{ROOT}/3/"])
def test_a_failed_sync_while_a_segment_is_made_takes_the_partition_out(place: str) -> None:
    disk = filled(3, threshold=100)
    manager = open_manager(disk, threshold=100)
    partition = manager.get(3)
    first = partition.max_txid + 1
    disk.fail_sync_once = f"{first:019d}{place}" if place.startswith(".") else place
    assert isinstance(refusal(lambda: append(partition, first)), PartitionFailedError)
    assert partition.failed is not None
    assert partition.max_txid == first - 1
    manager.close()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk, threshold=100)
    assert_holds(manager.get(3), first)
    manager.close()


def test_when_not_even_the_clean_up_works_the_write_error_is_told() -> None:
    disk = filled(3, threshold=100)
    manager = open_manager(disk, threshold=100)
    partition = manager.get(3)
    disk.capacity_bytes = sum(map(len, disk.files().values())) + 50
    disk.fail_sync = f"{ROOT}/3/"
    with pytest.raises(StorageError):
        append(partition, partition.max_txid + 1)
    manager.close()


def test_files_that_cannot_be_opened_leave_none_open() -> None:
    disk = filled(3)
    segment = Segment(disk, f"{ROOT}/3", segment_path(3, 0), path(3, "nothing.idx"), 0, 3, 1)
    with pytest.raises(FileNotFoundError):
        segment.files()
    assert not segment.is_open


def test_a_full_disk_under_the_index_takes_the_records_back() -> None:
    disk = filled(3)
    manager = open_manager(disk)
    partition = manager.get(3)
    grown = len(batch(3, 1).data)
    disk.capacity_bytes = sum(map(len, disk.files().values())) + grown
    assert isinstance(refusal(lambda: append(partition, 3)), DiskWriteError)
    disk.capacity_bytes = None
    append(partition, 3)
    assert_holds(partition, 4)
    manager.close()


def test_a_failed_index_sync_at_a_checkpoint_takes_the_partition_out() -> None:
    disk = filled(1000)
    manager = open_manager(disk)
    partition = manager.get(3)
    disk.fail_sync_once = ".idx"
    assert isinstance(refusal(lambda: append(partition, 1000)), PartitionFailedError)
    assert partition.failed is not None
    manager.close()


def test_an_index_that_ends_too_early_or_points_outside_is_a_damaged_record() -> None:
    changes: list[Callable[[FaultyDisk], None]] = [
        lambda disk: disk.set_size(segment_path(3, 0, ".idx"), HEADER_SIZE + 8),
        lambda disk: disk.overwrite(segment_path(3, 0, ".idx"), HEADER_SIZE + 16, struct.pack(">q", 1 << 40)),
        lambda disk: disk.set_size(segment_path(3, 0), HEADER_SIZE + 3 * 80 + 5),
    ]
    for change in changes:
        disk = filled(6)
        manager = open_manager(disk)
        partition = manager.get(3)
        change(disk)
        with pytest.raises(RecordDamagedError):
            partition.read(2, 4, 1 << 20)
        assert manager.problems() == {3: "1 reads met a damaged record"}
        manager.close()


# ---- partition and directory


def test_low_water_marks_that_contradict_the_node_are_refused() -> None:
    disk = filled(6)
    manager = open_manager(disk)
    partition = manager.get(3)
    partition.set_low_water_mark(5, 5)
    for session, mark, text in ((4, 5, "is older"), (6, 4, "is below this node's last"), (6, 5, "")):
        if text:
            with pytest.raises(RequestRefusedError, match=text):
                partition.set_low_water_mark(session, mark)
        else:
            partition.set_low_water_mark(session, mark)
    partition.truncate(2)
    with pytest.raises(RequestRefusedError, match="below the persisted 5"):
        partition.set_low_water_mark(7, 2)
    manager.close()


def test_a_fence_that_is_there_already_costs_nothing() -> None:
    disk = filled(1)
    manager = open_manager(disk)
    partition = manager.get(3)
    partition.raise_fence(8)
    calls = len(disk.calls)
    partition.raise_fence(8)
    partition.raise_fence(7)
    assert len(disk.calls) == calls
    assert partition.durable_fence == 8
    manager.close()


def test_a_failed_partition_can_still_be_flagged_and_closed() -> None:
    disk = filled(3)
    manager = open_manager(disk)
    partition = manager.get(3)
    disk.fail_sync_once = ".seg"
    assert isinstance(refusal(lambda: append(partition, 3)), PartitionFailedError)
    manager.set_available(3, False)
    assert manager.status() == {3: False}
    manager.close()
    disk.restart(CrashMode.KEEP)
    manager = open_manager(disk)
    assert manager.status() == {3: False}
    manager.close()


def test_a_disk_that_fails_at_the_end_stops_nobody_from_closing() -> None:
    disk = filled(3)
    manager = open_manager(disk)
    append(manager.get(3), 3)
    append(manager.assign(1), 0)
    disk.fail_sync = "/3/"
    manager.close()
    disk.fail_sync = None
    manager = open_manager(disk)
    assert_holds(manager.get(1), 1)
    manager.close()


def test_safety_c3_a_removal_whose_sync_failed_leaves_the_partition_out_of_service() -> None:
    """It is removed already, or not: what its control entry says is not known."""
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(0)
    append(partition, 0, 3)
    disk.fail_sync_once = CONTROL_FILE_NAME
    assert isinstance(refusal(lambda: manager.unassign(0, delete_files=False)), PartitionFailedError)
    assert 0 in manager.problems()
    assert isinstance(refusal(lambda: append(partition, 3)), PartitionFailedError)


def test_assigning_twice_changes_nothing_and_a_flag_that_fails_assigns_nothing() -> None:
    disk = filled(3)
    manager = open_manager(disk)
    assert manager.assign(3) is manager.get(3)
    disk.fail_sync_once = CONTROL_FILE_NAME
    with pytest.raises(PartitionFailedError):
        manager.assign(2)
    assert isinstance(refusal(lambda: manager.get(2)), NotAssignedError)
    disk.fail_sync_once = CONTROL_FILE_NAME
    with pytest.raises(PartitionFailedError):
        manager.assign(3)
    manager.close()


def test_a_disk_error_while_assigning_is_an_error_of_the_engine() -> None:
    disk = filled(3)
    manager = open_manager(disk)
    disk.fail_sync_once = ROOT
    with pytest.raises(StorageError):
        manager.assign(1)
    manager.close()


def test_deleting_a_log_takes_orphans_along_and_leaves_the_fence() -> None:
    disk = filled(6, threshold=200)
    disk.put(segment_path(3, 99, ".idx"), b"")
    disk.remove(segment_path(3, 0, ".idx"))
    delete_log(disk, f"{ROOT}/3")
    assert [name for name in disk.files() if name.startswith(f"{ROOT}/3/")] == [path(3, "waltz-fence")]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError()])
def test_safety_c3_a_copy_whose_entry_is_half_reset_takes_nothing_until_the_command_is_repeated(
    monkeypatch: pytest.MonkeyPatch, number: int, error: Exception
) -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(0)
    append(partition, 0, 5)
    manager.set_available(0, True)
    written, real = 0, FaultyFile.pwrite

    def pwrite(self: FaultyFile, data: bytes | memoryview, offset: int) -> int:
        nonlocal written
        written += self.path.endswith(CONTROL_FILE_NAME)
        if written == number and self.path.endswith(CONTROL_FILE_NAME):
            raise error
        return real(self, data, offset)

    with monkeypatch.context() as patched:
        patched.setattr(FaultyFile, "pwrite", pwrite)
        with pytest.raises((DiskWriteError, MemoryError)):
            manager.unassign(0, delete_files=False)
    untouched = number == 1 and isinstance(error, OSError)
    assert manager.status() == {0: untouched}
    assert (0 in manager.problems()) is not untouched
    if untouched:
        append(partition, 5, 1)
    else:
        assert isinstance(refusal(lambda: append(partition, 5, 1)), PartitionFailedError)
        manager.assign(0)
        assert manager.status() == {0: False}
    manager.unassign(0, delete_files=True)
    assert manager.status() == {}
    append(manager.assign(0), 0, 1)
    manager.close()


def test_a_reset_of_a_partition_that_never_was_here_leaves_no_file() -> None:
    disk = empty_disk()
    disk.add_dir(f"{ROOT}/2")
    prepare_reset(disk, f"{ROOT}/2", 2, None, Witness(disk, ROOT))
    assert disk.files() == {}


def test_a_witness_that_cannot_be_read_is_no_empty_one() -> None:
    disk = filled(3)
    manager = open_manager(disk)
    manager.get(3).set_low_water_mark(4, 2)
    manager.close()
    disk.fail_read = WITNESS_NAME
    with pytest.raises(StorageStartError, match="Input/output error"):
        open_manager(disk)


def test_a_restore_reset_skips_directories_that_are_not_there_and_tells_disk_errors() -> None:
    disk = filled(3)
    assert reset_for_restore(ROOT, [1, 3], fs=disk) == [1, 3]
    disk.fail_sync = "waltz-fence"
    with pytest.raises(StorageStartError):
        reset_for_restore(ROOT, [3], fs=disk)
    disk.fail_read = CONTROL_FILE_NAME
    with pytest.raises(StorageStartError):
        reset_for_restore(ROOT, [3], fs=disk)


def test_a_low_water_mark_syncs_what_was_written_since_and_nothing_else() -> None:
    """Who takes over a thousand partitions that rest waits for a third of the syncs."""
    disk = empty_disk()
    partition = open_manager(disk).assign(3)
    index = segment_path(3, 0, ".idx")
    for session, first in ((1, 0), (2, 5)):
        append(partition, first, 5)
        partition.set_low_water_mark(session, first + 4)
        assert disk.durable_size(index) == len(disk.files()[index])
    before = len(disk.calls)
    partition.set_low_water_mark(3, 9)
    assert [call[0] for call in disk.calls[before:]].count("sync") == 2  # witness and control entry
