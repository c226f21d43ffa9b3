"""A journal on a volume of its own: set later, and lost, alone or with the data."""

from __future__ import annotations

from uuid import uuid4

from waltz_storage.engine.errors import JournalLostError
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
