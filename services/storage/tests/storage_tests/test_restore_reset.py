"""`waltz storage restore-reset` of a directory that no node opens, as its journal or its witness is lost:
all copies are given up before a node opens it again, whatever was asked for and wherever the command ends
(safety rules A5, C6 and C7)."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest

from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import (
    NotAssignedError,
    PartitionDamagedError,
    StorageError,
    StorageStartError,
)
from waltz_storage.engine.inspect import inspect_control_file
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY
from waltz_storage.engine.journal.log import file_name
from waltz_storage.engine.restore_reset import reset_for_restore, would_reset
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .lost_files import CONTROL, WITNESS, lose, opened
from .lost_files import filled as without_journal
from .support import (
    JOURNAL,
    OTHER_KEY,
    ROOT,
    append,
    assert_holds,
    empty_disk,
    open_manager,
    refusal,
    segment_path,
    stopped_in_release,
)

IDS = (0, 2)
SESSION, FENCE = 7, 9


def lost_journal(*, remove: bool = True) -> FaultyDisk:
    """Records of partitions 0 and 2 were acknowledged that are in the journal only, and it is gone."""
    disk = empty_disk()
    manager = open_manager(disk, journal=JOURNAL)
    for partition_id in IDS:
        partition = manager.assign(partition_id)
        partition.raise_fence(SESSION)
        partition.set_low_water_mark(SESSION, -1)
        append(partition, 0, 4)
        partition.raise_fence(FENCE)
    manager.commit()
    manager.make()
    for partition_id in IDS:
        append(manager.get(partition_id), 4, 4)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    if remove:
        disk.remove_dir(f"{ROOT}/{JOURNAL_DIRECTORY}")
    return disk


def damaged_journal() -> FaultyDisk:
    """Its oldest file begins with a frame that is none."""
    disk = lost_journal(remove=False)
    names = sorted(name for name in disk.files() if name.startswith(f"{ROOT}/{JOURNAL_DIRECTORY}/"))
    disk.overwrite(names[0], 512 + 40, b"\xff" * 64)
    return disk


def lost_witness() -> FaultyDisk:
    """With it partition 2 has lost its newest segment and its side file."""
    disk = without_journal(IDS)
    lose(disk, [WITNESS, segment_path(2, 6), segment_path(2, 6, ".idx"), f"{ROOT}/2/waltz-fence"])
    return disk


def lost_witness_and_directory() -> FaultyDisk:
    """Nothing but the control entry says which sessions the fence of partition 2 has to keep out."""
    disk = without_journal(IDS)
    lose(disk, [WITNESS])
    disk.remove_dir(f"{ROOT}/2")
    return disk


def journal_in_release() -> FaultyDisk:
    """A node was killed at its end, when one file of its journal was released: nothing is lost."""
    disk = lost_journal(remove=False)
    manager = open_manager(disk, journal=JOURNAL)
    number = 8
    while not manager.settle_due:
        append(manager.get(0), number, 4, 200)
        manager.commit()
        number += 4
    stopped_in_release(disk, manager.close, 1)
    assert inspect_control_file(ROOT, fs=disk)[0].version == 3
    return disk


def start_of_a_node(disk: FaultyDisk) -> tuple[StorageStartError | None, dict[int, int]]:
    try:
        return None, sessions(disk)
    except StorageStartError as error:
        return error, {}


LOST = [lost_journal, damaged_journal, lost_witness, lost_witness_and_directory]


def sessions(disk: FaultyDisk) -> dict[int, int]:
    """By partition, as a node finds them that starts; `StorageStartError` when it does not."""
    manager = open_manager(disk, threshold=300)
    found = {}
    for partition_id, partition in manager.partitions.items():
        found[partition_id] = partition.info.session_id
        assert partition.durable_fence > SESSION, "the session that counted on the copy gets in again"
    manager.close()
    return found


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("partition_ids", [[0], [2], [1], [], [0, 1, 3]])
@pytest.mark.parametrize("dry_run", [True, False])
def test_safety_a5_where_no_copy_can_be_trusted_a_part_is_refused(
    lost: Callable[[], FaultyDisk], partition_ids: list[int], dry_run: bool
) -> None:
    disk = lost()
    before = disk.files()
    reset = would_reset if dry_run else reset_for_restore
    error = refusal(lambda: reset(ROOT, partition_ids, fs=disk))
    assert isinstance(error, StorageStartError)
    assert "no copy in it can be trusted" in str(error)
    assert "without --partition" in str(error)
    assert disk.files() == before
    assert isinstance(refusal(lambda: open_manager(disk)), StorageStartError)
    assert reset(ROOT, [0, 2, 3], fs=disk) == [0, 2, 3], "all that are assigned are named"


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("dry_run", [True, False])
def test_safety_a5_a_partition_that_does_not_exist_resets_nothing(
    lost: Callable[[], FaultyDisk], dry_run: bool
) -> None:
    disk = lost()
    before = disk.files()
    reset = would_reset if dry_run else reset_for_restore
    with pytest.raises(NotAssignedError, match="partition 9 does not exist: the cluster has 4"):
        reset(ROOT, [0, 2, 9], fs=disk)
    assert disk.files() == before
    assert isinstance(refusal(lambda: open_manager(disk)), StorageStartError)


@pytest.mark.parametrize("dry_run", [True, False])
def test_safety_a5_a_damaged_entry_that_is_named_resets_nothing(dry_run: bool) -> None:
    disk = without_journal(IDS)
    disk.overwrite(CONTROL, 128 + 76 * 2, bytes(76))
    before = disk.files()
    reset = would_reset if dry_run else reset_for_restore
    with pytest.raises(PartitionDamagedError, match="partition 2"):
        reset(ROOT, [0, 2], fs=disk)
    assert disk.files() == before
    assert reset(ROOT, None, fs=disk) == [0]


@pytest.mark.parametrize("lost", [*LOST, lambda: without_journal(IDS), journal_in_release])
@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_a5_a_reset_that_is_interrupted_anywhere_leaves_no_copy_with_its_session(
    lost: Callable[[], FaultyDisk], mode: CrashMode
) -> None:
    """A directory that no node opened is refused until the last copy is reset; one that was only restored is
    refused from the first change on. The same command ends the work, also when it is interrupted again."""
    rng = random.Random(f"{mode}")
    refused, calls = 0, 0
    while True:
        disk = lost()
        start = len(disk.calls)
        disk.crash_before = start + calls
        try:
            reset_for_restore(ROOT, fs=disk)
        except CrashError:
            disk.restart(mode, rng)
        else:
            break
        finally:
            disk.crash_before = None
        error, found = start_of_a_node(disk)
        refused += error is not None
        assert error is None or "restore-reset" in str(error)
        untouched = lost not in LOST and set(found.values()) == {SESSION}
        assert untouched or set(found.values()) <= {-1}, (calls, found)
        for again in range(calls % 5, 200, 5):
            disk.crash_before = len(disk.calls) + again
            try:
                reset_for_restore(ROOT, fs=disk)
            except CrashError:
                disk.restart(mode, rng)
                if again > 20:
                    break
            else:
                break
        disk.crash_before = None
        reset = reset_for_restore(ROOT, fs=disk)
        assert reset == [0, 2] or lost in (lost_journal, damaged_journal), (
            "a power loss takes what was in the journal only"
        )
        assert set(sessions(disk).values()) <= {-1}
        calls += 1
    assert refused > 20
    assert set(sessions(disk).values()) == {-1}


@pytest.mark.parametrize("directory", [f"{ROOT}/{JOURNAL_DIRECTORY}", "/other"])
def test_safety_a5_a_journal_that_comes_back_does_not_end_a_reset(directory: str) -> None:
    """As its volume is there again, after the command was killed. Nodes open the directory before the first
    change or after the last one, and the journal is free then."""
    lost, refused = lost_journal(remove=False), 0
    open_manager(lost, journal=JOURNAL).close()  # the sessions are in the files, and no longer in the journal
    manager = open_manager(lost, journal=JOURNAL)
    for partition_id in IDS:
        append(manager.get(partition_id), 8, 2)
    manager.commit()
    lost.restart(CrashMode.KEEP)
    inside = f"{ROOT}/{JOURNAL_DIRECTORY}"
    saved = {name.removeprefix(inside): raw for name, raw in lost.files().items() if name.startswith(inside)}
    lost.remove_dir(inside)
    configured = None if directory == inside else directory
    for calls in range(1000):
        disk = copy.deepcopy(lost)
        disk.crash_before = len(disk.calls) + calls
        try:
            reset_for_restore(ROOT, fs=disk, journal_directory=configured)
        except CrashError:
            disk.restart(CrashMode.KEEP)
        else:
            break
        disk.add_dir(directory)
        for name, raw in saved.items():
            disk.put(f"{directory}{name}", raw)
        try:
            control = ControlFile.open_existing(disk, ROOT, configured)
        except StorageStartError:
            refused += 1
            assert reset_for_restore(ROOT, fs=disk, journal_directory=configured) == [0, 2]
            control = ControlFile.open_existing(disk, ROOT, configured)
            given_up = disk.content(f"{directory}/{file_name(0)}")
            assert given_up != saved[f"/{file_name(0)}"], "the files of the journal are free"
        found = {control.info(partition_id).session_id for partition_id in IDS}
        assert found in ({-1}, {SESSION}), calls
        control.close()
    assert refused > 20


def test_safety_a5_a_reset_that_did_not_end_is_said_and_covers_all() -> None:
    disk = without_journal(IDS)
    disk.fail_sync = f"{ROOT}/2/waltz-fence"
    with pytest.raises(StorageStartError, match="Input/output error"):
        reset_for_restore(ROOT, fs=disk)
    disk.fail_sync = None
    assert inspect_control_file(ROOT, fs=disk)[0].version == 2
    for action in (lambda: open_manager(disk), lambda: ControlFile.open_existing(disk, ROOT)):
        assert "a reset of its copies was begun and did not end" in str(refusal(action))
    for reset in (would_reset, reset_for_restore):
        with pytest.raises(StorageError, match="an earlier reset of it did not end"):
            reset(ROOT, [0], fs=disk)
        assert reset(ROOT, None, fs=disk) == [0, 2]
    assert inspect_control_file(ROOT, fs=disk)[0].version == 0
    assert set(sessions(disk).values()) == {-1}


def test_safety_a5_release_0_13_2_does_not_open_a_directory_that_is_being_reset() -> None:
    """It compares the key, and earlier releases of ours the version."""
    disk = without_journal(IDS)
    plain = disk.content(CONTROL)[:128]
    disk.fail_sync = f"{ROOT}/0/waltz-fence"
    with pytest.raises(StorageStartError):
        reset_for_restore(ROOT, fs=disk)
    assert disk.content(CONTROL)[12:28] != plain[12:28]
    assert disk.content(CONTROL)[:4] == b"\0\0\0\2"
    disk.fail_sync = None
    reset_for_restore(ROOT, fs=disk)
    assert disk.content(CONTROL)[:128] == plain


def test_a_copy_whose_journal_is_lost_can_be_given_up() -> None:
    """Its marks say that it holds nothing for certain; its peers bring it up to date."""
    disk = lost_journal()
    assert reset_for_restore(ROOT, fs=disk) == [0, 2]
    manager = open_manager(disk)
    assert {pid: one.info.session_id for pid, one in manager.partitions.items()} == {0: -1, 2: -1}
    for partition_id in IDS:
        assert_holds(manager.get(partition_id), 4)
    manager.close()


def test_a_part_of_a_directory_whose_journal_is_being_released_can_be_reset() -> None:
    disk = journal_in_release()
    disk.remove_dir(f"{ROOT}/{JOURNAL_DIRECTORY}")  # nothing of it is needed
    assert would_reset(ROOT, [0], fs=disk) == [0]
    assert reset_for_restore(ROOT, [0], fs=disk) == [0]
    assert sessions(disk) == {0: -1, 2: SESSION}


def test_a_part_of_a_restored_directory_can_be_reset() -> None:
    """Its journal can be replayed, or it needs none: a node would open it as it is."""
    disk = empty_disk()
    manager = open_manager(disk, journal=JOURNAL)
    for partition_id in IDS:
        manager.assign(partition_id).raise_fence(SESSION)
        manager.get(partition_id).set_low_water_mark(SESSION, -1)
        append(manager.get(partition_id), 0, 4)
    manager.commit()
    disk.restart(CrashMode.LOSE)
    assert would_reset(ROOT, [0], fs=disk) == [0]
    assert reset_for_restore(ROOT, [0], fs=disk) == [0]
    manager = opened(disk)
    assert {pid: one.info.session_id for pid, one in manager.partitions.items()} == {0: -1, 2: SESSION}
    for partition_id in IDS:
        assert_holds(manager.get(partition_id), 4)
    manager.close()


def test_the_directory_of_another_cluster_stays_so() -> None:
    disk = lost_journal()
    reset_for_restore(ROOT, fs=disk)
    with pytest.raises(StorageStartError, match="belongs to another cluster"):
        open_manager(disk, key=OTHER_KEY)
