"""A moment without file descriptors: what needs one is refused and works later; no partition leaves
service."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from waltz_storage.engine.errors import OutOfResourcesError, StorageError, StorageStartError
from waltz_storage.engine.files import OsFileSystem
from waltz_storage.engine.partition import EngineSettings, Partition
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk, FaultyFile

from .support import KEY, ROOT, append, assert_holds, now_ms, open_manager, segment_path

CODES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]


def without_directories(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    real = os.open

    def no_directory(name: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(code, os.strerror(code), name)
        return real(name, flags, mode)

    monkeypatch.setattr(os, "open", no_directory)


@pytest.mark.parametrize("code", CODES)
def test_a_directory_that_cannot_be_opened_now_was_not_synced_and_did_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with StorageOn(tmp_path) as manager:
        partition = manager.assign(0)
        append(partition, 0, 8)
        with monkeypatch.context() as scarce:
            without_directories(scarce, code)
            with pytest.raises(OutOfResourcesError, match=str(tmp_path / "0")):
                append(partition, 8, 20)
            assert (partition.failed, partition.max_txid) == (None, 7)
            with pytest.raises(OutOfResourcesError):
                manager.assign(1)
        append(partition, 8, 20)
        with monkeypatch.context() as scarce:
            without_directories(scarce, code)
            with pytest.raises(OutOfResourcesError):
                partition.truncate(3)
            assert partition.failed is None
        assert partition.truncate(3) == 3
        append(partition, 4, 20)
        assert manager.problems() == {}
    with StorageOn(tmp_path) as manager:
        assert manager.damaged == {}
        assert_holds(manager.get(0), 24)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("missing", [".seg", ".idx", "waltz-fence", "/1"])
def test_a_partition_that_found_no_descriptor_at_the_start_is_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, missing: str
) -> None:
    """It stayed damaged until the node was restarted."""
    with StorageOn(tmp_path) as manager:
        for partition_id in (0, 1):
            append(manager.assign(partition_id), 0, 8)
            manager.get(partition_id).raise_fence(1)
    real = os.open

    def scarce(name: str, flags: int, mode: int = 0o777) -> int:
        if name.startswith(str(tmp_path / "1")) and name.endswith(missing):
            raise OSError(code, os.strerror(code), name)
        return real(name, flags, mode)

    with monkeypatch.context() as at_the_start:
        at_the_start.setattr(os, "open", scarce)
        manager = StorageOn(tmp_path).__enter__()
        assert (set(manager.partitions), set(manager.damaged)) == ({0}, {1})
        assert os.strerror(code) in manager.damaged[1]
        assert manager.reopen(1) is False
    assert manager.reopen(1) is True
    assert manager.problems() == {}
    assert_holds(manager.get(1), 8)
    manager.close()


def test_safety_c3_a_sync_that_failed_at_the_start_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its error says that bytes may be lost, also where it is a lack of memory."""
    disk = FaultyDisk()
    disk.add_dir(ROOT)
    manager = open_manager(disk)
    append(manager.assign(0), 0, 8)
    manager.close()
    sync = FaultyFile.sync

    def out_of_memory(file: FaultyFile) -> None:
        if "/0/" in file.path:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        sync(file)

    with monkeypatch.context() as at_the_start:
        at_the_start.setattr(FaultyFile, "sync", out_of_memory)
        manager = open_manager(disk)
    assert set(manager.damaged) == {0}
    assert manager.reopen(0) is False
    manager.close()


@pytest.mark.parametrize("removed", [False, True])
def test_an_append_that_was_refused_half_way_is_gone_after_an_orderly_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    with StorageOn(tmp_path) as manager:
        partition = manager.assign(0)
        append(partition, 0, 1)
        with monkeypatch.context() as scarce:
            without_directories(scarce, errno.EMFILE)
            with pytest.raises(OutOfResourcesError):
                append(partition, 1, 20)
        assert (partition.unfinished, partition.max_txid) == (True, 0)
        if removed:
            manager.unassign(0, delete_files=False)
            assert manager.assign(0).max_txid == 0
    with StorageOn(tmp_path) as manager:
        assert manager.get(0).max_txid == 0


def test_a_sync_of_a_directory_that_fails_is_still_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOMEM of the sync itself says that bytes may be lost, that of the opening does not."""
    with StorageOn(tmp_path) as manager:
        partition = manager.assign(0)
        append(partition, 0, 8)

        def no_sync(_fd: int) -> None:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

        monkeypatch.setattr(os, "fsync", no_sync)
        assert refused(lambda: append(partition, 8, 20))
        assert partition.failed is not None
        monkeypatch.undo()


def test_a_directory_of_another_kind_of_trouble_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OsFileSystem().sync_dir(str(tmp_path / "missing"))


def test_a_start_without_descriptors_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StorageOn(tmp_path) as manager:
        manager.assign(0)
    without_directories(monkeypatch, errno.EMFILE)
    for action in (lambda: StorageOn(tmp_path).__enter__(), lambda: reset_for_restore(str(tmp_path))):
        with pytest.raises(StorageStartError, match="Too many open files"):
            action()


class StorageOn:
    """A manager of a real directory with small segments; read-only ones are closed at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> StorageManager:
        self._manager = StorageManager.open(
            str(self._directory),
            cluster_key=KEY,
            num_partitions=4,
            now_ms=now_ms,
            settings=EngineSettings(600, 0),
        )
        return self._manager

    def __exit__(self, *_details: object) -> None:
        self._manager.close()


class Scarce(FaultyDisk):
    """A disk below a process that finds no descriptor from a chosen moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.add_dir(ROOT)
        self.taken = 0
        self.none_from: int | None = None
        self.writes_back_names = False  # once, when it was not asked to: as the kernel does after a while

    def _take(self, path: str) -> None:
        self.taken += 1
        if self.none_from is not None and self.taken > self.none_from:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        self._take(path)
        return super().open(path, create=create, read_only=read_only)

    def sync_dir(self, path: str) -> None:
        try:
            self._take(path)
        except OSError as error:
            if self.writes_back_names:
                self.writes_back_names = False
                super().sync_dir(path)
            raise OutOfResourcesError(str(error)) from error
        super().sync_dir(path)


def refused(action: Callable[[], object]) -> StorageError | None:
    try:
        action()
    except StorageError as error:
        return error
    return None


STEPS: list[tuple[str, Callable[[Partition], object], int]] = [
    ("several segments in one job", lambda p: append(p, 8, 24), 32),
    ("cut inside an older segment", lambda p: p.truncate(11), 12),
    ("append where it was cut", lambda p: append(p, 12, 20, 40), 32),
    ("cut at the end of an older segment", lambda p: p.truncate(23), 24),
    ("a session begins", lambda p: p.set_low_water_mark(7, 23), 24),
    ("one more where it was cut", lambda p: append(p, 24, 1), 25),
]


def at_step(number: int) -> tuple[Scarce, StorageManager, Partition, int]:
    disk = Scarce()
    manager = open_manager(disk, threshold=600, cache=0)
    partition = manager.assign(0)
    append(partition, 0, 8)
    count = 8
    for _, action, after in STEPS[:number]:
        action(partition)
        count = after
    return disk, manager, partition, count


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[name for name, _, _ in STEPS])
def test_safety_c5_running_out_of_descriptors_anywhere_loses_nothing_and_needs_no_restart(
    number: int,
) -> None:
    _, action, after = STEPS[number]
    for none_from in range(200):
        disk, manager, partition, _ = at_step(number)
        disk.none_from = disk.taken + none_from
        error = refused(lambda p=partition: action(p))  # type: ignore[misc]
        disk.none_from = None
        if error is not None:
            assert isinstance(error, OutOfResourcesError), error
            assert partition.failed is None
            # Whatever is asked next, what was half done is finished first.
            assert refused(lambda p=partition: p.set_low_water_mark(7, p.max_txid)) is None  # type: ignore[misc]
            action(partition)
        assert partition.max_txid == after - 1
        manager.close()
        manager = open_manager(disk, threshold=600, cache=0)
        assert manager.damaged == {}
        assert manager.get(0).max_txid == after - 1
        assert_holds(manager.get(0), after)
        manager.close()
        if error is None:
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("none_from", range(6))
@pytest.mark.parametrize("mode", CrashMode)
def test_safety_c4_a_roll_taken_back_does_not_come_back_behind_a_shorter_log(
    mode: CrashMode, none_from: int
) -> None:
    """The names of the refused segment may be on the disk although they were taken away again."""
    for seed in range(8):
        disk, manager, partition, _ = at_step(0)
        append(partition, 8, 4)
        disk.none_from, disk.writes_back_names = disk.taken + none_from, True
        refused(lambda p=partition: append(p, 12))  # type: ignore[misc]
        disk.none_from = None
        assert partition.truncate(9) == 9  # within the segment before
        disk.restart(mode, random.Random(seed))
        manager = open_manager(disk, threshold=600, cache=0)
        assert manager.damaged == {}
        assert_holds(manager.get(0), 10)
        assert manager.get(0).max_txid == 9
        manager.close()


@pytest.mark.parametrize("mode", CrashMode)
@pytest.mark.parametrize("number", range(len(STEPS)), ids=[name for name, _, _ in STEPS])
def test_safety_c5_a_crash_after_running_out_of_descriptors_opens(number: int, mode: CrashMode) -> None:
    _, action, after = STEPS[number]
    for none_from in range(200):
        disk, manager, partition, before = at_step(number)
        disk.none_from = disk.taken + none_from
        error = refused(lambda p=partition: action(p))  # type: ignore[misc]
        disk.none_from = None
        disk.restart(mode)
        manager = open_manager(disk, threshold=600, cache=0)
        assert manager.damaged == {}
        kept = manager.get(0).max_txid + 1
        assert min(before, after) <= kept <= max(before, after)
        assert_holds(manager.get(0), kept)
        manager.close()
        if error is None:
            assert kept == after
            return
    raise AssertionError("it never ended")


def test_the_files_of_a_refused_roll_are_gone() -> None:
    disk, manager, partition, _ = at_step(0)
    append(partition, 8, 4)
    disk.none_from = disk.taken + 2  # both files, not the directory; and none for cleaning up
    assert isinstance(refused(lambda: append(partition, 12)), OutOfResourcesError)
    disk.none_from = None
    assert segment_path(0, 6) in disk.files()
    assert segment_path(0, 12) not in disk.files()
    assert segment_path(0, 12, ".idx") not in disk.files()
    manager.close()
