"""The node journal: bytes, damage, failures, full disks, and what release 0.13.2 finds after it."""

from __future__ import annotations

import errno
import random
from uuid import UUID

import pytest

from waltz_storage.engine import layout
from waltz_storage.engine.errors import DiskFullError, PartitionFailedError, StorageStartError
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY, dependence
from waltz_storage.engine.journal.layout import (
    LAST,
    SECTOR_SIZE,
    Change,
    Create,
    Cut,
    FileHeader,
    JournalDamagedError,
    MakeDir,
    Name,
    Unlink,
    Write,
    changes_of,
    create_change,
    cut_change,
    frame,
    make_dir_change,
    name_change,
    read_frame,
    salt,
    unlink_change,
    write_change,
)
from waltz_storage.engine.journal.log import Journal, JournalSettings, file_name, read_journal
from waltz_storage.engine.storage_manager import StorageManager, reset_for_restore
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

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

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
PLACE = f"{ROOT}/{JOURNAL_DIRECTORY}"
CHANGES: list[Change] = [
    Name(0, "3/a"),
    MakeDir(0),
    Create(0),
    Write(0, 7, b"abc"),
    Cut(0, 2),
    Unlink(0),
]
RAW_CHANGES = (
    name_change(0, "3/a")
    + make_dir_change(0)
    + create_change(0)
    + write_change(0, 7, b"abc")
    + cut_change(0, 2)
    + unlink_change(0)
)


def test_the_bytes_of_a_frame() -> None:
    raw = frame(salt(ID, 5), 9, 1, LAST, RAW_CHANGES)
    assert raw.hex() == (
        "575a4a31" "0000000000000009" "00000001" "00000001" "0000003a" "efcec2e3"
        "01" "00000000" "0003" "332f61"
        "06" "00000000"
        "04" "00000000"
        "02" "00000000" "0000000000000007" "00000003" "616263"
        "03" "00000000" "0000000000000002"
        "05" "00000000"
    )  # fmt: skip
    found = read_frame(raw, 0, salt(ID, 5))
    assert found is not None
    assert found[:3] == (9, 1, LAST)
    assert found.end == len(raw)
    assert list(changes_of(found.changes)) == CHANGES


def test_safety_c7_no_other_bytes_are_a_frame() -> None:
    """Not one with another bit, not one of another epoch or journal."""
    raw = frame(salt(ID, 5), 9, 1, LAST, RAW_CHANGES)
    for bit in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        assert read_frame(bytes(changed), 0, salt(ID, 5)) is None
    assert read_frame(raw, 0, salt(ID, 6)) is None
    assert read_frame(raw, 0, salt(UUID(int=1), 5)) is None
    assert all(read_frame(raw[:size], 0, salt(ID, 5)) is None for size in range(len(raw)))


def test_the_header_of_a_file() -> None:
    header = FileHeader(ID, 5, 2)
    raw = header.to_bytes()
    assert len(raw) == SECTOR_SIZE
    assert FileHeader.from_bytes(raw) == header
    for bit in range(40 * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        assert FileHeader.from_bytes(bytes(changed)) is None


@pytest.mark.parametrize("raw", [b"\x09\0\0\0\0", write_change(0, 0, b"abc")[:-1], b"\x02\0", b"\0"])
def test_changes_that_are_none_are_damage(raw: bytes) -> None:
    with pytest.raises(JournalDamagedError):
        list(changes_of(raw))


# -- what a crash left of it ---------------------------------------------------------------------------------


def written(commits: int, *, size: int = 100, settings: JournalSettings = JOURNAL) -> FaultyDisk:
    """A journal with commits of one write each, all its files settled as soon as they are full."""
    disk = empty_disk()
    journal = Journal.create(disk, PLACE, ID, settings)
    journal.begin()
    for number in range(commits):
        journal.write("f", number, b"%d" % number + b"x" * size)
        journal.commit()
        for file in journal.unsettled():
            file.settled = True
    return disk


def commits_of(disk: FaultyDisk, settings: JournalSettings = JOURNAL) -> list[int]:
    changes = read_journal(disk, PLACE, ID, settings.files)
    return [change.offset for change in changes if isinstance(change, Write)]


def frames_in(raw: bytes, epoch: int) -> list[int]:
    """Offsets of the frames of a journal file, and of the byte after the last."""
    offsets = [SECTOR_SIZE]
    while (found := read_frame(raw, offsets[-1], salt(ID, epoch))) is not None:
        offsets.append(found.end)
    return offsets


def test_all_commits_are_found_again() -> None:
    assert commits_of(written(0)) == []
    assert commits_of(written(20)) == list(range(20))


def test_of_files_that_were_used_again_the_newest_commits_are_left() -> None:
    found = commits_of(written(500))
    assert found == list(range(found[0], 500))
    assert found[0] > 0


@pytest.mark.parametrize("lost", [1, 5, 29, 30, 60])
def test_the_last_commit_may_be_torn_anywhere(lost: int) -> None:
    disk = written(20)
    path = f"{PLACE}/{file_name(0)}"
    raw = bytearray(disk.files()[path])
    end = frames_in(bytes(raw), 1)[-1]
    raw[end - lost : end] = bytes(lost)
    disk.put(path, bytes(raw))
    assert commits_of(disk) == list(range(19))


def test_safety_c7_a_broken_commit_before_another_is_damage() -> None:
    path = f"{PLACE}/{file_name(0)}"
    for number in range(19):
        disk = written(20)
        raw = bytearray(disk.files()[path])
        raw[frames_in(bytes(raw), 1)[number] + 40] ^= 1
        disk.put(path, bytes(raw))
        with pytest.raises(JournalDamagedError, match="a later commit follows"):
            commits_of(disk)


def test_a_file_that_is_not_the_newest_ends_with_its_mark() -> None:
    disk = written(200)
    lives = {FileHeader.from_bytes(raw): path for path, raw in disk.files().items() if raw[:4] == b"WZJF"}
    before, newest = sorted(header for header in lives if header is not None and header.epoch)[-2:]
    assert newest.epoch == before.epoch + 1
    raw = bytearray(disk.files()[lives[before]])
    raw[frames_in(bytes(raw), before.epoch)[-2] + 5] ^= 1
    disk.put(lives[before], bytes(raw))
    with pytest.raises(JournalDamagedError, match="continues in another file"):
        commits_of(disk)


def test_safety_c7_a_header_that_was_not_written_is_missed() -> None:
    """A file shows the epoch of its life before: the disk has lost the write of its header."""
    disk = written(500)
    lives = {FileHeader.from_bytes(raw): path for path, raw in disk.files().items() if raw[:4] == b"WZJF"}
    _, middle, _ = sorted(header for header in lives if header is not None)
    older = FileHeader(ID, middle.epoch - JOURNAL.files, middle.number)
    disk.put(lives[middle], older.to_bytes() + disk.files()[lives[middle]][SECTOR_SIZE:])
    with pytest.raises(JournalDamagedError, match=f"none has {older.epoch + 1}"):
        commits_of(disk)


@pytest.mark.parametrize("number", range(JOURNAL.files))
def test_a_journal_that_lacks_a_file_is_damaged(number: int) -> None:
    disk = written(200)
    disk.remove(f"{PLACE}/{file_name(number)}")
    with pytest.raises(JournalDamagedError, match="is missing"):
        commits_of(disk)


@pytest.mark.parametrize("number", range(JOURNAL.files))
def test_a_file_of_another_journal_is_refused(number: int) -> None:
    disk = written(200)
    path = f"{PLACE}/{file_name(number)}"
    raw = FileHeader(UUID(int=8), 1, number).to_bytes()
    disk.put(path, raw + disk.files()[path][SECTOR_SIZE:])
    with pytest.raises(JournalDamagedError, match="another journal"):
        commits_of(disk)


def test_a_commit_larger_than_a_file_goes_through_several() -> None:
    settings = JournalSettings(file_bytes=4096, files=8)
    disk = empty_disk()
    journal = Journal.create(disk, PLACE, ID, settings)
    journal.begin()
    for number in range(20):
        journal.write("f", number, bytes(900))
    journal.commit()
    assert commits_of(disk, settings) == list(range(20))


# -- a node with a journal -----------------------------------------------------------------------------------


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
    assert ours == without.files()


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


def test_a_copy_whose_journal_is_lost_can_be_given_up() -> None:
    """Its marks say that it holds nothing for certain; its peers bring it up to date."""
    disk = empty_disk()
    work(opened(disk))
    disk.restart(CrashMode.KEEP)
    disk.remove_dir(PLACE)
    assert reset_for_restore(ROOT, fs=disk) == [0, 2]
    manager = open_manager(disk, threshold=700)
    assert all(partition.info.session_id == -1 for partition in manager.partitions.values())
    manager.close()


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


def test_safety_c7_after_a_failed_sync_of_the_journal_nothing_is_taken_and_nothing_new_is_shown() -> None:
    disk = empty_disk()
    manager = opened(disk)
    append(manager.get(0), 0, 4)
    manager.commit()
    disk.fail_sync_once = "journal-"
    append(manager.get(0), 4, 4)
    error = refusal(manager.commit)
    assert isinstance(error, PartitionFailedError)
    manager.hide(0, 3)
    assert set(manager.problems()) == {0, 2}, "all of them depend on the journal"
    assert_holds(manager.get(0), 4)
    assert isinstance(refusal(lambda: append(manager.get(0), 4, 1)), PartitionFailedError)
    assert isinstance(refusal(lambda: append(manager.get(2), 0, 1)), PartitionFailedError)
    manager.commit()  # nothing was taken, so nothing is tried again
    manager.close()
    disk.restart(CrashMode.SOME, random.Random(1))
    manager = open_manager(disk, journal=JOURNAL)
    assert_holds(manager.get(0), 4)
    assert manager.get(0).max_txid + 1 in (4, 8), "all of the commit or nothing"
    manager.close()


def test_what_finds_no_room_is_kept_in_the_journal_until_there_is_room() -> None:
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    append(manager.get(0), 0, 4)
    manager.commit()
    disk.capacity_bytes = sum(map(len, disk.files().values()))
    append(manager.get(0), 4, 4)
    manager.commit()  # acknowledged: it is in the journal
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


def test_safety_c7_a_file_that_was_lost_is_not_brought_back_in_part() -> None:
    """Its partition is refused, as without a journal."""
    disk = empty_disk()
    manager = opened(disk)
    manager.get(0).raise_fence(1)
    manager.get(0).set_low_water_mark(1, -1)
    append(manager.get(0), 0, 4)
    manager.close()
    manager = open_manager(disk, journal=JOURNAL)
    append(manager.get(0), 4, 4)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    lost = segment_path(0, 0)
    disk.remove(lost)
    manager = open_manager(disk)
    assert "missing or cut short" in manager.damaged[0]
    assert lost not in disk.files()
    manager.close()


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
