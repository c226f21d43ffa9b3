"""A storage directory with a journal: failures, full disks, lost journals, and what release 0.13.2 finds
after it."""

from __future__ import annotations

import contextlib
import errno
import random
from uuid import UUID

import pytest

from waltz_storage.engine import layout
from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import (
    DiskFullError,
    OutOfResourcesError,
    PartitionFailedError,
    StorageError,
    StorageStartError,
)
from waltz_storage.engine.free_space import FreeSpace
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY, dependence
from waltz_storage.engine.journal.filesystem import JournaledFiles
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.layout import SIDECAR_NAME
from waltz_storage.engine.sidecar import Sidecar
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk, FaultyFile

from .support import (
    JOURNAL,
    KEY,
    ROOT,
    append,
    assert_holds,
    empty_disk,
    open_manager,
    refusal,
    segment_path,
)

PLACE = f"{ROOT}/{JOURNAL_DIRECTORY}"


def opened(disk: FaultyDisk, *, threshold: int = 700) -> StorageManager:
    manager = open_manager(disk, threshold=threshold, journal=JOURNAL)
    for partition_id in (0, 2):
        manager.assign(partition_id)
    manager.commit()
    return manager


def work(manager: StorageManager, rounds: int = 6) -> None:
    """Everything that changes files, with commits in between."""
    for partition_id in (0, 2):
        partition = manager.get(partition_id)
        partition.raise_fence(1)
        partition.set_low_water_mark(1, -1)
        for number in range(rounds):
            append(partition, number * 4, 4, 100)
            manager.commit()
        partition.truncate(rounds * 4 - 4)
        append(partition, rounds * 4 - 3, 5, 100)
        manager.commit()
        manager.set_available(partition_id, False)


def test_after_an_orderly_end_the_directory_is_that_of_a_node_without_a_journal() -> None:
    with_journal, without = empty_disk(), empty_disk()
    manager = opened(with_journal)
    work(manager)
    manager.close()
    plain = open_manager(without, threshold=700)
    for partition_id in (0, 2):
        plain.assign(partition_id)
    work(plain)
    plain.close()
    ours = {name: raw for name, raw in with_journal.files().items() if not name.startswith(PLACE)}
    expected = without.files()
    for partition_id in (0, 2):  # the mark was written less often, which its counter shows
        side_file = f"{ROOT}/{partition_id}/{SIDECAR_NAME}"
        assert _said(with_journal, partition_id) == _said(without, partition_id)
        del ours[side_file], expected[side_file]
    assert ours == expected


def _said(disk: FaultyDisk, partition_id: int) -> tuple[int, bool, int]:
    """Fence, witness and mark of a side file."""
    sidecar = Sidecar.open(disk, f"{ROOT}/{partition_id}", partition_id)
    with contextlib.closing(ControlFile.open_existing(disk, ROOT)) as control:
        info = control.info(partition_id)
    return sidecar.fence_session_id, sidecar.witnessed, sidecar.synced_txid(info.session_id, info.sequence)


def test_safety_c7_while_it_runs_and_after_a_crash_no_other_release_opens_the_directory() -> None:
    disk = empty_disk()
    manager = opened(disk)
    work(manager)
    for _ in range(2):
        header = disk.files()[f"{ROOT}/{layout.CONTROL_FILE_NAME}"][: layout.HEADER_SIZE]
        assert header[12:28] != KEY.bytes, "0.13.2 compares the key"
        assert header[:4] != bytes(4), "earlier releases of ours compare the version"
        found = dependence(header)
        assert found is not None
        assert found.plain.cluster_key == KEY
        disk.restart(CrashMode.LOSE)


@pytest.mark.parametrize("journal", [True, False])
def test_safety_c7_a_crashed_directory_without_its_journal_is_refused_in_one_line(journal: bool) -> None:
    disk = empty_disk()
    work(opened(disk))
    disk.restart(CrashMode.KEEP)
    disk.remove_dir(PLACE)
    error = refusal(lambda: open_manager(disk, journal=JOURNAL if journal else None))
    assert isinstance(error, StorageStartError)
    assert "needs its journal" in str(error)
    assert "restore-reset" in str(error)


def test_the_journal_of_another_directory_is_refused() -> None:
    disk, other = empty_disk(), empty_disk()
    work(opened(disk))
    opened(other).commit()
    disk.restart(CrashMode.KEEP)
    for name, raw in other.files().items():
        if name.startswith(PLACE):
            disk.put(name, raw)
    error = refusal(lambda: open_manager(disk, journal=JOURNAL))
    assert "belongs to another journal" in str(error)


@pytest.mark.timeout(20)
def test_an_end_whose_last_commit_needs_a_file_frees_one() -> None:
    for rounds in range(30):
        disk = empty_disk()
        manager = opened(disk)
        for number in range(rounds):
            append(manager.get(0), number * 4, 4, 800)
            manager.commit()
        append(manager.get(0), rounds * 4, 4, 800)
        manager.close()
        manager = open_manager(disk)
        assert_holds(manager.get(0), rounds * 4 + 4, 800)


def test_safety_c7_after_a_failed_sync_of_the_journal_nothing_is_taken_and_nothing_new_is_shown() -> None:
    disk = empty_disk()
    manager = opened(disk)
    append(manager.get(0), 0, 4)
    manager.commit()
    manager.assign(1)
    disk.fail_sync_once = "journal-"
    partition = manager.get(0)
    shown = partition.public
    append(partition, 4, 4)
    partition.set_low_water_mark(5, 7)
    partition.raise_fence(9)
    assert partition.public == shown, "nothing new is shown before its commit"
    error = refusal(manager.commit)
    assert isinstance(error, PartitionFailedError)
    for partition_id in (0, 1):
        manager.hide(partition_id)
    assert partition.public == shown == (partition.max_txid, partition.durable_fence, partition.info)
    assert set(manager.problems()) == {0, 1, 2}, "all of them depend on the journal"
    assert_holds(manager.get(0), 4)
    assert isinstance(refusal(lambda: append(manager.get(0), 4, 1)), PartitionFailedError)
    assert isinstance(refusal(lambda: append(manager.get(2), 0, 1)), PartitionFailedError)
    manager.commit()  # nothing was taken, so nothing is tried again
    assert set(manager.public()) == {0, 2}, "nor is the assignment shown that was not durable"
    manager.close()
    disk.restart(CrashMode.SOME, random.Random(1))
    manager = open_manager(disk, journal=JOURNAL)
    assert_holds(manager.get(0), 4)
    assert manager.get(0).max_txid + 1 in (4, 8), "all of the commit or nothing"
    manager.close()


@pytest.mark.parametrize(
    ("of", "call", "threshold"), [(FaultyDisk, "unlink", 300), (FaultyFile, "truncate", 10_000)]
)
def test_safety_c7_a_change_that_fails_below_after_its_commit_ends_the_journal(
    monkeypatch: pytest.MonkeyPatch, of: type, call: str, threshold: int
) -> None:
    """A replay makes the change: it must find nothing that was written since, in files that it had left."""
    disk = empty_disk()
    manager = opened(disk, threshold=threshold)
    for number in range(7):
        append(manager.get(0), number)
        manager.commit()
    manager.make()

    def refused(*_: object) -> None:
        monkeypatch.undo()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(of, call, refused)
    assert isinstance(refusal(lambda: manager.get(0).truncate(2)), PartitionFailedError)
    with contextlib.suppress(PartitionFailedError):
        manager.commit()
    assert set(manager.problems()) == {0, 2}
    assert isinstance(refusal(lambda: manager.unassign(0, delete_files=False)), StorageError)
    manager.close()
    disk.restart(CrashMode.KEEP)
    manager = open_manager(disk, threshold=threshold, journal=JOURNAL)
    assert manager.damaged == {}
    kept = manager.get(0).max_txid + 1
    assert 3 <= kept <= 7
    append(manager.get(0), kept, 4)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    manager = open_manager(disk, threshold=threshold, journal=JOURNAL)
    assert_holds(manager.get(0), kept + 4)
    manager.close()


@pytest.mark.parametrize("what", ["a large append", "a truncation"])
def test_safety_c7_a_commit_that_failed_within_a_batch_fails_the_whole_batch(what: str) -> None:
    """What came before it in the batch was to be durable by it."""
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    append(manager.get(0), 0, 4)
    append(manager.get(2), 0, 4)
    manager.commit()
    append(manager.get(0), 4, 1)
    disk.fail_sync_once = "journal-"
    if what == "a large append":
        assert isinstance(refusal(lambda: append(manager.get(2), 4, 100, 700)), PartitionFailedError)
    else:
        assert isinstance(refusal(lambda: manager.get(2).truncate(1)), PartitionFailedError)
    assert isinstance(refusal(manager.commit), PartitionFailedError), "transaction 4 is not durable"
    manager.commit()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert_holds(manager.get(0), 4)
    manager.close()


def test_what_finds_no_room_is_kept_in_the_journal_until_there_is_room() -> None:
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    append(manager.get(0), 0, 4)
    manager.commit()
    disk.capacity_bytes = sum(map(len, disk.files().values()))
    append(manager.get(0), 4, 4)
    manager.commit()  # acknowledged: it is in the journal
    manager.make()
    assert_holds(manager.get(0), 8)
    assert isinstance(refusal(lambda: append(manager.get(0), 8, 1)), DiskFullError)
    assert isinstance(refusal(lambda: append(manager.get(2), 0, 1)), DiskFullError)
    copy = FaultyDisk()
    copy.add_dir(ROOT)
    for name, raw in disk.files().items():
        copy.add_dir(name.rpartition("/")[0])
        copy.put(name, raw)
    survivor = open_manager(copy)
    assert_holds(survivor.get(0), 8)
    survivor.close()
    disk.capacity_bytes = None
    manager.commit()
    append(manager.get(0), 8, 1)
    manager.commit()
    manager.close()
    plain = open_manager(disk)
    assert_holds(plain.get(0), 9)
    plain.close()


def test_a_journal_that_cannot_be_made_is_said_in_one_line() -> None:
    disk = empty_disk()
    open_manager(disk).close()
    disk.capacity_bytes = sum(map(len, disk.files().values())) + 20_000
    error = refusal(lambda: open_manager(disk, journal=JOURNAL))
    assert isinstance(error, StorageStartError)
    assert f"{PLACE}: the journal cannot be made" in str(error)
    disk.capacity_bytes = None
    open_manager(disk).close()


def test_safety_c7_a_failed_sync_of_a_file_that_is_settled_stops_the_node() -> None:
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    number = 0
    while not manager.settle_due:
        append(manager.get(0), number, 1)
        manager.commit()
        number += 1
    disk.fail_sync_once = segment_path(0, 0)
    manager.settle()
    assert set(manager.problems()) == {0, 2}
    assert isinstance(refusal(lambda: append(manager.get(0), number, 1)), PartitionFailedError)
    manager.close()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk, journal=JOURNAL)
    assert_holds(manager.get(0), number)
    manager.close()


def test_safety_c7_a_sync_that_fails_while_a_node_ends_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the thread that settles, after the last commit: the next sync of that file would say that all is
    well."""
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    number = 0
    while not manager.settle_due:
        append(manager.get(0), number, 1)
        manager.commit()
        number += 1
    commit = JournaledFiles.commit

    def commit_and_settle(files: JournaledFiles) -> None:
        commit(files)
        disk.fail_sync_once = segment_path(0, 0)
        assert not files.settle()

    monkeypatch.setattr(JournaledFiles, "commit", commit_and_settle)
    manager.close()
    monkeypatch.undo()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk, journal=JOURNAL)
    assert_holds(manager.get(0), number)
    manager.close()


def test_without_descriptors_a_file_is_settled_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was tried, so nothing has failed; when no journal file is left, the node stops."""
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    number = 0
    while not manager.settle_due:
        append(manager.get(0), number, 1)
        manager.commit()
        number += 1

    def out_of_descriptors(path: str) -> None:
        raise OutOfResourcesError(f"{path}: too many open files")

    monkeypatch.setattr(disk, "sync_dir", out_of_descriptors)
    assert not manager.settle()
    assert manager.problems() == {}
    append(manager.get(0), number, 1)
    manager.commit()
    monkeypatch.undo()
    assert manager.settle()
    monkeypatch.setattr(disk, "sync_dir", out_of_descriptors)
    with pytest.raises(PartitionFailedError, match="too many open files"):
        for txid in range(number + 1, number + 1_000):
            append(manager.get(0), txid, 1)
            manager.commit()
    manager.close()
    monkeypatch.undo()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert manager.get(0).max_txid > number
    manager.close()


def test_a_commit_that_needs_a_file_has_a_descriptor_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has none left, so nothing was settled beside the batches."""
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    files, sync_dir = manager.files, disk.sync_dir
    assert files is not None

    def out_of_descriptors(path: str) -> None:
        if files._spare is not None:
            raise OutOfResourcesError(f"{path}: too many open files")
        sync_dir(path)

    monkeypatch.setattr(disk, "sync_dir", out_of_descriptors)
    for txid in range(1_000):
        append(manager.get(0), txid, 1)
        manager.commit()
    assert files._spare is not None
    monkeypatch.undo()
    manager.close()


def test_files_of_the_journal_are_used_again_and_again() -> None:
    disk = empty_disk()
    manager = opened(disk, threshold=5_000)
    for number in range(400):
        append(manager.get(number % 2 * 2), number // 2, 1, 300)
        manager.commit()
        if manager.settle_due:
            manager.settle()
    assert sum(len(raw) for name, raw in disk.files().items() if name.startswith(PLACE)) == (
        JOURNAL.file_bytes * JOURNAL.files
    )
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk, threshold=5_000)
    for partition_id in (0, 2):
        assert_holds(manager.get(partition_id), 200, 300)
    manager.close()


def test_safety_c7_a_file_is_not_closed_under_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settling, on its own thread, is the last that uses a file while a commit writes to it: a closed
    descriptor may be another file's by then."""
    disk = empty_disk()
    files = JournaledFiles(disk, ROOT, FreeSpace())
    files.begin(files.create(PLACE, UUID(int=1), JOURNAL))
    file = files.open(f"{ROOT}/x", create=True)
    while not files.settle_due():
        file.pwrite(b"x" * 1000, 0)
        file.sync()
        files.commit()
    file.pwrite(b"y" * 1000, 0)
    file.close()
    write, closed_within = FaultyFile.pwrite, []

    def pwrite(below: FaultyFile, data: bytes | memoryview, offset: int) -> int:
        if below.path != f"{ROOT}/x":
            return write(below, data, offset)
        monkeypatch.setattr(FaultyFile, "close", lambda one, owner=None: closed_within.append(one.path))
        files.settle()
        monkeypatch.undo()
        return write(below, data, offset)

    monkeypatch.setattr(FaultyFile, "pwrite", pwrite)
    files.commit()
    files.make()
    assert closed_within == []
    assert disk.files()[f"{ROOT}/x"] == b"y" * 1000


def test_safety_c7_a_deleted_segment_does_not_come_back() -> None:
    """Its deletion is in the journal; that of its name was not durable when the power went."""
    disk = empty_disk()
    manager = opened(disk)
    for number in range(5):
        append(manager.get(0), number * 4, 4, 100)
    manager.close()
    manager = open_manager(disk, threshold=700, journal=JOURNAL)
    manager.get(0).truncate(5)
    manager.commit()
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk, threshold=700)
    assert manager.get(0).max_txid == 5
    assert_holds(manager.get(0), 6, 100)
    manager.close()


def test_a_restart_with_other_sizes_uses_the_same_files() -> None:
    disk = empty_disk()
    manager = opened(disk)
    work(manager)
    disk.restart(CrashMode.LOSE)
    for settings in (JournalSettings(None, 32 << 10, 5), JournalSettings(None, 8 << 10, 3)):
        manager = open_manager(disk, threshold=700, journal=settings)
        assert_holds(manager.get(0), 25, 100)
        journal = {name: raw for name, raw in disk.files().items() if name.startswith(PLACE)}
        assert {len(raw) for raw in journal.values()} == {settings.file_bytes}
        assert len(journal) == settings.files
        disk.restart(CrashMode.LOSE)


def test_out_of_room_for_good_the_journal_ends() -> None:
    """When none of its files can be used again, nothing is acknowledged any longer."""
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    append(manager.get(0), 0, 1)
    manager.commit()
    disk.capacity_bytes = sum(map(len, disk.files().values()))
    append(manager.get(0), 1, 1)
    manager.commit()
    failed = None
    for _ in range(2_000):
        try:
            manager.set_available(0, False)
            manager.commit()
        except PartitionFailedError as error:
            failed = error
            break
    assert failed is not None
    assert "its files are full" in str(failed)
    disk.capacity_bytes = None
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk, journal=JOURNAL)
    assert_holds(manager.get(0), 2)
    manager.close()


def test_errors_of_the_disk_are_not_hidden() -> None:
    disk = empty_disk()
    manager = opened(disk)
    disk.read_only = True
    with pytest.raises(OSError, match=r".") as raised:
        disk.open(f"{ROOT}/x", create=True)
    assert raised.value.errno == errno.EROFS
    manager.close()
