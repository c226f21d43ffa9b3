"""Files that are lost while a storage directory depends on its journal: what the replay makes again, and what
is missed."""

from __future__ import annotations

import pytest

from waltz_storage.engine import layout
from waltz_storage.engine.errors import StorageStartError
from waltz_testkit.faulty_disk import CrashMode

from .support import JOURNAL, ROOT, append, assert_holds, empty_disk, open_manager, segment_path
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
    assert "missing or cut short" in manager.damaged[0]
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
    assert "directory is missing" in manager.damaged[0]
    assert_holds(manager.get(2), 10, 100)
    manager.close()
