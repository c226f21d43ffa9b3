"""Files lost after a crash between any two system calls, and repairs that are interrupted (safety rule
C6)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .lost_files import NEWEST, SIDECAR, WITNESS, filled, lose, opened
from .support import ROOT, append, assert_holds, empty_disk, open_manager, segment_path
from .test_safety_c5_crashes import (
    Acknowledged,
    Step,
    number_of_calls,
    run_until_crash,
    step_append,
    step_assign,
    step_fence,
    step_mark,
    step_truncate,
)

ROLLING: list[Step] = [
    step_assign(),
    step_fence(1),
    step_mark(1, -1),
    *[step_append(first, 4, 100) for first in (0, 4, 8)],
    step_fence(2),
    step_mark(2, 11),
    step_append(12, 4, 100),
    step_truncate(9),
    step_append(10, 3, 100),
    step_fence(3),
]


def survivors(disk: FaultyDisk) -> list[tuple[str, ...]]:
    """Files to lose at a crash: each alone, the newest segment with its index and with the side file, all."""
    names = sorted(name for name in disk.files() if name.startswith(f"{ROOT}/0/"))
    newest = [name for name in names if name[-4:] in (".seg", ".idx")][-2:]
    sidecar = [name for name in names if name == SIDECAR]
    return [(), *((name,) for name in names), tuple(newest), (*newest, *sidecar), tuple(names)]


def check_promises(disk: FaultyDisk, promised: Acknowledged, lost: tuple[str, ...]) -> None:
    manager = open_manager(disk, threshold=700)
    partition = manager.partitions.get(0)
    if partition is None:
        assert lost or not promised.assigned
        manager.close()
        return
    assert partition.durable_fence >= promised.fence
    if partition.info.session_id >= 0:  # else it is absent, rule A1
        assert partition.info.session_id >= promised.session
        assert promised.count <= partition.max_txid + 1 <= promised.at_most
        assert_holds(partition, partition.max_txid + 1, 100)
    manager.close()


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c6_files_lost_after_a_crash_between_any_two_system_calls(mode: CrashMode) -> None:
    """No crash leaves a moment in which lost files go unnoticed, or in which a partition that lost none is
    refused."""
    total = number_of_calls(ROLLING)
    for boundary in range(total + 1):
        disk = empty_disk()
        disk.crash_before = boundary
        run_until_crash(disk, ROLLING)
        disk.restart(mode, random.Random(boundary))
        for lost in survivors(disk):
            copy = empty_disk()
            copy.crash_before = boundary
            promised = run_until_crash(copy, ROLLING)
            copy.restart(mode, random.Random(boundary))
            lose(copy, lost)
            try:
                check_promises(copy, promised, lost)
            except BaseException:
                print(f"crash before call {boundary}, lost: {lost}")
                raise


def test_safety_c6_a_new_segment_of_before_a_crash_is_witnessed_before_it_takes_records() -> None:
    """The crash may have come before the witness heard of it."""
    for boundary in range(number_of_calls(ROLLING) + 1):
        disk = empty_disk()
        disk.crash_before = boundary
        promised = run_until_crash(disk, ROLLING)
        disk.restart(CrashMode.KEEP)
        if promised.session < 0:
            continue
        manager = open_manager(disk, threshold=700)
        next_txid = manager.get(0).max_txid + 1
        append(manager.get(0), next_txid, 1, 100)
        disk.restart(CrashMode.LOSE)  # and with it the mark in the side file
        newest = max(name for name in disk.files() if name.endswith(".seg"))
        lose(disk, [newest, newest[:-4] + ".idx"])
        manager = open_manager(disk, threshold=700)
        assert manager.problems(), f"crash before call {boundary}"
        manager.close()


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c6_a_repair_that_is_interrupted_does_not_make_a_lost_copy_whole(mode: CrashMode) -> None:
    """Removing the partition, or the reset of the directory, crashes at any call: then it is refused still,
    or has no session."""
    repairs: list[tuple[Callable[[FaultyDisk], object], tuple[str, ...]]] = [
        (lambda disk: opened(disk).unassign(0, delete_files=True), (SIDECAR,)),
        (lambda disk: opened(disk).unassign(0, delete_files=True), (segment_path(0, NEWEST), SIDECAR)),
        (
            lambda disk: opened(disk).set_available(0, False),
            (segment_path(0, NEWEST), segment_path(0, NEWEST, ".idx")),
        ),
        (lambda disk: reset_for_restore(ROOT, fs=disk), (SIDECAR, segment_path(0, NEWEST))),
        (lambda disk: reset_for_restore(ROOT, fs=disk), (WITNESS, segment_path(0, NEWEST))),
    ]
    for repair, lost in repairs:
        for boundary in range(1000):
            disk = filled()
            lose(disk, lost)
            disk.crash_before = boundary
            done = True
            try:
                repair(disk)
            except CrashError:
                done = False
            disk.restart(mode, random.Random(boundary))
            try:
                manager = opened(disk)
            except StorageStartError as error:
                refused = str(error)
                assert WITNESS in lost or "did not end" in refused, (lost, boundary, refused)
            else:
                partition = manager.partitions.get(0)
                if partition is not None:
                    assert partition.info.session_id == -1, (lost, boundary)
                    assert partition.durable_fence >= 9
                manager.close()
            if done:
                break
        else:
            raise AssertionError("it never ended")
