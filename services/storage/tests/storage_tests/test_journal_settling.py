"""Settling a file of the journal on a thread of its own, beside what the thread of the jobs does."""

from __future__ import annotations

from uuid import UUID

import pytest

from waltz_storage.engine.errors import PartitionFailedError
from waltz_storage.engine.free_space import FreeSpace
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY
from waltz_storage.engine.journal.filesystem import JournaledFiles
from waltz_storage.engine.journal.log import Journal, JournalFile
from waltz_storage.engine.journal.shared_file import SharedFile
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk, FaultyFile

from .support import JOURNAL, ROOT, append, assert_holds, empty_disk, open_manager, segment_path

PLACE = f"{ROOT}/{JOURNAL_DIRECTORY}"


def test_safety_c7_a_sync_that_fails_while_a_commit_waits_for_a_file_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the thread that settles, after the commit has begun: the next sync of that file would say that all
    is well, and the only good copy of what was acknowledged would be overwritten."""
    disk = empty_disk()
    manager = open_manager(disk, threshold=1_000_000, journal=JOURNAL)
    manager.assign(0)
    manager.commit()
    partition, files, number = manager.get(0), manager.files, 0
    assert files is not None
    wait = JournaledFiles._wait_for_file

    def settle_and_wait(waiting: JournaledFiles) -> None:
        if files.failed is None:
            disk.fail_sync_once = segment_path(0, 0)
            assert not waiting.settle()
        wait(waiting)

    assert files._journal is not None
    files._journal.wait_for_file = lambda: settle_and_wait(files)
    with pytest.raises(PartitionFailedError):
        while number < 1_000:
            append(partition, number, 1)
            manager.commit()
            number += 1
    assert number < 1_000
    manager.close()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk, journal=JOURNAL)
    assert_holds(manager.get(0), number)
    manager.close()


def test_safety_c7_a_file_is_not_closed_over_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settling is the last that uses a file, and before it closes it a job opens, writes and closes it."""
    disk = empty_disk()
    files = JournaledFiles(disk, ROOT, FreeSpace())
    files.begin(files.create(PLACE, UUID(int=1), JOURNAL))
    file = files.open(f"{ROOT}/x", create=True)
    while not files.settle_due():
        file.pwrite(b"x" * 1000, 0)
        file.sync()
        files.commit()
    sync, drop = FaultyFile.sync, files._drop

    def last_user(below: FaultyFile) -> None:
        file.close()
        sync(below)

    def a_job_was_faster(shared: SharedFile) -> None:
        monkeypatch.undo()
        again = files.open(f"{ROOT}/x")
        again.pwrite(b"y" * 1000, 0)
        again.close()
        drop(shared)

    monkeypatch.setattr(FaultyFile, "sync", last_user)
    monkeypatch.setattr(files, "_drop", a_job_was_faster)
    assert files.settle()
    assert files.open(f"{ROOT}/x").pread(1000, 0) == b"y" * 1000
    files.commit()
    files.make()
    assert disk.files()[f"{ROOT}/x"] == b"y" * 1000


def test_safety_c7_a_file_that_is_being_taken_into_use_is_never_ready_to_be_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the thread that settles sees of it, after each change of the journal or of the file. Settled
    by the marks of its last life, it would be used again with what nothing else holds."""
    disk = empty_disk()
    files = JournaledFiles(disk, ROOT, FreeSpace())
    journal = files.create(PLACE, UUID(int=1), JOURNAL)
    using: list[JournalFile] = []
    seen: list[JournalFile] = []

    def look() -> None:
        seen.extend(file for file in journal.unsettled() if file.made and file in using)

    class WatchedFile(JournalFile):
        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            look()

    class WatchedJournal(Journal):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            look()

    use = Journal._use

    def watched(self: Journal, file: JournalFile) -> None:
        using.append(file)
        use(self, file)
        using.clear()

    monkeypatch.setattr(Journal, "_use", watched)
    files.begin(journal)
    for one in journal.files:
        one.__class__ = WatchedFile
    journal.__class__ = WatchedJournal
    file = files.open(f"{ROOT}/x", create=True)
    while journal.active.epoch < 6:
        file.pwrite(b"x" * 1000, 0)
        file.sync()
        files.commit()
        files.settle()
    assert seen == []


@pytest.mark.parametrize("failing", ["waltz-journal", f"{ROOT}/0/", "storage.ctl", "no space"])
def test_a_node_whose_journal_failed_closes_all_of_its_files(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The lock of the directory goes with the control file: whoever opens the directory after that in the
    same process finds it free."""
    disk, handles = empty_disk(), set[FaultyFile]()
    open_below, close_below = FaultyDisk.open, FaultyFile.close

    def opened(self: FaultyDisk, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        file = open_below(self, path, create=create, read_only=read_only)
        handles.add(file)
        return file

    def closed(self: FaultyFile, owner: object = None) -> None:
        handles.discard(self)
        close_below(self, owner)

    monkeypatch.setattr(FaultyDisk, "open", opened)
    monkeypatch.setattr(FaultyFile, "close", closed)
    manager = open_manager(disk, journal=JOURNAL)
    for partition_id in (0, 1):
        manager.assign(partition_id)
    manager.commit()
    manager.make()
    append(manager.get(0), 0, 5)
    manager.commit()
    for partition_id in (0, 1):
        manager.get(partition_id).raise_fence(2)
        manager.get(partition_id).set_low_water_mark(2, 4)
        append(manager.get(partition_id), manager.get(partition_id).max_txid + 1, 3)
    disk.fail_sync = failing
    if failing == "no space":
        manager.commit()
        append(manager.get(1), manager.get(1).max_txid + 1, 5)
        disk.capacity_bytes = disk.used_bytes()
    if failing == "waltz-journal":
        with pytest.raises(PartitionFailedError):
            manager.commit()
    else:
        manager.commit()
    manager.close()
    disk.fail_sync = disk.capacity_bytes = None
    assert sorted(file.path for file in handles) == []
    again = open_manager(disk)
    assert_holds(again.get(0), 5)
    again.close()
    assert not handles
