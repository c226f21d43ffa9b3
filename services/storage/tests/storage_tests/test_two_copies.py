"""Control entry and side file keep two copies of everything: what happens to one must leave the other one to
be believed."""

from __future__ import annotations

import random

import pytest

from waltz_storage.engine import layout
from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import PartitionFailedError
from waltz_storage.engine.layout import ControlHeader
from waltz_storage.engine.partition_info import PartitionInfo
from waltz_storage.engine.sidecar import Sidecar
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .support import KEY, ROOT, append, empty_disk, now_ms, open_manager, path

CONTROL = f"{ROOT}/waltz-storage.ctl"
STRUCTS = (layout.HEADER_SIZE + 4, layout.HEADER_SIZE + 4 + layout.INFO_SIZE)
FENCES, MARKS = (0, 512), (1024, 1536)


def in_session_7_after_5() -> FaultyDisk:
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(0)
    append(partition, 0, 3)
    for session_id in (5, 7):
        partition.set_low_water_mark(session_id, 2)
    manager.close()
    return disk


def structs(disk: FaultyDisk) -> list[PartitionInfo | None]:
    raw = disk.content(CONTROL)
    return [PartitionInfo.from_bytes(raw[at : at + layout.INFO_SIZE]) for at in STRUCTS]


def sessions(disk: FaultyDisk) -> list[int]:
    return [-99 if info is None else info.session_id for info in structs(disk)]


def opened(disk: FaultyDisk) -> ControlFile:
    return ControlFile.open(disk, ROOT, KEY, 4, now_ms)


def test_an_update_leaves_the_entry_before_it_as_the_second_copy() -> None:
    disk = in_session_7_after_5()
    assert sorted(sessions(disk)) == [5, 7]
    disk.flip_bit(CONTROL, STRUCTS[sessions(disk).index(7)] + 3)
    control = opened(disk)
    assert control.info(0)[:3] == (5, 2, 2)
    control.close()


def test_a_reset_leaves_nothing_of_the_marks_in_either_copy() -> None:
    disk = in_session_7_after_5()
    manager = open_manager(disk)
    manager.unassign(0, delete_files=True)
    manager.close()
    assert sessions(disk) == [-1, -1]
    for damaged in STRUCTS:
        disk.flip_bit(CONTROL, damaged + 3)
        control = opened(disk)
        assert control.info(0)[:3] == (-1, -1, -1)
        assert not control.info(0).assigned
        control.close()
        disk.flip_bit(CONTROL, damaged + 3)


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_inside_a_reset_leaves_the_old_entry_or_a_virgin_one(mode: CrashMode) -> None:
    """Never the one before the old one, which is the second copy."""
    steps = 0
    while True:
        disk = in_session_7_after_5()
        control = opened(disk)
        disk.crash_before = len(disk.calls) + steps
        try:
            control.reset(0)
        except CrashError:
            disk.restart(mode, random.Random(steps))
            control = opened(disk)
            assert control.info(0).session_id in (7, -1), steps
            control.close()
            steps += 1
            continue
        break
    assert steps >= 6


def test_safety_b3_an_update_whose_sync_failed_is_not_remembered() -> None:
    """The next one would fill the copy that still counts on the disk."""
    disk = in_session_7_after_5()
    control = opened(disk)
    disk.fail_sync_once = ".ctl"
    with pytest.raises(PartitionFailedError):
        control.update(0, lambda info: info._replace(session_id=9))
    assert control.info(0).session_id == 7
    control.update(0, lambda info: info._replace(session_id=10))
    assert sorted(sessions(disk)) == [7, 10]
    control.close()


def test_safety_c5_a_control_file_with_a_header_has_all_its_entries() -> None:
    """Whenever the power goes during the first start: 0.13.2 believes a header, whatever stands behind it."""
    steps = unfinished = 0
    while True:
        for chance in range(8):
            disk = empty_disk()
            disk.crash_before = steps
            try:
                opened(disk).close()
            except CrashError:
                disk.restart(CrashMode.SOME, random.Random(chance), 0.5)
            raw = disk.files().get(CONTROL, b"")
            if len(raw) < layout.HEADER_SIZE or ControlHeader.from_bytes(raw).num_partitions == 0:
                unfinished += 1
                continue
            entries = raw[layout.HEADER_SIZE :]
            starts = range(0, 4 * layout.ENTRY_SIZE, layout.ENTRY_SIZE)
            assert all(any(entries[at : at + layout.ENTRY_SIZE]) for at in starts), steps
        if disk.crash_before is not None and len(disk.calls) < steps:
            break
        steps += 1
    assert unfinished > 8


@pytest.mark.parametrize("raises", [(3, 5), (3, 5, 7), (3, 5, 7, 9)])
def test_safety_b2_a_damaged_copy_of_the_fence_costs_the_last_raise_at_most(raises: tuple[int, ...]) -> None:
    for damaged in FENCES:
        disk = empty_disk()
        sidecar = Sidecar.open(disk, ROOT, 0)
        for session_id in raises:
            sidecar.raise_fence(session_id)
        sidecar.close()
        disk.flip_bit(f"{ROOT}/waltz-fence", damaged + 20)
        assert Sidecar.open(disk, ROOT, 0).fence_session_id in raises[-2:]


def test_a_damaged_copy_of_the_synced_mark_costs_the_last_one_at_most() -> None:
    for damaged in MARKS:
        disk = empty_disk()
        sidecar = Sidecar.open(disk, ROOT, 0)
        for txid in (3, 5, 7):
            sidecar.write_mark(4, 1, txid)
        sidecar.sync()
        sidecar.close()
        disk.flip_bit(f"{ROOT}/waltz-fence", damaged + 20)
        assert Sidecar.open(disk, ROOT, 0).synced_txid(4, 1) in (5, 7)


def test_the_synced_mark_counts_for_its_own_state_of_the_control_entry_only() -> None:
    """0.13.2 may have cut the log and set marks in the same session: the number of the entry tells."""
    sidecar = Sidecar.open(empty_disk(), ROOT, 0)
    sidecar.write_mark(4, 8, 7)
    assert [sidecar.synced_txid(*state) for state in ((4, 8), (4, 9), (4, 7), (5, 8), (3, 8))] == [
        7,
        -1,
        -1,
        -1,
        -1,
    ]


def test_safety_b2_a_side_file_of_another_partition_says_nothing() -> None:
    """Copied by hand it would lock the sessions of this partition out."""
    disk = in_session_7_after_5()
    manager = open_manager(disk)
    manager.assign(1).raise_fence(90)
    manager.close()
    disk.put(path(0, "waltz-fence"), disk.content(path(1, "waltz-fence")))
    assert open_manager(disk).get(0).durable_fence == 7
