"""The reference's weaknesses in files and start, each mended. Names carry the number of the catalogue."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from threading import Barrier

import pytest

from waltz_storage.engine.errors import DirectoryLockedError, NotAssignedError, StorageStartError
from waltz_storage.engine.files import OsFileSystem
from waltz_storage.engine.inspect import inspect_control_file, inspect_directory
from waltz_storage.engine.partition_info import virgin
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk
from waltz_testkit.stored_records import iterate_records

from .support import (
    KEY,
    OTHER_KEY,
    ROOT,
    append,
    assert_holds,
    empty_disk,
    forget_our_files,
    now_ms,
    open_manager,
    opens_in_release_0_13_2,
    refusal,
    segment_path,
    wire_record,
)

RECORD = 80
CONTROL = "/data/waltz-storage.ctl"


def filled(count: int, *, threshold: int = 1_000_000_000, step: int = 500) -> FaultyDisk:
    disk = empty_disk()
    manager = open_manager(disk, threshold=threshold)
    partition = manager.assign(0)
    for first in range(0, count, step):
        append(partition, first, min(step, count - first))
    manager.close()
    return disk


def test_storage_7_01_scan_starts_at_an_entry_that_was_synced() -> None:
    """The entry of 1000 never reached the disk: 0.13.2 would not start, we go back to one that did."""
    disk = filled(1500)
    disk.overwrite(segment_path(0, 0, ".idx"), 128 + 8 * 1000, bytes(8 * 500))
    with pytest.raises(AssertionError, match="no valid record 1000"):
        opens_in_release_0_13_2(disk, 0, -1)
    manager = open_manager(disk)
    assert_holds(manager.get(0), 1500)
    manager.close()


@pytest.mark.parametrize("entry", [999, 0])
def test_storage_7_01_falls_back_to_earlier_entries(entry: int) -> None:
    disk = filled(2500)
    disk.overwrite(segment_path(0, 0, ".idx"), 128 + 8 * entry, bytes(8 * (2500 - entry)))
    manager = open_manager(disk)
    assert_holds(manager.get(0), 2500)
    manager.close()


def test_storage_7_01_what_we_write_never_shows_0_13_2_that_gap() -> None:
    """Power loss anywhere in an append over a checkpoint: 0.13.2's own start point is always on the disk."""
    for boundary in range(60):
        for seed in range(4):
            disk = empty_disk()
            manager = open_manager(disk)
            partition = manager.assign(0)
            append(partition, 0, 990)
            disk.crash_before = len(disk.calls) + boundary
            try:
                for first in range(990, 1020, 3):
                    append(partition, first, 3)
            except CrashError:
                pass
            promised = partition.max_txid
            disk.restart(CrashMode.SOME, random.Random(f"{boundary}-{seed}"))
            assert opens_in_release_0_13_2(disk, 0, -1) >= promised


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 10_000])
def test_storage_7_02_torn_length_is_bounded(length: int) -> None:
    disk = filled(10)
    forget_our_files(disk)
    disk.overwrite(segment_path(0, 0), 128 + 9 * RECORD + 28, struct.pack(">i", length))
    manager = open_manager(disk)
    assert manager.get(0).max_txid == 8
    manager.close()


def test_storage_7_03_orphan_index_is_removed() -> None:
    disk = filled(5)
    disk.put(segment_path(0, 5, ".idx"), disk.content(segment_path(0, 0, ".idx"))[:128])
    manager = open_manager(disk, threshold=100)
    assert not disk.exists(segment_path(0, 5, ".idx"))
    append(manager.get(0), 5, 5)
    assert_holds(manager.get(0), 10)
    manager.close()


@pytest.mark.parametrize("size", [0, 50, 128])
def test_storage_7_03_unfinished_segment_is_removed(size: int) -> None:
    disk = filled(5)
    for suffix in (".idx", ".seg"):
        disk.put(segment_path(0, 5, suffix), bytes(size))
    manager = open_manager(disk, threshold=100)
    append(manager.get(0), 5, 5)
    assert_holds(manager.get(0), 10)
    manager.close()


def test_storage_7_03_missing_index_is_rebuilt() -> None:
    disk = filled(20, threshold=700, step=5)
    disk.remove(segment_path(0, 0, ".idx"))
    newest = max(name for name in disk.files() if name.endswith(".idx"))
    disk.remove(newest)
    manager = open_manager(disk, threshold=700)
    assert_holds(manager.get(0), 20)
    manager.close()
    assert inspect_directory(ROOT, fs=disk).problems == []


def test_storage_7_03_a_lost_data_file_is_damage_of_that_partition_only() -> None:
    disk = filled(20, threshold=700, step=5)
    disk.remove(max(name for name in disk.files() if name.endswith(".seg")))
    manager = open_manager(disk)
    assert "its data file is missing" in manager.damaged[0]
    assert manager.assign(1).max_txid == -1
    manager.close()


def test_storage_7_04_damage_in_an_older_segment_is_no_hole() -> None:
    """0.13.2 cuts an older segment at a bad last record and goes on with a hole. Here: refused."""
    disk = filled(20, threshold=700, step=5)
    older = segment_path(0, 0)
    disk.flip_bit(older, len(disk.content(older)) - 20)
    manager = open_manager(disk)
    assert "is missing or damaged" in manager.damaged[0]
    manager.close()


def test_storage_7_04_gaps_between_segments_are_noticed() -> None:
    disk = filled(30, threshold=700, step=5)
    firsts = sorted(name for name in disk.files() if name.endswith(".seg"))
    for gone in (firsts[1], firsts[1][:-4] + ".idx"):
        disk.remove(gone)
    manager = open_manager(disk)
    assert "is missing or damaged" in manager.damaged[0]
    manager.close()
    disk = filled(30, threshold=700, step=5)
    for gone in (firsts[0], firsts[0][:-4] + ".idx"):
        disk.remove(gone)
    manager = open_manager(disk)
    assert "transactions 0 to" in manager.damaged[0]
    manager.close()


def test_storage_7_04_all_segments_lost_is_damage() -> None:
    disk = filled(5)
    for suffix in (".idx", ".seg"):
        disk.remove(segment_path(0, 0, suffix))
    manager = open_manager(disk)
    assert "no segment is left" in manager.damaged[0]
    manager.close()


@pytest.mark.parametrize("mode", [CrashMode.KEEP, CrashMode.LOSE, CrashMode.SOME])
def test_storage_7_06_reset_is_crash_safe(mode: CrashMode) -> None:
    """Every prefix of a reset leaves the old entry or the virgin one, never a mixture, never an unusable
    file."""
    for updates in (0, 1, 2, 3):
        for boundary in range(12):
            disk = empty_disk()
            manager = open_manager(disk)
            for _ in range(updates):
                manager.control.update(2, lambda info: info._replace(session_id=7, low_water_mark=9, flags=5))
            before = manager.control.info(2)
            disk.crash_before = len(disk.calls) + boundary
            done = False
            try:
                manager.control.reset(2)
                done = True
            except CrashError:
                pass
            disk.restart(mode, random.Random(boundary))
            reopened = open_manager(disk)
            after = reopened.control.info(2)
            assert reopened.control.damaged == {}
            assert after[:4] == virgin(0)[:4] or (after == before and not done)
            reopened.control.update(2, lambda info: info._replace(session_id=8))
            assert reopened.control.info(2).session_id == 8
            reopened.close()


@pytest.mark.parametrize("mode", [CrashMode.KEEP, CrashMode.LOSE, CrashMode.SOME])
def test_storage_7_06_interrupted_initialisation_is_repeated(mode: CrashMode) -> None:
    for boundary in range(12):
        for seed in range(3):
            disk = empty_disk()
            disk.crash_before = boundary
            try:
                open_manager(disk, num_partitions=30)
            except CrashError:
                pass
            disk.restart(mode, random.Random(f"{boundary}{seed}"))
            manager = open_manager(disk, num_partitions=30)
            manager.assign(29)
            manager.close()


def test_storage_7_06_a_damaged_entry_stops_one_partition() -> None:
    disk = filled(3)
    for offset in (4 + 10, 40 + 10):
        disk.flip_bit(CONTROL, 128 + offset)
    manager = open_manager(disk)
    assert "both copies" in manager.damaged[0]
    manager.assign(1)
    with pytest.raises(Exception, match="both copies"):
        manager.assign(0)
    manager.unassign(0, delete_files=True)
    assert manager.assign(0).max_txid == -1
    manager.close()


def test_storage_7_07_control_file_is_written_and_synced_directly() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    disk.calls.clear()
    manager.control.update(1, lambda info: info._replace(session_id=5))
    assert disk.calls == [("pwrite", CONTROL, 128 + 76 + 4, 36), ("sync", CONTROL)]
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert manager.control.info(1).session_id == 5
    manager.close()


def test_storage_7_07_directories_are_synced() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    disk.calls.clear()
    append(manager.assign(0), 0)
    assert ("sync_dir", ROOT) in disk.calls
    assert ("sync_dir", "/data/0") in disk.calls
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert_holds(manager.get(0), 1)
    manager.close()


def test_storage_7_10_partitions_open_in_parallel(tmp_path: Path) -> None:
    """Each of two openings waits for the other one: done in a row this would never end."""
    from concurrent.futures import ThreadPoolExecutor

    from waltz_storage.service.server import run_in_threads

    def opened(**more: object) -> StorageManager:
        return StorageManager.open(str(tmp_path), cluster_key=KEY, num_partitions=2, now_ms=now_ms, **more)  # type: ignore[arg-type]

    manager = opened()
    manager.assign(0)
    manager.assign(1)
    manager.close()
    barrier = Barrier(2, timeout=10)

    class Meeting(OsFileSystem):
        def listdir(self, path: str) -> list[str]:
            barrier.wait()
            return super().listdir(path)

    with ThreadPoolExecutor(2) as pool:
        manager = opened(fs=Meeting(), run_all=run_in_threads(pool))
    assert sorted(manager.partitions) == [0, 1]
    manager.close()


def test_a_million_records_need_no_scan() -> None:
    """Opening reads a bounded part of the log: what lies behind the last synced index entry."""
    disk = filled(5000)
    read = 0
    manager = open_manager(disk)
    manager.close()

    original = type(disk.open(segment_path(0, 0))).pread

    def counting(self: object, size: int, offset: int) -> bytes:
        nonlocal read
        raw = original(self, size, offset)  # type: ignore[arg-type]
        read += len(raw)
        return raw

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("waltz_testkit.faulty_disk.FaultyFile.pread", counting)
        manager = open_manager(disk)
    assert manager.get(0).max_txid == 4999
    assert read < 2200 * RECORD + 100_000
    manager.close()


def test_segment_cache_keeps_few_files_open() -> None:
    disk = filled(60, threshold=700, step=5)
    manager = open_manager(disk, threshold=700, cache=2)
    partition = manager.get(0)
    assert partition.num_segments > 5
    for txid in (0, 20, 40, 59, 10, 30, 0):
        assert partition.read(txid, 1, 1000) == [wire_record(txid)]
        assert sum(s.is_open for s in partition._segments) <= 3
    assert partition.read(-1, 5, 1000) == partition.read(60, 5, 1000) == partition.read(3, 0, 1000) == []
    manager.close()


def test_roll_rule() -> None:
    """A segment exceeds the threshold by at most one record; one request may span several."""
    disk = filled(20, threshold=300, step=20)
    firsts = sorted(int(name[-23:-4]) for name in disk.files() if name.endswith(".seg"))
    assert firsts == [0, 3, 6, 9, 12, 15, 18]
    assert opens_in_release_0_13_2(disk, 0, -1) == 19


def test_seq_files_are_read_too() -> None:
    disk = filled(5)
    disk.put(segment_path(0, 0, ".seq"), disk.content(segment_path(0, 0)))
    disk.remove(segment_path(0, 0))
    manager = open_manager(disk)
    append(manager.get(0), 5)
    assert_holds(manager.get(0), 6)
    manager.close()


def test_safety_a5_restored_copy_does_not_vote() -> None:
    """Marks back to "no session", in both copies; files, assignment, availability stay, the fence too or it
    rises."""
    disk = empty_disk()
    manager = open_manager(disk)
    for partition_id in (0, 2):
        partition = manager.assign(partition_id)
        partition.raise_fence(6)
        append(partition, 0, 5)
        partition.set_low_water_mark(6, 4)
    manager.set_available(2, False)
    manager.close()
    assert reset_for_restore(ROOT, fs=disk) == [0, 2]
    assert reset_for_restore(ROOT, [0], fs=disk) == [0]
    control = disk.content(CONTROL)
    for place in (4, 40):
        for entry in (0, 2):
            assert struct.unpack_from(">qqq", control, 128 + 76 * entry + place) == (-1, -1, -1)
    manager = open_manager(disk)
    assert manager.damaged == {}
    assert manager.status() == {0: True, 2: False}
    assert manager.get(0).info[:3] == (-1, -1, -1)
    assert manager.get(0).durable_fence == 7  # past the session that counted on the copy
    assert_holds(manager.get(0), 5)
    assert opens_in_release_0_13_2(disk, 0, -1) == 4
    manager.close()


def test_safety_a5_reset_is_crash_safe_and_needs_the_lock() -> None:
    disk = filled(5)
    manager = open_manager(disk)
    manager.get(0).set_low_water_mark(6, 4)
    with pytest.raises(DirectoryLockedError, match="another process"):
        reset_for_restore(ROOT, fs=disk)
    manager.close()
    with pytest.raises(NotAssignedError):
        reset_for_restore(ROOT, [9], fs=disk)
    total = len(disk.calls)
    for boundary in range(12):
        disk.crash_before = total + boundary
        try:
            reset_for_restore(ROOT, fs=disk)
        except CrashError:
            pass
        disk.restart(CrashMode.SOME, random.Random(boundary))
        total = len(disk.calls)
        if inspect_control_file(ROOT, fs=disk)[0].version:
            assert "a reset of its copies was begun" in str(refusal(lambda: open_manager(disk)))
        else:
            manager = open_manager(disk)
            assert_holds(manager.get(0), 5)
            assert manager.get(0).info.session_id in (-1, 6)
            manager.close()
            total = len(disk.calls)
    reset_for_restore(ROOT, fs=disk)
    manager = open_manager(disk)
    assert manager.get(0).info.session_id == -1
    manager.close()


def test_safety_a5_reset_refuses_what_is_no_storage_directory() -> None:
    disk = empty_disk()
    with pytest.raises(StorageStartError, match=r"there is no waltz-storage.ctl"):
        reset_for_restore(ROOT, fs=disk)
    with pytest.raises(StorageStartError, match="no waltz-storage"):
        reset_for_restore("/nowhere", fs=disk)


def test_start_mistakes_are_one_clear_line() -> None:
    disk = filled(3)
    cases = {
        "belongs to another cluster": lambda: open_manager(disk, key=OTHER_KEY),
        "was made for 4 partitions, ZooKeeper has 5": lambda: open_manager(disk, num_partitions=5),
        "no such directory": lambda: StorageManager.open(
            "/nowhere", cluster_key=KEY, num_partitions=4, now_ms=now_ms, fs=disk
        ),
    }
    before = disk.files()
    for text, attempt in cases.items():
        error = refusal(attempt)
        assert isinstance(error, StorageStartError)
        assert error.user_error
        assert text in str(error)
        assert "\n" not in str(error)
    disk.read_only = True
    assert "Read-only file system" in str(refusal(lambda: open_manager(disk)))
    disk.read_only = False
    disk.remove(CONTROL)
    assert "holds segment files" in str(refusal(lambda: open_manager(disk)))
    assert CONTROL not in disk.files() or disk.content(CONTROL) == b""
    disk.put(CONTROL, before[CONTROL])
    assert disk.files() == before
    full = empty_disk()
    full.capacity_bytes = 100
    assert "No space left" in str(refusal(lambda: open_manager(full)))
    full.capacity_bytes = None
    open_manager(full).close()


def test_directory_is_locked_by_a_posix_record_lock(tmp_path: Path) -> None:
    """Bytes 0..127 of the control file, as 0.13.2: seen from another process."""
    import subprocess
    import sys

    manager = StorageManager.open(str(tmp_path), cluster_key=KEY, num_partitions=4, now_ms=now_ms)
    script = (
        "import fcntl,sys;f=open(sys.argv[1],'r+b')\n"
        "def t(n,o):\n"
        "  try: fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,n,o); return 'free'\n"
        "  except OSError: return 'held'\n"
        "print(t(1,0),t(1,127),t(1,128))"
    )
    control = str(tmp_path / "waltz-storage.ctl")
    out = subprocess.run([sys.executable, "-c", script, control], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["held", "held", "free"]
    manager.close()
    out = subprocess.run([sys.executable, "-c", script, control], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["free", "free", "free"]


def test_inspect_tells_what_is_there_and_what_is_wrong() -> None:
    disk = filled(20, threshold=700, step=5)
    report = inspect_directory(ROOT, fs=disk)
    assert report.problems == []
    assert report.partitions[0].max_txid == 19
    assert list(iterate_records(ROOT, 0, 17, fs=disk)) == [wire_record(t) for t in (17, 18, 19)]
    disk.flip_bit(segment_path(0, 0), 300)
    assert len(inspect_directory(ROOT, fs=disk).problems) == 2
