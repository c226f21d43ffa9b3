"""Crashes between any two system calls (safety rule C5)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .support import (
    append,
    assert_holds,
    empty_disk,
    open_manager,
    opens_in_release_0_13_2,
)


class Acknowledged:
    """What the node has promised, as a client would note it down."""

    def __init__(self) -> None:
        self.count = 0  # transactions 0 .. count-1 must be there
        self.at_most = 0  # and never more than these (sent, or not yet truncated)
        self.fence = -1
        self.session = -1
        self.assigned = False


Step = Callable[[StorageManager, Acknowledged], None]


def step_append(first: int, count: int, size: int = 40) -> Step:
    def run(manager: StorageManager, promised: Acknowledged) -> None:
        promised.at_most = first + count
        append(manager.get(0), first, count, size)
        promised.count = first + count

    return run


def step_truncate(keep: int) -> Step:
    def run(manager: StorageManager, promised: Acknowledged) -> None:
        promised.count = min(promised.count, keep + 1)
        manager.get(0).truncate(keep)
        promised.at_most = keep + 1

    return run


def step_mark(session_id: int, mark: int) -> Step:
    def run(manager: StorageManager, promised: Acknowledged) -> None:
        manager.get(0).set_low_water_mark(session_id, mark)
        promised.session = session_id

    return run


def step_fence(session_id: int) -> Step:
    def run(manager: StorageManager, promised: Acknowledged) -> None:
        manager.get(0).raise_fence(session_id)
        promised.fence = session_id

    return run


def step_reset() -> Step:
    def run(manager: StorageManager, promised: Acknowledged) -> None:
        promised.assigned = False
        promised.session = -1
        promised.count = 0
        manager.unassign(0, delete_files=True)
        promised.at_most = 0

    return run


def step_assign() -> Step:
    def run(manager: StorageManager, promised: Acknowledged) -> None:
        manager.assign(0)
        promised.assigned = True

    return run


SCENARIOS: dict[str, list[Step]] = {
    "create": [step_assign(), step_append(0, 1)],
    "append": [step_assign(), step_append(0, 3), step_append(3, 1), step_append(4, 7)],
    "append_big": [step_assign(), step_append(0, 3, 700), step_append(3, 5, 700), step_append(8, 2, 700)],
    "checkpoint": [step_assign(), step_append(0, 998), step_append(998, 5), step_append(1003, 1)],
    "roll": [step_assign(), *[step_append(i * 4, 4, 100) for i in range(5)]],
    "truncate": [step_assign(), step_append(0, 5), step_truncate(2), step_append(3, 4), step_truncate(-1)],
    "truncate_checkpoint": [step_assign(), step_append(0, 1005), step_truncate(700), step_append(701, 2)],
    "reset_without_session": [
        step_assign(),
        step_append(0, 4),
        step_reset(),
        step_assign(),
        step_append(0, 1),
    ],
    "truncate_rolled": [
        step_assign(),
        *[step_append(i * 4, 4, 100) for i in range(4)],
        step_truncate(5),
        step_append(6, 3, 100),
    ],
    "marks": [
        step_assign(),
        step_fence(1),
        step_mark(1, -1),
        step_append(0, 4),
        step_fence(2),
        step_mark(2, 9),
        step_append(4, 2),
        step_truncate(1),
        step_append(2, 1),
    ],
    "reset": [
        step_assign(),
        step_fence(1),
        step_mark(1, -1),
        step_append(0, 4),
        step_reset(),
        step_assign(),
        step_append(0, 1),
    ],
}
SIZES = {"append_big": 700, "roll": 100, "truncate_rolled": 100}
THRESHOLDS = {"checkpoint": 60_000, "truncate_checkpoint": 1_000_000}


def run_until_crash(disk: FaultyDisk, steps: list[Step], threshold: int = 700) -> Acknowledged:
    promised = Acknowledged()
    try:
        manager = open_manager(disk, threshold=threshold)
        for step in steps:
            step(manager, promised)
    except CrashError:
        pass
    return promised


def check_after_crash(disk: FaultyDisk, promised: Acknowledged, size: int, threshold: int = 700) -> None:
    manager = open_manager(disk, threshold=threshold)
    assert manager.damaged == {}
    assert manager.control.damaged == {}
    if promised.assigned:
        assert 0 in manager.partitions
    partition = manager.partitions.get(0)
    if partition is not None:
        assert promised.count <= partition.max_txid + 1 <= promised.at_most
        assert_holds(partition, partition.max_txid + 1, size)
        assert partition.durable_fence >= promised.fence
        assert partition.info.session_id >= promised.session
        count = partition.max_txid + 1
        append(partition, count, 2, size)
        assert_holds(partition, count + 2, size)
        manager.close()
        manager = open_manager(disk, threshold=threshold)
        assert_holds(manager.get(0), count + 2, size)
        local = manager.get(0).info.local_low_water_mark
        assert opens_in_release_0_13_2(disk, 0, local) == count + 1
    manager.close()


def number_of_calls(steps: list[Step], threshold: int = 700) -> int:
    disk = empty_disk()
    run_until_crash(disk, steps, threshold)
    return len(disk.calls)


@pytest.mark.parametrize("name", list(SCENARIOS))
@pytest.mark.parametrize("mode", [CrashMode.KEEP, CrashMode.LOSE, CrashMode.SOME])
def test_safety_c5_crash_between_any_two_system_calls(name: str, mode: CrashMode) -> None:
    """The directory opens, acknowledged records are there, what was truncated is not, and it can go on."""
    steps, threshold = SCENARIOS[name], THRESHOLDS.get(name, 700)
    total = number_of_calls(steps, threshold)
    assert total > 20
    for boundary in range(total + 1):
        for seed in range(3 if mode is CrashMode.SOME else 1):
            disk = empty_disk()
            disk.crash_before = boundary
            promised = run_until_crash(disk, steps, threshold)
            disk.restart(mode, random.Random(f"{name}-{boundary}-{seed}"))
            try:
                check_after_crash(disk, promised, SIZES.get(name, 40), threshold)
            except BaseException:
                print(f"{name}: crash before call {boundary}, seed {seed}")
                raise


@pytest.mark.parametrize("name", ["append", "roll", "truncate_rolled", "marks"])
def test_safety_c5_a_second_crash_during_recovery(name: str) -> None:
    """Recovery itself may be interrupted anywhere, after a power loss of the worst kind."""
    steps, size = SCENARIOS[name], SIZES.get(name, 40)
    rng = random.Random(name)
    for boundary in range(10, number_of_calls(steps), 4):
        for second in range(0, 40, 6):
            disk = empty_disk()
            disk.crash_before = boundary
            promised = run_until_crash(disk, steps)
            disk.restart(CrashMode.SOME, rng)
            disk.crash_before = second
            try:
                open_manager(disk, threshold=700)
            except CrashError:
                pass
            disk.restart(CrashMode.SOME, rng)
            check_after_crash(disk, promised, size)


def test_safety_c5_without_the_directory_sync_names_are_lost() -> None:
    """The faulty disk can see the mistake: an unsynced name is gone after a power loss."""
    disk = empty_disk()
    file = disk.open("/data/x", create=True)
    file.pwrite(b"abc", 0)
    file.sync()
    disk.restart(CrashMode.LOSE)
    assert not disk.exists("/data/x")
