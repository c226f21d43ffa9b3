"""What is in the journal and not in the files yet: read, counted, bounded, kept over crashes."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from waltz_storage.engine.errors import DiskFullError
from waltz_storage.engine.free_space import DiskUsage, FreeSpace
from waltz_storage.engine.inspect import inspect_directory
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY
from waltz_storage.engine.journal.filesystem import JournaledFiles
from waltz_storage.engine.journal.log import JournalSettings, read_journal
from waltz_storage.engine.journal.replay import Replay
from waltz_storage.engine.layout import CONTROL_FILE_NAME
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from .support import JOURNAL, ROOT, append, assert_holds, empty_disk, open_manager, refusal, segment_path

PLACE = f"{ROOT}/{JOURNAL_DIRECTORY}"
LARGE = JournalSettings(file_bytes=1 << 20, files=3)


def opened(disk: FaultyDisk, journal: JournalSettings = JOURNAL) -> StorageManager:
    manager = open_manager(disk, journal=journal)
    manager.assign(0)
    manager.commit()
    return manager


def writes_to(disk: FaultyDisk, path: str, start: int) -> int:
    return sum(call[0] in ("pwrite", "pwritev") and call[1] == path for call in disk.calls[start:])


def test_what_many_batches_wrote_is_one_write_and_is_read_before_it() -> None:
    disk = empty_disk()
    manager = opened(disk)
    manager.make()
    start = len(disk.calls)
    for txid in range(10):
        append(manager.get(0), txid, 1)
        manager.commit()
    assert_holds(manager.get(0), 10)
    assert writes_to(disk, segment_path(0, 0), start) == 0
    manager.make()
    assert [writes_to(disk, segment_path(0, 0, kind), start) for kind in (".seg", ".idx")] == [1, 1]
    assert_holds(manager.get(0), 10)
    manager.close()
    plain = open_manager(disk)
    assert_holds(plain.get(0), 10)
    plain.close()


def test_many_small_writes_of_one_file_do_not_wait_without_end() -> None:
    """Whoever reads the file looks through all that wait."""
    disk = empty_disk()
    manager = opened(disk, JournalSettings(file_bytes=4 << 20, files=3))
    manager.make()
    start = len(disk.calls)
    for txid in range(2100):
        append(manager.get(0), txid, 1)
        manager.commit()
        if txid == 2000:
            assert writes_to(disk, segment_path(0, 0), start) == 0
    assert writes_to(disk, segment_path(0, 0), start) == 1
    assert_holds(manager.get(0), 2100)
    manager.close()


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c7_what_is_in_the_journal_only_survives_a_crash(mode: CrashMode) -> None:
    """A cut of records that are not made in their file, and others in their place."""
    disk = empty_disk()
    manager = opened(disk)
    append(manager.get(0), 0, 8)
    manager.commit()
    manager.get(0).truncate(3)
    append(manager.get(0), 4, 3)
    manager.commit()
    assert_holds(manager.get(0), 7)
    disk.restart(mode, random.Random(1))
    again = open_manager(disk)
    assert again.get(0).max_txid == 6
    assert_holds(again.get(0), 7)
    again.close()


def test_so_much_waits_at_most() -> None:
    disk = empty_disk()
    manager = opened(disk, LARGE)
    waited = 0
    for txid in range(40):
        append(manager.get(0), txid, 1, 60_000)
        manager.commit()
        waited = max(waited, manager.room.promised_bytes)
    assert 900_000 < waited < 1 << 20
    assert disk.files()[segment_path(0, 0)]
    manager.close()


def test_files_without_a_user_are_not_kept_open_without_bound() -> None:
    disk = empty_disk()
    files = JournaledFiles(disk, ROOT, FreeSpace())
    files.begin(files.create(PLACE, UUID(int=1), LARGE))
    for number in range(100):
        file = files.open(f"{ROOT}/0-{number}", create=True)
        files.commit()
        shared = files._shared[f"{ROOT}/0-{number}"]
        shared.of_directory = False
        file.pwrite(b"x", 0)
        file.close()
        files.commit()
    assert len(files._shared) <= 64
    files.end()
    assert not files._shared


def test_a_change_of_the_control_file_does_not_wait() -> None:
    """A person whose journal is lost finds out with it which partitions a directory has."""
    disk = empty_disk()
    manager = opened(disk)
    control = disk.files()[f"{ROOT}/{CONTROL_FILE_NAME}"]
    manager.get(0).set_low_water_mark(1, -1)
    manager.commit()
    assert disk.files()[f"{ROOT}/{CONTROL_FILE_NAME}"] != control
    assert not manager.unmade
    manager.close()


def test_safety_c7_a_shorter_write_leaves_what_was_written_behind_it() -> None:
    """In memory, in the file and after a replay: the end of an older write never covers a newer one."""
    disk = empty_disk()
    files = JournaledFiles(disk, ROOT, FreeSpace())
    files.begin(files.create(PLACE, UUID(int=1), JOURNAL))
    file = files.open(f"{ROOT}/x", create=True)
    file.pwrite(b"a" * 100, 0)
    file.pwrite(b"b" * 50, 50)
    file.pwrite(b"c" * 10, 0)
    file.sync()
    files.commit()
    wanted = b"c" * 10 + b"a" * 40 + b"b" * 50
    assert file.pread(100, 0) == wanted
    files.make()
    assert disk.files()[f"{ROOT}/x"] == wanted
    disk.restart(CrashMode.LOSE)
    Replay(disk, ROOT, {}).run(read_journal(disk, PLACE, UUID(int=1), JOURNAL.files))
    assert disk.files()[f"{ROOT}/x"] == wanted


def test_safety_c7_a_cut_leaves_what_waits_before_it() -> None:
    disk = empty_disk()
    files = JournaledFiles(disk, ROOT, FreeSpace())
    files.begin(files.create(PLACE, UUID(int=1), JOURNAL))
    file = files.open(f"{ROOT}/x", create=True)
    for offset in (0, 200, 100):
        file.pwrite(b"a" * 100, offset)
    file.sync()
    files._make_soon = False
    files.commit()
    file.truncate(150)
    file.pwrite(b"b" * 60, 200)
    file.sync()
    files.commit()
    files.make()
    assert disk.files()[f"{ROOT}/x"] == b"a" * 150 + bytes(50) + b"b" * 60


def test_a_cut_of_what_waits_does_not_lengthen_the_file_below() -> None:
    """Tools look at the files of a node that runs: zeros in place of acknowledged records are damage."""
    disk = empty_disk()
    manager = opened(disk, LARGE)
    manager.get(0).set_low_water_mark(1, -1)
    manager.commit()
    append(manager.get(0), 0, 100)
    manager.commit()
    size = len(disk.files()[segment_path(0, 0)])
    manager.get(0).truncate(97)
    manager.commit()
    assert len(disk.files()[segment_path(0, 0)]) == size, "nothing has been written below yet"
    assert inspect_directory(ROOT, fs=disk).problems == []
    assert_holds(manager.get(0), 98)
    append(manager.get(0), 98, 2)
    manager.commit()
    disk.restart(CrashMode.LOSE)
    again = open_manager(disk)
    assert_holds(again.get(0), 100)
    again.close()


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ([], 50),
        ([(0, 20)], 50),
        ([(0, 20), (80, 20)], 50),
        ([(0, 100)], 50),
        ([(0, 40), (40, 40)], 40),
        ([(40, 40), (0, 60)], 50),
    ],
)
def test_safety_c7_a_cut_gives_the_size_that_was_asked_for(written: list[tuple[int, int]], size: int) -> None:
    """In memory, in the file and after a replay, also where nothing that waits reaches up to it."""
    disk = empty_disk()
    files = JournaledFiles(disk, ROOT, FreeSpace())
    files.begin(files.create(PLACE, UUID(int=1), JOURNAL))
    file = files.open(f"{ROOT}/x", create=True)
    files._shared[f"{ROOT}/x"].of_directory = False
    wanted = bytearray(100)
    for offset, count in written:
        file.pwrite(b"a" * count, offset)
        wanted[offset : offset + count] = b"a" * count
    file.sync()
    files._make_soon = False
    files.commit()
    file.truncate(size)
    file.sync()
    files.commit()
    assert file.size() == size
    assert file.pread(100, 0).ljust(size, b"\0") == wanted[:size]
    files.make()
    assert disk.files()[f"{ROOT}/x"] == wanted[:size]
    disk.restart(CrashMode.LOSE)
    Replay(disk, ROOT, {}).run(read_journal(disk, PLACE, UUID(int=1), JOURNAL.files))
    assert disk.files()[f"{ROOT}/x"] == wanted[:size]


def test_what_waits_is_counted_as_taken() -> None:
    """An append is refused while there is still space for what was acknowledged before it."""
    free, disk = [50_000], empty_disk()
    room = FreeSpace(lambda: DiskUsage(1 << 20, free[0]), 10_000)
    manager = open_manager(disk, journal=LARGE)
    manager.assign(0)
    manager.commit()
    manager.make()
    manager.room = manager.files._room = room  # type: ignore[union-attr]
    partition = manager.get(0)
    partition._room = room
    append(partition, 0, 1, 30_000)
    manager.commit()
    assert isinstance(refusal(lambda: append(partition, 1, 1, 15_000)), DiskFullError)
    manager.make()
    free[0] -= 30_000
    assert isinstance(refusal(lambda: append(partition, 1, 1, 15_000)), DiskFullError)
    manager.close()


def test_safety_c7_a_partition_is_reported_after_the_commit_of_its_assignment() -> None:
    manager = opened(empty_disk())
    manager.assign(1)
    assert manager.status() == {0: True}
    manager.commit([1])
    assert manager.status() == {0: True, 1: True}
    manager.close()


def test_a_node_that_holds_what_finds_no_space_is_not_available() -> None:
    """Every append is refused, so nobody may count on the copy for appends."""
    disk = empty_disk()
    manager = opened(disk, LARGE)
    manager.make()
    append(manager.get(0), 0, 10)
    manager.commit()
    assert manager.status() == {0: True}
    disk.capacity_bytes = disk.used_bytes() + 20
    manager.make()
    assert manager.room.full is None
    assert isinstance(refusal(lambda: append(manager.get(0), 10)), DiskFullError)
    assert manager.status() == {0: False}
    disk.capacity_bytes = None
    manager.make()
    append(manager.get(0), 10)
    assert manager.status() == {0: True}
    manager.close()


def test_within_a_batch_the_disk_is_looked_at_once() -> None:
    looks = 0

    def look() -> DiskUsage:
        nonlocal looks
        looks += 1
        return DiskUsage(1 << 20, 20_000)

    room = FreeSpace(look, 10_000)
    room.batch_begins()
    for _ in range(9):
        room.take(1_000)
    room.take(1_000)
    assert looks == 1
    with pytest.raises(DiskFullError):
        room.take(1)
    room.refresh()  # who looks beside the batch sees the disk
    assert looks == 2
    room.batch_ends()
    room.refresh()
    assert looks == 3
