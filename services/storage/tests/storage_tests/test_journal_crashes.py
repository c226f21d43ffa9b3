"""Crashes of a node with a journal between any two system calls (safety rules C1 to C5, with the journal)."""

from __future__ import annotations

import contextlib
import random

import pytest

from waltz_storage.engine.errors import PartitionFailedError
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .support import (
    JOURNAL,
    append,
    assert_holds,
    empty_disk,
    open_manager,
    opens_in_release_0_13_2,
    refusal,
)
from .test_safety_c5_crashes import SCENARIOS as SCENARIOS_WITHOUT
from .test_safety_c5_crashes import SIZES as SIZES_WITHOUT
from .test_safety_c5_crashes import THRESHOLDS, Acknowledged, Step, step_truncate
from .test_safety_c6_crashes import ROLLING

SCENARIOS = {**SCENARIOS_WITHOUT, "rolling_sessions": ROLLING}
SIZES = {**SIZES_WITHOUT, "rolling_sessions": 100}
MANY_CALLS = {"append_big", "checkpoint", "truncate_checkpoint", "rolling_sessions"}
NAMES = [pytest.param(name, marks=[pytest.mark.long] * (name in MANY_CALLS)) for name in SCENARIOS]


def run_until_crash(disk: FaultyDisk, steps: list[Step], threshold: int) -> Acknowledged:
    """A step is acknowledged when its commit has returned."""
    promised = Acknowledged()
    try:
        manager = open_manager(disk, threshold=threshold, journal=JOURNAL)
        for step in steps:
            _run(step, manager, promised)
    except CrashError:
        pass
    return promised


def _run(step: Step, manager: StorageManager, promised: Acknowledged) -> None:
    after = Acknowledged()
    after.__dict__.update(promised.__dict__)
    try:
        step(manager, after)
        manager.commit()
        promised.__dict__.update(after.__dict__)
    except CrashError:
        # What it takes away, it may have taken away; what it adds, it may have added.
        promised.count = min(promised.count, after.count)
        promised.at_most = max(promised.at_most, after.at_most)
        promised.assigned = promised.assigned and after.assigned
        promised.session = min(promised.session, after.session)
        raise


def check_after_crash(
    disk: FaultyDisk, promised: Acknowledged, size: int, threshold: int, *, journal: bool
) -> None:
    settings = JOURNAL if journal else None
    manager = open_manager(disk, threshold=threshold, journal=settings)
    assert manager.damaged == {}
    assert manager.control.damaged == {}
    if promised.assigned:
        assert 0 in manager.partitions
    partition = manager.partitions.get(0)
    if partition is None:
        manager.close()
        return
    assert promised.count <= partition.max_txid + 1 <= promised.at_most
    assert_holds(partition, partition.max_txid + 1, size)
    assert partition.durable_fence >= promised.fence
    assert partition.info.session_id >= promised.session
    count = partition.max_txid + 1
    append(partition, count, 2, size)
    manager.commit()
    assert_holds(partition, count + 2, size)
    manager.close()
    manager = open_manager(disk, threshold=threshold)
    assert_holds(manager.get(0), count + 2, size)
    assert opens_in_release_0_13_2(disk, 0, manager.get(0).info.local_low_water_mark) == count + 1
    manager.close()


def number_of_calls(steps: list[Step], threshold: int) -> int:
    disk = empty_disk()
    run_until_crash(disk, steps, threshold)
    return len(disk.calls)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c7_crash_between_any_two_system_calls(name: str, mode: CrashMode) -> None:
    """The directory opens with and without a journal, acknowledged records are there, nothing else is."""
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
                check_after_crash(
                    disk, promised, SIZES.get(name, 40), threshold, journal=(boundary + seed) % 2 == 0
                )
            except BaseException:
                print(f"{name}: crash before call {boundary}, seed {seed}")
                raise


@pytest.mark.parametrize("first", [CrashMode.SOME, CrashMode.KEEP])
@pytest.mark.parametrize("name", NAMES)
def test_safety_c7_a_second_crash_during_the_replay(name: str, first: CrashMode) -> None:
    """The replay itself may be interrupted anywhere by a power loss, after another one, or after a kill that
    has left a commit in the page cache alone."""
    steps, size, threshold = SCENARIOS[name], SIZES.get(name, 40), THRESHOLDS.get(name, 700)
    rng = random.Random(name)
    calls = number_of_calls(steps, threshold)
    for boundary in range(10, calls, max(1, calls // 25)):
        for second in range(0, 60, 7):
            disk = empty_disk()
            disk.crash_before = boundary
            promised = run_until_crash(disk, steps, threshold)
            disk.restart(first, rng)
            disk.crash_before = second
            try:
                open_manager(disk, threshold=threshold, journal=JOURNAL if second % 2 else None)
            except CrashError:
                pass
            disk.restart(CrashMode.SOME, rng)
            check_after_crash(disk, promised, size, threshold, journal=bool(second % 3))


def test_safety_c7_power_is_lost_during_the_replay_of_what_a_failed_sync_has_left() -> None:
    """The pages look clean, so another sync of them does nothing."""
    for boundary in range(60):
        for seed in range(4):
            disk = empty_disk()
            manager = open_manager(disk, threshold=2000, journal=JOURNAL)
            append(manager.assign(0), 0, 3, 600)
            manager.commit()
            append(manager.get(0), 3, 1, 600)  # makes a segment
            disk.fail_sync_once = "journal-"
            assert isinstance(refusal(manager.commit), PartitionFailedError)
            disk.restart(CrashMode.KEEP)
            disk.crash_before = boundary
            with contextlib.suppress(CrashError):
                open_manager(disk, threshold=2000)
            disk.restart(CrashMode.SOME, random.Random(seed))
            manager = open_manager(disk, threshold=2000)
            assert manager.damaged == {}
            assert_holds(manager.get(0), 3, 600)
            manager.close()


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c7_crash_of_a_node_that_cuts_what_an_earlier_one_wrote(mode: CrashMode) -> None:
    """The journal holds nothing of the segments that go, so it cannot make them again."""
    earlier, later = ROLLING[:8], [*ROLLING[8:], step_truncate(2)]

    def begun(crash_after: int | None) -> tuple[FaultyDisk, Acknowledged]:
        disk = empty_disk()
        promised = run_until_crash(disk, earlier, 700)
        disk.restart(CrashMode.KEEP)
        open_manager(disk).close()
        disk.crash_before = None if crash_after is None else len(disk.calls) + crash_after
        try:
            manager = open_manager(disk, threshold=700, journal=JOURNAL)
            for step in later:
                _run(step, manager, promised)
        except CrashError:
            pass
        return disk, promised

    whole, _ = begun(None)
    for boundary in range(len(whole.calls)):
        disk, promised = begun(boundary)
        if disk.crash_before is not None and len(disk.calls) < disk.crash_before:
            break
        disk.restart(mode, random.Random(boundary))
        check_after_crash(disk, promised, 100, 700, journal=boundary % 2 == 0)


@pytest.mark.parametrize("name", NAMES)
def test_safety_c7_power_is_lost_after_the_process_had_ended(name: str) -> None:
    """What the first life left in the page cache only, names too, is no base for the second one."""
    steps, size, threshold = SCENARIOS[name], SIZES.get(name, 40), THRESHOLDS.get(name, 700)
    calls = number_of_calls(steps, threshold)
    for boundary in range(0, calls, max(1, calls // 120)):
        disk = empty_disk()
        disk.crash_before = boundary
        promised = run_until_crash(disk, steps, threshold)
        disk.restart(CrashMode.KEEP)
        manager = open_manager(disk, threshold=threshold, journal=JOURNAL)
        partition = manager.assign(0)
        count = partition.max_txid + 1
        fence = max(partition.durable_fence, 0) + 1
        partition.raise_fence(fence)
        partition.set_low_water_mark(fence, max(partition.info.low_water_mark, count - 1))
        append(partition, count, 2, size)
        manager.commit()
        disk.restart(CrashMode.LOSE)
        promised.count = promised.at_most = count + 2
        promised.fence = promised.session = fence
        promised.assigned = True
        try:
            check_after_crash(disk, promised, size, threshold, journal=boundary % 2 == 0)
        except BaseException:
            print(f"{name}: crash before call {boundary}")
            raise
