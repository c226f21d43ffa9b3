"""Files that are lost while a storage directory depends on its journal: what the replay makes again, and what
is missed."""

from __future__ import annotations

import pytest

from waltz_storage.engine import layout
from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.inspect import inspect_control_file, inspect_directory
from waltz_storage.engine.journal.directory import settle_directory
from waltz_storage.engine.journal.layout import Create, Name, Unlink, Write
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.journal.replay import Replay
from waltz_storage.engine.partition_info import PartitionInfo
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from .support import (
    JOURNAL,
    ROOT,
    append,
    assert_holds,
    empty_disk,
    open_manager,
    path,
    refusal,
    segment_path,
)
from .test_journaled_directory import opened, work


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
    assert "lacks records" in manager.damaged[0]
    assert lost not in disk.files()
    manager.close()


def test_safety_c7_a_lost_witness_comes_back_whole_from_the_journal_that_made_it() -> None:
    """All that was ever written to it is in that journal; from another one nothing of it comes back."""
    disk = empty_disk()
    manager = opened(disk)
    work(manager, rounds=3)
    disk.restart(CrashMode.KEEP)
    lost = f"{ROOT}/{layout.WITNESS_NAME}"
    whole = disk.files()[lost]
    disk.remove(lost)
    manager = open_manager(disk)
    assert disk.files()[lost] == whole
    assert not manager.damaged
    manager.close()
    manager = open_manager(disk, journal=JOURNAL)
    manager.get(0).raise_fence(9)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    disk.remove(lost)
    with pytest.raises(StorageStartError, match="waltz-witness is missing"):
        open_manager(disk)
    assert lost not in disk.files()


def test_safety_c7_a_lost_directory_stops_its_partition_only() -> None:
    """Also when the journal has deletions, cuts and new files in it."""
    disk = empty_disk()
    manager = opened(disk)
    for partition_id in (0, 2):
        manager.get(partition_id).raise_fence(1)
        manager.get(partition_id).set_low_water_mark(1, -1)
        for number in range(5):
            append(manager.get(partition_id), number * 4, 4, 100)
    manager.close()
    manager = open_manager(disk, threshold=700, journal=JOURNAL)
    for partition_id in (0, 2):
        manager.get(partition_id).truncate(5)
        append(manager.get(partition_id), 6, 4, 100)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    disk.remove_dir(f"{ROOT}/0")
    manager = open_manager(disk, threshold=700)
    assert "lacks records" in manager.damaged[0]
    assert_holds(manager.get(2), 10, 100)
    manager.close()


def killed(disk: FaultyDisk) -> None:
    """Partitions 0 and 2 with four transactions in their files and four that only the journal has."""
    manager = opened(disk)
    for partition_id in (0, 2):
        manager.get(partition_id).raise_fence(1)
        manager.get(partition_id).set_low_water_mark(1, -1)
        append(manager.get(partition_id), 0, 4)
    manager.close()
    manager = open_manager(disk, journal=JOURNAL)
    for partition_id in (0, 2):
        append(manager.get(partition_id), 4, 4)
    manager.commit()
    disk.restart(CrashMode.LOSE)


def taken_away(disk: FaultyDisk, what: str) -> dict[str, bytes]:
    files = {name: raw for name, raw in disk.files().items() if name.startswith(what)}
    disk.remove(what) if what in files else disk.remove_dir(what)
    return files


def put_back(disk: FaultyDisk, files: dict[str, bytes]) -> None:
    disk.add_dir(f"{ROOT}/0")
    for name, raw in files.items():
        disk.put(name, raw)


@pytest.mark.parametrize("what", [f"{ROOT}/0", segment_path(0, 0), path(0, layout.SIDECAR_NAME)])
@pytest.mark.parametrize("journal", [JOURNAL, None])
def test_safety_c7_what_a_replay_had_to_leave_out_is_not_forgotten(
    what: str, journal: JournalSettings | None
) -> None:
    """The journal is gone when the files are back, and nothing else says that they are old."""
    disk = empty_disk()
    killed(disk)
    files = taken_away(disk, what)
    manager = open_manager(disk, journal=journal)
    assert manager.damaged.keys() == {0}
    assert_holds(manager.get(2), 8)
    manager.close()
    put_back(disk, files)
    for _ in range(2):
        manager = open_manager(disk, journal=journal)
        assert "lacks records" in manager.damaged[0]
        assert any("lacks records" in line for line in inspect_directory(ROOT, fs=disk).problems)
        manager.set_available(0, True)
        manager.commit()
        manager.close()
    manager = open_manager(disk, journal=journal)
    manager.unassign(0, delete_files=True)
    manager.assign(0).raise_fence(2)
    manager.get(0).set_low_water_mark(2, -1)
    append(manager.get(0), 0, 3)
    manager.commit()
    manager.close()
    manager = open_manager(disk)
    assert manager.damaged == {}
    assert_holds(manager.get(0), 3)
    manager.close()


@pytest.mark.parametrize("available", [True, False])
def test_the_switch_of_the_administrator_is_no_note_of_what_a_copy_lacks(available: bool) -> None:
    """It stays as it was, also when the copy is reset; the copy that takes its place is in service."""
    disk = empty_disk()
    manager = opened(disk)
    manager.set_available(0, available)
    manager.close()
    killed(disk)
    taken_away(disk, f"{ROOT}/0")
    assert settle_directory(disk, ROOT, None).lacking == (0,)
    for _ in range(2):
        _, entries = inspect_control_file(ROOT, fs=disk)
        assert isinstance(entries[0], PartitionInfo)
        assert entries[0].available is available
        reset_for_restore(ROOT, [0], fs=disk)
    manager = open_manager(disk)
    manager.unassign(0, delete_files=True)
    assert manager.assign(0).info.available
    manager.close()


def test_safety_c4_a_deletion_that_a_replay_had_to_leave_out_is_not_forgotten() -> None:
    """Else records that were cut come back with the directory. Nothing was written to it since."""
    disk = empty_disk()
    manager = opened(disk)
    manager.get(0).set_low_water_mark(1, -1)
    for number in range(5):
        append(manager.get(0), number * 4, 4, 100)
    manager.close()
    replay = Replay(disk, ROOT, {})
    files = taken_away(disk, f"{ROOT}/0")
    last = max(files)
    relative = last.removeprefix(f"{ROOT}/")
    replay.run([Name(0, relative), Unlink(0)])
    assert list(replay.missed) == ["0"]
    put_back(disk, files)
    replay = Replay(disk, ROOT, {})
    replay.run([Name(0, relative), Write(0, 200, b"x"), Unlink(0), Write(0, 0, b"y")])
    assert last not in disk.files()
    assert list(replay.missed) == [relative]
    replay = Replay(disk, ROOT, {})
    replay.run([Name(0, relative), Write(0, 200, b"x"), Create(0), Write(0, 0, b"y")])
    assert disk.files()[last] == b"y"
    assert not replay.missed


@pytest.mark.parametrize("look", [f"{ROOT}/0", segment_path(0, 0), path(0, layout.SIDECAR_NAME)])
def test_safety_c7_a_replay_that_cannot_see_a_file_keeps_the_journal(look: str) -> None:
    disk = empty_disk()
    killed(disk)
    disk.fail_look = look
    if look != f"{ROOT}/0":
        for _ in range(2):
            error = refusal(lambda: open_manager(disk, journal=JOURNAL))
            assert isinstance(error, StorageStartError)
            assert f"its journal cannot be replayed: {look}: Input/output error" in str(error)
    disk.fail_look = None
    manager = open_manager(disk)
    for partition_id in (0, 2):
        assert_holds(manager.get(partition_id), 8)
    manager.close()


def test_safety_c7_without_a_word_of_what_was_left_out_the_journal_stays() -> None:
    disk = empty_disk()
    killed(disk)
    files = taken_away(disk, segment_path(0, 0))
    disk.fail_sync_once = layout.WITNESS_NAME
    error = refusal(lambda: open_manager(disk, journal=JOURNAL))
    assert isinstance(error, StorageStartError)
    put_back(disk, files)
    assert settle_directory(disk, ROOT, None).lacking == ()
    manager = open_manager(disk)
    assert_holds(manager.get(0), 8)
    manager.close()


def test_a_missing_file_of_a_copy_without_a_session_is_nobodys_loss() -> None:
    disk = empty_disk()
    manager = opened(disk)
    append(manager.get(2), 0, 4)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    disk.remove(segment_path(2, 0))
    assert settle_directory(disk, ROOT, None).lacking == ()
    manager = open_manager(disk)
    assert manager.damaged == {}
    manager.close()
