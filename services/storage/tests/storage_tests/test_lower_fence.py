"""The way down for a fence that was raised to where no session comes: on a stopped node, whatever interrupts
it."""

from __future__ import annotations

import random

import pytest

from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.fence_repair import lower_fence, read_fence
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .support import JOURNAL, KEY, OTHER_KEY, ROOT, empty_disk, open_manager

HIGHEST = 2**63 - 1


def raised(*, fences: tuple[int, ...] = (7, HIGHEST)) -> FaultyDisk:
    """A stopped node whose copy of partition 0 completed session 5, and was then asked with these."""
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(0)
    partition.set_low_water_mark(5, -1)
    for fence in fences:
        partition.raise_fence(fence)
    manager.close()
    return disk


def fence_after_start(disk: FaultyDisk) -> int:
    manager = open_manager(disk)
    try:
        return manager.partitions[0].durable_fence
    finally:
        manager.close()


def test_safety_b4_a_fence_is_put_down_for_good() -> None:
    disk = raised()
    assert read_fence(ROOT, 0, KEY, 4, fs=disk) == (HIGHEST, 5)
    assert lower_fence(ROOT, 0, 6, KEY, 4, fs=disk) == (6, 5)
    assert fence_after_start(disk) == 6
    assert lower_fence(ROOT, 0, 6, KEY, 4, fs=disk) == (6, 5)
    assert lower_fence(ROOT, 0, 9, KEY, 4, fs=disk) == (6, 5)  # it is never raised by this


@pytest.mark.parametrize("session_id", [5, 4, -1])
def test_safety_b4_no_session_that_the_copy_completed_is_let_in_again(session_id: int) -> None:
    disk = raised()
    with pytest.raises(StorageStartError, match="completed session 5"):
        lower_fence(ROOT, 0, session_id, KEY, 4, fs=disk)
    assert fence_after_start(disk) == HIGHEST


def test_safety_b4_a_running_node_and_a_copy_that_is_not_there_are_refused() -> None:
    disk = raised()
    manager = open_manager(disk)
    with pytest.raises(StorageStartError, match="using this directory"):
        lower_fence(ROOT, 0, 6, KEY, 4, fs=disk)
    manager.close()
    for partition_id, reason in (
        (1, "only 0.13.2 has used it.* keeps its fence in memory: restart it"),
        (99, "99"),
    ):
        with pytest.raises(StorageStartError, match=reason):
            lower_fence(ROOT, partition_id, 6, KEY, 4, fs=disk)


@pytest.mark.parametrize("mode", [CrashMode.KEEP, CrashMode.LOSE, CrashMode.SOME])
def test_safety_b4_an_interrupted_lowering_leaves_a_fence_and_can_be_repeated(mode: CrashMode) -> None:
    rng = random.Random(1)
    calls = 0
    while True:
        disk = raised()
        disk.crash_before = len(disk.calls) + calls
        try:
            lower_fence(ROOT, 0, 6, KEY, 4, fs=disk)
        except CrashError:
            disk.restart(mode, rng)
        else:
            break
        assert fence_after_start(disk) in (6, HIGHEST)
        assert lower_fence(ROOT, 0, 6, KEY, 4, fs=disk) == (6, 5)
        assert fence_after_start(disk) == 6
        calls += 1
    assert calls > 3


def test_safety_b4_the_fence_of_another_cluster_is_not_put_down() -> None:
    """Its sessions are counted elsewhere: below the fence are some that were given out there."""
    disk = raised(fences=(51,))
    before = disk.files()
    for key, num_partitions, text in (
        (OTHER_KEY, 4, f"belongs to another cluster: its key is {KEY}, ZooKeeper has {OTHER_KEY}"),
        (KEY, 8, "was made for 4 partitions, ZooKeeper has 8"),
    ):
        with pytest.raises(StorageStartError, match=text):
            lower_fence(ROOT, 0, 6, key, num_partitions, fs=disk)
        with pytest.raises(StorageStartError, match=text):
            read_fence(ROOT, 0, key, num_partitions, fs=disk)
    assert disk.files() == before


def killed(place: str | None) -> FaultyDisk:
    """A node with a journal whose fence is in that alone."""
    disk = empty_disk()
    disk.add_dir("/volume")
    manager = open_manager(disk, journal=JOURNAL._replace(directory=place))
    manager.assign(0).set_low_water_mark(5, -1)
    manager.get(0).raise_fence(HIGHEST)
    manager.commit()
    disk.restart(CrashMode.LOSE)
    return disk


@pytest.mark.parametrize("place", [None, "/volume/journal"])
def test_safety_b4_a_fence_in_the_journal_of_a_killed_node_is_put_down(place: str | None) -> None:
    disk = killed(place)
    assert read_fence(ROOT, 0, KEY, 4, fs=disk, journal_directory=place) == (HIGHEST, 5)
    disk = killed(place)
    assert lower_fence(ROOT, 0, 6, KEY, 4, fs=disk, journal_directory=place) == (6, 5)
    assert fence_after_start(disk) == 6


def test_a_fence_that_is_read_without_a_replay_changes_no_file_of_a_killed_node() -> None:
    disk = killed(None)
    before = disk.files()
    with pytest.raises(StorageStartError, match=f"waltz disk settle {ROOT}.*--journal"):
        read_fence(ROOT, 0, KEY, 4, fs=disk, replay=False)
    assert disk.files() == before
    manager = open_manager(disk, journal=JOURNAL)
    with pytest.raises(StorageStartError, match="using this directory"):
        read_fence(ROOT, 0, KEY, 4, fs=disk, replay=False)
    manager.close()
    assert read_fence(ROOT, 0, KEY, 4, fs=disk, replay=False) == (HIGHEST, 5)
