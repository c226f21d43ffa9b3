"""A journal on a volume of its own: set later, and lost, alone or with the data."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from waltz_storage.engine.errors import JournalLostError
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY
from waltz_storage.engine.journal.layout import SECTOR_SIZE
from waltz_storage.engine.partition import EngineSettings
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from .support import JOURNAL, KEY, ROOT, append, assert_holds, empty_disk, open_manager, refusal

VOLUME = "/volume"


def elsewhere(disk: FaultyDisk) -> StorageManager:
    """The same directory with its journal on another volume."""
    return StorageManager.open(
        ROOT,
        cluster_key=KEY,
        num_partitions=4,
        now_ms=lambda: 0,
        settings=EngineSettings(700),
        fs=disk,
        journal=JOURNAL._replace(directory=f"{VOLUME}/journal"),
        journal_id=uuid4(),
        journal_directory=f"{VOLUME}/journal",
    )


def with_a_volume() -> FaultyDisk:
    disk = empty_disk()
    disk.add_dir(VOLUME)
    return disk


def kill_with_a_journal_inside(disk: FaultyDisk) -> None:
    """A node that has acknowledged four records of partition 0."""
    manager = open_manager(disk, threshold=700, journal=JOURNAL)
    manager.assign(0)
    partition = manager.get(0)
    partition.raise_fence(1)
    partition.set_low_water_mark(1, -1)
    append(partition, 0, 4)
    manager.commit()
    disk.restart(CrashMode.LOSE)


def test_a_journal_inside_is_found_after_another_place_was_configured() -> None:
    """A node that was killed, and starts again with a volume for its journal."""
    disk = with_a_volume()
    kill_with_a_journal_inside(disk)
    manager = elsewhere(disk)
    assert_holds(manager.get(0), 4)
    manager.close()


@pytest.mark.parametrize("inside", [True, False])
def test_a_journal_that_is_elsewhere_is_said_with_both_ways_to_name_it(inside: bool) -> None:
    """The setting was removed after the node was killed; an old journal may be inside the directory."""
    disk = with_a_volume()
    if inside:
        open_manager(disk, threshold=700, journal=JOURNAL).close()
    manager = elsewhere(disk)
    append(manager.assign(0), 0, 4)
    manager.commit()
    disk.restart(CrashMode.LOSE)
    error = refusal(lambda: open_manager(disk, threshold=700, journal=JOURNAL))
    assert isinstance(error, JournalLostError)
    what = "journal-0.jnl belongs to another journal" if inside else "does not exist"
    assert f"{ROOT}/waltz-journal{'/' if inside else ' '}{what}" in str(error)
    assert (
        "if it is elsewhere, set storage.journal.directory to that directory, or pass it with --journal; if it is "
        f"lost, give the copy up: `waltz storage restore-reset {ROOT}`"
    ) in str(error)
    assert "put it back" in str(error)
    manager = elsewhere(disk)
    assert_holds(manager.get(0), 4)
    manager.close()


def test_a_released_journal_in_the_new_place_is_not_taken_for_the_one_inside() -> None:
    """The volume was in use before; then the node ran with a journal inside, and was killed."""
    disk = with_a_volume()
    elsewhere(disk).close()
    kill_with_a_journal_inside(disk)
    manager = elsewhere(disk)
    assert_holds(manager.get(0), 4)
    manager.close()


def test_safety_c7_a_lost_volume_of_the_journal_has_an_exit_code_of_its_own() -> None:
    disk = with_a_volume()
    elsewhere(disk).assign(0)
    disk.restart(CrashMode.KEEP)
    disk.wipe(VOLUME)
    error = refusal(lambda: elsewhere(disk))
    assert isinstance(error, JournalLostError)
    assert error.exit_code == 4


def test_safety_c7_a_journal_whose_directory_is_lost_is_not_overwritten() -> None:
    """The data volume is lost and comes back empty; what the journal holds is not needed by it."""
    disk = with_a_volume()
    manager = elsewhere(disk)
    manager.assign(0)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    disk.wipe(ROOT)
    assert isinstance(refusal(lambda: elsewhere(disk)), JournalLostError)


def test_both_volumes_lost_are_a_new_disk() -> None:
    disk = with_a_volume()
    manager = elsewhere(disk)
    manager.assign(0)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    disk.wipe(ROOT)
    disk.wipe(VOLUME)
    manager = elsewhere(disk)
    assert not manager.partitions
    manager.close()


@pytest.mark.parametrize("size", [JOURNAL.file_bytes, JOURNAL.file_bytes - 1, 3 * JOURNAL.file_bytes])
def test_a_journal_that_was_copied_with_holes_gets_its_blocks(size: int, tmp_path: Path) -> None:
    """As `rsync -S` leaves it. A commit into a hole ends the journal when the disk is full."""

    def opened() -> StorageManager:
        return StorageManager.open(
            str(tmp_path),
            cluster_key=KEY,
            num_partitions=4,
            now_ms=lambda: 0,
            journal=JOURNAL,
            journal_id=uuid4(),
        )

    manager = opened()
    manager.assign(0)
    manager.close()
    files = sorted((tmp_path / JOURNAL_DIRECTORY).iterdir())
    head = files[1].read_bytes()[:SECTOR_SIZE]
    for file in files:
        with file.open("wb") as copy:
            copy.truncate(size)
    files[1].write_bytes(head)
    os.truncate(files[1], size)
    assert all(file.stat().st_blocks * 512 < JOURNAL.file_bytes for file in files)
    manager = opened()
    assert [file.stat().st_size for file in files] == [JOURNAL.file_bytes] * JOURNAL.files
    assert all(file.stat().st_blocks * 512 >= JOURNAL.file_bytes for file in files)
    manager.close()
