"""The documented repair of a damaged control entry: un-assign with the files, assign again; it lasts."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from waltz_storage.engine.layout import ENTRY_SIZE, HEADER_SIZE
from waltz_storage.engine.partition_info import PartitionInfo, virgin, virgin_entry
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .support import ROOT, append, assert_holds, empty_disk, open_manager

CONTROL = f"{ROOT}/waltz-storage.ctl"
ENTRY = HEADER_SIZE + ENTRY_SIZE * 3


def flipped_id(disk: FaultyDisk) -> None:
    disk.flip_bit(CONTROL, ENTRY + 3, 4)


def another_entry(disk: FaultyDisk) -> None:
    """A write that went to the wrong place: everything fits, but it is partition 1's."""
    info = PartitionInfo(9, 70, 70, 5, 8)
    disk.overwrite(
        CONTROL, ENTRY, struct.pack(">i", 1) + info.to_bytes() + info._replace(sequence=9).to_bytes()
    )


def two_newest(disk: FaultyDisk) -> None:
    info = PartitionInfo(9, 70, 70, 5, 8)
    disk.overwrite(CONTROL, ENTRY + 4, info.to_bytes() + info._replace(session_id=8).to_bytes())


def broken_structs(disk: FaultyDisk) -> None:
    for offset in (10, 46):
        disk.flip_bit(CONTROL, ENTRY + offset)


def damaged(damage: Callable[[FaultyDisk], None]) -> FaultyDisk:
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(3)
    append(partition, 0, 5)
    partition.set_low_water_mark(4, 4)
    manager.close()
    damage(disk)
    return disk


DAMAGES = [flipped_id, another_entry, two_newest, broken_structs]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_repair_of_a_damaged_entry_outlives_the_next_start(
    damage: Callable[[FaultyDisk], None],
) -> None:
    disk = damaged(damage)
    manager = open_manager(disk)
    assert 3 in manager.damaged
    manager.unassign(3, delete_files=True)
    assert disk.content(CONTROL)[ENTRY : ENTRY + ENTRY_SIZE] == virgin_entry(3)
    append(manager.assign(3), 0, 2)
    manager.close()
    manager = open_manager(disk)
    assert manager.damaged == {}
    assert_holds(manager.get(3), 2)
    manager.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_safety_c5_a_repair_cut_short_leaves_the_entry_damaged_or_new(
    damage: Callable[[FaultyDisk], None],
) -> None:
    """Never what the damaged entry held: it may be another partition's."""
    for number in range(100):
        for mode in CrashMode:
            disk = damaged(damage)
            manager = open_manager(disk)
            disk.crash_before = len(disk.calls) + number
            try:
                manager.control.reset(3)
            except CrashError:
                finished = False
            else:
                finished = True
            disk.restart(mode)
            manager = open_manager(disk)
            if 3 in manager.control.damaged:
                assert not finished
                manager.control.reset(3)
            assert manager.control.info(3) in (virgin(0), virgin(1))
            manager.close()
        if finished:
            return
    raise AssertionError("it never ended")


def test_an_entry_whose_repair_failed_is_still_damaged() -> None:
    disk = damaged(flipped_id)
    manager = open_manager(disk)
    disk.fail_sync = "waltz-storage.ctl"
    with pytest.raises(Exception, match="control entry"):
        manager.unassign(3, delete_files=False)
    disk.fail_sync = None
    with pytest.raises(Exception, match="names partition"):
        manager.assign(3)
    manager.close()
