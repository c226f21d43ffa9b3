"""Files that were changed below the journal and are closed: the kernel reports what it could not write only
to descriptors that were open at the time."""

from __future__ import annotations

import errno
import os
from uuid import UUID

import pytest

from waltz_storage.engine.errors import PartitionFailedError
from waltz_storage.engine.files import FileSystem
from waltz_storage.engine.free_space import FreeSpace
from waltz_storage.engine.journal import replay
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY
from waltz_storage.engine.journal.filesystem import JournaledFiles
from waltz_storage.engine.journal.layout import Change, Create, Name, Unlink, Write
from waltz_storage.engine.journal.replay import Replay
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk, FaultyFile

from .support import JOURNAL, ROOT, append, assert_holds, empty_disk, open_manager, segment_path

PLACE = f"{ROOT}/{JOURNAL_DIRECTORY}"


def journaled(disk: FileSystem) -> JournaledFiles:
    files = JournaledFiles(disk, ROOT, FreeSpace())
    files.begin(files.create(PLACE, UUID(int=1), JOURNAL))
    return files


def written(files: JournaledFiles, path: str, data: bytes = b"x" * 100) -> None:
    """Written, closed, durable in the journal, and made below without a sync."""
    file = files.open(path, create=True)
    file.pwrite(data, 0)
    file.sync()
    file.close()
    files.commit()
    files.make()


def fill_a_file(files: JournaledFiles) -> None:
    """Of the journal."""
    other = files.open(f"{ROOT}/other", create=True)
    active = files._running().active
    while files._running().active is active:
        other.pwrite(b"y" * 1000, 0)
        other.sync()
        files.commit()
    files.make()


def rolled(disk: FaultyDisk) -> tuple[StorageManager, int]:
    """A node that keeps no full segment open, with three of them, and how many records these hold."""
    manager = open_manager(disk, threshold=2_000, cache=0, journal=JOURNAL)
    manager.assign(0)
    manager.commit()
    partition, count = manager.get(0), 0
    while partition.num_segments < 3:
        append(partition, count, 4, 200)
        manager.commit()
        count += 4
    manager.make()
    partition.read(0, 1, 1 << 20)  # opens the first one, and closes it
    return manager, count


def syncs(disk: FaultyDisk, path: str) -> int:
    return disk.calls.count(("sync", path))


def test_safety_c7_a_write_that_failed_in_the_background_ends_the_journal_though_the_file_was_closed() -> (
    None
):
    disk = empty_disk()
    manager, count = rolled(disk)
    files = manager.files
    assert files is not None
    disk.fail_write_back(segment_path(0, 0))
    turn = 0
    while not manager.settle_due:
        manager.set_available(1, turn % 2 == 0)
        manager.commit()
        turn += 1
    assert not manager.settle()
    assert "Input/output error" in str(files.failed)
    with pytest.raises(PartitionFailedError):
        append(manager.get(0), count, 1, 200)
    manager.close()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert manager.damaged == {}
    assert_holds(manager.get(0), count, 200)
    manager.close()


def test_safety_c7_an_end_in_order_hears_of_a_write_that_failed_in_the_background() -> None:
    disk = empty_disk()
    manager, count = rolled(disk)
    disk.fail_write_back(segment_path(0, 0))
    manager.close()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert_holds(manager.get(0), count, 200)
    manager.close()


def test_a_file_is_closed_when_its_journal_file_is_settled_and_synced_once() -> None:
    disk = empty_disk()
    files = journaled(disk)
    written(files, f"{ROOT}/a")
    assert syncs(disk, f"{ROOT}/a") == 0
    fill_a_file(files)
    assert files.settle()
    assert (syncs(disk, f"{ROOT}/a"), f"{ROOT}/a" in files._shared) == (1, False)
    file = files.open(f"{ROOT}/a")
    file.close()  # nothing was written
    assert (syncs(disk, f"{ROOT}/a"), f"{ROOT}/a" in files._shared) == (1, False)
    files.end()
    assert syncs(disk, f"{ROOT}/a") == 1


def test_a_deleted_file_is_closed_without_a_sync() -> None:
    disk = empty_disk()
    files = journaled(disk)
    written(files, f"{ROOT}/a")
    file = files.open(f"{ROOT}/a")
    files.unlink(f"{ROOT}/a")
    file.close()
    assert not files._shared
    assert not files._unsynced
    assert syncs(disk, f"{ROOT}/a") == 0
    fill_a_file(files)
    assert files.settle()
    files.end()


def test_files_that_wait_for_a_sync_are_closed_beside_the_jobs() -> None:
    disk = empty_disk()
    files = journaled(disk)
    number = 0
    while not files.settle_due():
        written(files, f"{ROOT}/{number}")
        number += 1
    assert number == 32
    assert len(files._shared) == 32
    assert not files.settle()  # no file of the journal was full
    assert (files._shared, files.settle_due()) == ({}, False)
    assert all(syncs(disk, f"{ROOT}/{one}") == 1 for one in range(number))
    files.end()


def test_files_that_wait_for_a_sync_are_bounded_where_nobody_settles() -> None:
    disk = empty_disk()
    files = journaled(disk)
    for number in range(200):
        file = files.open(f"{ROOT}/0-{number}", create=True)
        files._shared[f"{ROOT}/0-{number}"].of_directory = False
        file.pwrite(b"x", 0)
        file.close()
        files.commit()
        assert len(files._shared) <= 64 + 64
    disk.fail_sync = f"{ROOT}/0-"
    with pytest.raises(OSError, match="journal of this node failed"):
        for number in range(200, 500):
            written(files, f"{ROOT}/0-{number}")


def test_safety_c7_a_file_that_a_job_wrote_to_meanwhile_is_not_closed_before_its_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Settling was the last that used it, and before it closes it a job opens, writes and closes it."""
    disk = empty_disk()
    files = journaled(disk)
    written(files, f"{ROOT}/a")
    fill_a_file(files)
    drop = files._drop

    def a_job_was_faster(shared: object) -> None:
        monkeypatch.undo()
        written(files, f"{ROOT}/a", b"z" * 100)
        drop(shared)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "_drop", a_job_was_faster)
    assert files.settle()
    assert f"{ROOT}/a" in files._shared
    disk.fail_write_back(f"{ROOT}/a")
    fill_a_file(files)
    assert not files.settle()


def test_safety_c7_what_is_written_during_a_sync_needs_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = empty_disk()
    files = journaled(disk)
    written(files, f"{ROOT}/a")
    fill_a_file(files)
    sync = FaultyFile.sync

    def a_job_was_faster(file: FaultyFile) -> None:
        sync(file)
        if file.path == f"{ROOT}/a":
            monkeypatch.undo()
            written(files, f"{ROOT}/a", b"z" * 100)

    monkeypatch.setattr(FaultyFile, "sync", a_job_was_faster)
    assert files.settle()
    disk.fail_write_back(f"{ROOT}/a")
    fill_a_file(files)
    assert not files.settle()


def test_safety_c7_a_sync_without_memory_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a sync is about what was written, whatever its number."""
    disk = empty_disk()
    files = journaled(disk)
    written(files, f"{ROOT}/a")
    fill_a_file(files)
    sync = FaultyFile.sync

    def out_of_memory(file: FaultyFile) -> None:
        if file.path == f"{ROOT}/a":
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        sync(file)

    monkeypatch.setattr(FaultyFile, "sync", out_of_memory)
    assert not files.settle()
    monkeypatch.undo()
    assert "memory" in str(files.failed)
    assert not files.settle()
    with pytest.raises(OSError, match="memory"):
        files.end()


def test_safety_c7_a_close_that_fails_ends_the_journal_and_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS and FUSE it may be the first that says what was lost."""
    disk = empty_disk()
    manager, count = rolled(disk)
    files, close = manager.files, FaultyFile.close
    assert files is not None
    files._close_unsynced()

    def failing(file: FaultyFile, owner: object = None) -> None:
        close(file, owner)
        if file.path == segment_path(0, 0):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(FaultyFile, "close", failing)
    assert manager.get(0).read(0, 1, 1 << 20)
    monkeypatch.undo()
    assert "Input/output error" in str(files.failed)
    manager.commit()
    assert "Input/output error" in str(manager.get(0).failed)
    manager.close()
    manager = open_manager(disk)
    assert_holds(manager.get(0), count, 200)
    manager.close()


@pytest.mark.parametrize("round_bytes", [1, 1 << 30])
def test_safety_c7_a_replay_keeps_nothing_that_a_new_file_held_before(
    monkeypatch: pytest.MonkeyPatch, round_bytes: int
) -> None:
    """What was never synced, or what a file of the same name had that was deleted before."""
    monkeypatch.setattr(replay, "_ROUND_BYTES", round_bytes)
    disk = empty_disk()
    for name in ("empty", "short", "twice"):
        disk.put(f"{ROOT}/{name}", b"old" * 10)
    changes: list[Change] = [Name(0, "empty"), Create(0), Name(1, "short"), Create(1), Write(1, 0, b"new")]
    changes += [
        Name(2, "twice"),
        Create(2),
        Write(2, 0, b"long ago"),
        Unlink(2),
        Create(2),
        Write(2, 0, b"new"),
    ]
    Replay(disk, ROOT, {}).run(changes)
    disk.restart(CrashMode.LOSE)
    assert disk.files() == {f"{ROOT}/empty": b"", f"{ROOT}/short": b"new", f"{ROOT}/twice": b"new"}


@pytest.mark.parametrize("round_bytes", [1, 10_000, 1 << 30])
def test_safety_c7_a_replay_closes_nothing_that_it_has_not_synced(
    monkeypatch: pytest.MonkeyPatch, round_bytes: int
) -> None:
    """More files than a process may have open, each changed twice."""
    disk, close, open_below = empty_disk(), FaultyFile.close, FaultyDisk.open
    handles: set[FaultyFile] = set()
    most = 0

    def opened(self: FaultyDisk, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        nonlocal most
        file = open_below(self, path, create=create, read_only=read_only)
        handles.add(file)
        most = max(most, len(handles))
        return file

    def failing(file: FaultyFile, owner: object = None) -> None:
        if file.pending:
            disk.fail_write_back(file.path)
        handles.discard(file)
        close(file, owner)

    monkeypatch.setattr(FaultyDisk, "open", opened)
    monkeypatch.setattr(FaultyFile, "close", failing)
    monkeypatch.setattr(replay, "_ROUND_BYTES", round_bytes)
    numbers = range(200)
    changes: list[Change] = [Name(number, f"{number}") for number in numbers]
    changes += [Create(number) for number in numbers]
    changes += [Write(number, 0, b"a" * 100) for number in numbers]
    changes += [Write(number, 50, b"b" * 100) for number in numbers]
    Replay(disk, ROOT, {}).run(changes)
    assert (handles, most) == (set(), 1)
    disk.restart(CrashMode.LOSE)
    assert disk.files() == {f"{ROOT}/{number}": b"a" * 50 + b"b" * 100 for number in numbers}


@pytest.mark.parametrize("made", [True, False])
def test_safety_c7_a_file_that_was_put_in_the_place_of_one_that_is_kept_open_is_the_one_that_is_written(
    made: bool,
) -> None:
    """An administrator moves the directory of a copy that the node does not have now, and gives it back."""
    disk = empty_disk()
    files = journaled(disk)
    path = f"{ROOT}/a"
    written(files, path)
    if not made:  # some of it waits in memory
        file = files.open(path)
        file.pwrite(b"later", 100)
        file.sync()
        file.close()
        files.commit()
    assert path in files._shared
    content = disk.content(path)
    disk.unlink(path)
    disk.open(path, create=True).pwrite(content, 0)
    file = files.open(path)
    file.pwrite(b"acknowledged", 105)
    file.sync()
    file.close()
    files.commit()
    files.end()
    assert disk.content(path)[105:] == b"acknowledged"
    assert disk.content(path)[100:105] == (bytes(5) if made else b"later")


def test_a_file_that_is_made_again_where_one_is_kept_open_is_empty() -> None:
    disk = empty_disk()
    files = journaled(disk)
    path = f"{ROOT}/a"
    written(files, path)
    file = files.open(path)
    file.pwrite(b"not made yet", 0)
    file.sync()
    file.close()
    files.commit()
    disk.unlink(path)
    file = files.open(path, create=True)
    assert file.size() == 0
    file.pwrite(b"new", 0)
    file.sync()
    file.close()
    files.commit()
    files.end()
    assert disk.content(path) == b"new"


def test_a_file_that_somebody_has_open_stays_the_same() -> None:
    disk = empty_disk()
    files = journaled(disk)
    path = f"{ROOT}/a"
    written(files, path)
    first = files.open(path)
    disk.unlink(path)
    disk.open(path, create=True)
    second = files.open(path)
    assert second.size() == first.size() == 100
    first.close()
    second.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_files_that_wait_for_a_sync_give_their_descriptors_to_one_that_is_opened(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    disk = empty_disk()
    files = journaled(disk)
    for number in range(3):
        written(files, f"{ROOT}/{number}")
    open_below = FaultyDisk.open

    def scarce(self: FaultyDisk, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        if files._unsynced:
            raise OSError(code, os.strerror(code), path)
        return open_below(self, path, create=create, read_only=read_only)

    monkeypatch.setattr(FaultyDisk, "open", scarce)
    files.open(f"{ROOT}/new", create=True).close()
    assert all(syncs(disk, f"{ROOT}/{number}") == 1 for number in range(3))
