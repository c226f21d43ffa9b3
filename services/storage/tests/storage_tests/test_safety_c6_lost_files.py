"""Files that are gone from a storage directory (safety rule C6): refused, or nothing is missing. And fences
stay (B2)."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable

import pytest

from waltz_storage.engine.errors import (
    DiskWriteError,
    OutOfResourcesError,
    PartitionFailedError,
    StorageStartError,
)
from waltz_storage.engine.inspect import inspect_directory
from waltz_storage.engine.layout import WITNESS_NAME
from waltz_storage.engine.partition_info import FLAG_AVAILABLE
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.engine.witness import REGION_SIZE, read_slots
from waltz_testkit.disk_image import Inode
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from .lost_files import (
    CONTROL,
    NEWEST,
    RECORDS,
    SIDECAR,
    WITNESS,
    assert_whole,
    filled,
    lose,
    opened,
    subsets,
)
from .support import (
    ROOT,
    append,
    assert_holds,
    empty_disk,
    forget_our_files,
    open_manager,
    refusal,
    segment_path,
)


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c6_every_subset_of_a_partitions_files(mode: CrashMode) -> None:
    """All that is left, by which files are gone: either nothing that was promised is missing, or the
    partition is refused.

    After a power loss too, which takes what was not synced along. The one repair works in each case and keeps
    the fence.
    """
    names = [name for name in filled().files() if name.startswith(f"{ROOT}/0/")]
    assert len(names) == 7
    whole = []
    for lost in subsets(names):
        disk = filled(mode=mode)
        lose(disk, lost)
        before = disk.files()
        manager = opened(disk)
        if 0 in manager.partitions:
            assert_whole(manager)
            whole.append(lost)
            manager.close()
            continue
        assert "damage" in manager.damaged[0], lost
        assert all(disk.files()[name] == raw for name, raw in before.items() if name.endswith(".seg")), lost
        assert inspect_directory(ROOT, fs=disk).problems, lost
        manager.unassign(0, delete_files=True)
        assert inspect_directory(ROOT, fs=disk).problems == []
        partition = manager.assign(0)
        assert (partition.info.session_id, partition.max_txid, partition.durable_fence) == (-1, -1, 9), lost
        manager.close()
    # An index is made anew from its data file, which is checked record by record then.
    assert all(name.endswith(".idx") for lost in whole for name in lost)
    assert len(whole) == 7


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c6_the_directory_of_the_partition_is_gone(mode: CrashMode) -> None:
    disk = filled(mode=mode)
    disk.remove_dir(f"{ROOT}/0")
    manager = opened(disk)
    assert "its directory is missing" in manager.damaged[0]
    assert "remove-partition" in manager.damaged[0]
    manager.unassign(0, delete_files=True)
    assert manager.assign(0).durable_fence == 9  # nobody but the witness knew it
    manager.close()


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c6_the_witness_is_gone_with_any_files_but_the_side_file(mode: CrashMode) -> None:
    """The node does not start; after the reset all copies are absent (A1), keep what they have, and the
    fence."""
    names = [name for name in filled().files() if name.startswith(f"{ROOT}/0/") and name != SIDECAR]
    for lost in [(), *subsets(names)]:
        disk = filled(mode=mode)
        lose(disk, [*lost, WITNESS])
        with pytest.raises(StorageStartError, match=r"waltz-witness is missing.*restore-reset /data"):
            opened(disk)
        reset_for_restore(ROOT, fs=disk)
        manager = opened(disk)
        if 0 in manager.partitions:
            assert manager.get(0).info.session_id == -1
            assert manager.get(0).durable_fence >= 9
            append(manager.get(0), manager.get(0).max_txid + 1)
        else:
            assert lost, "nothing else is missing"
        manager.close()


def test_safety_c6_without_any_file_of_ours_a_directory_is_one_of_0_13_2() -> None:
    """What can not be told apart: witness and every side file gone. No segment at all is damage there too."""
    disk = filled()
    forget_our_files(disk)
    manager = opened(disk)
    assert_holds(manager.get(0), RECORDS)
    manager.close()
    disk = filled()
    lose(disk, [WITNESS, *(name for name in disk.files() if name.startswith(f"{ROOT}/0/"))])
    manager = opened(disk)
    assert "segment that begins with transaction 0 is missing" in manager.damaged[0]
    manager.close()


def test_safety_c6_the_control_file_is_gone() -> None:
    """With records left the node does not start; a directory without any is a new disk: absent, rule A1."""
    names = [name for name in filled().files() if name != CONTROL]
    for lost in [(), *subsets(names)]:
        disk = filled()
        lose(disk, [CONTROL, *lost])
        if any(name.endswith((".seg", ".idx")) for name in disk.files()):
            with pytest.raises(StorageStartError, match=r"control file is missing.* holds segment files"):
                opened(disk)
            continue
        manager = opened(disk)
        assert manager.problems() == {}
        partition = manager.assign(0)
        assert (partition.info.session_id, partition.max_txid) == (-1, -1)
        if set(disk.files()) & {WITNESS, SIDECAR} - set(lost):
            assert partition.durable_fence == 9
        manager.close()


def test_safety_c6_files_cut_to_nothing_count_as_gone() -> None:
    for name in (SIDECAR, segment_path(0, NEWEST)):
        for size in (0, 100):
            disk = filled()
            disk.set_size(name, size)
            disk.set_size(segment_path(0, NEWEST, ".idx"), 128)
            manager = opened(disk)
            assert posixpath.basename(name) in manager.damaged[0]
            manager.close()


@pytest.mark.parametrize("slots", [(0,), (512,), (0, 512)])
def test_safety_c6_a_damaged_witness(slots: tuple[int, ...]) -> None:
    """One slot: the other one asks for less, or speaks of an older entry. Both: it has forgotten, and that is
    damage."""
    disk = filled()
    for offset in slots:
        disk.flip_bit(WITNESS, offset + 9)
    manager = opened(disk)
    if len(slots) == 1:
        assert_whole(manager)
    else:
        assert "no longer says anything" in manager.damaged[0]
        manager.set_available(0, True)
        manager.close()
        manager = opened(disk)
        assert "no longer says anything" in manager.damaged[0], "a flag made it whole"
    manager.close()


def test_safety_c6_a_slot_speaks_of_its_own_partition_only() -> None:
    region = filled().files()[WITNESS][:REGION_SIZE]
    assert read_slots(region, 0) != (None, None)
    assert read_slots(region, 1) == (None, None)


def test_safety_c6_a_directory_of_before_gets_a_witness() -> None:
    """It is opened as it is; the next session is the first that is witnessed."""
    disk = filled()
    forget_our_files(disk)
    manager = opened(disk)
    assert not disk.exists(WITNESS)
    manager.get(0).raise_fence(10)
    manager.get(0).set_low_water_mark(10, RECORDS - 1)
    manager.close()
    lose(disk, [segment_path(0, NEWEST), segment_path(0, NEWEST, ".idx"), SIDECAR])
    manager = opened(disk)
    assert "waltz-fence and 0000000000000000006.seg" in manager.damaged[0]
    manager.close()


def by_0_13_2(disk: FaultyDisk, action: Callable[[StorageManager], object]) -> None:
    """Run a node that neither reads nor writes our files."""
    ours = {name: raw for name, raw in disk.files().items() if name in (WITNESS, SIDECAR)}
    lose(disk, ours)
    manager = opened(disk)
    action(manager)
    manager.close()
    lose(disk, [name for name in disk.files() if name in (WITNESS, SIDECAR)])
    for name, raw in ours.items():
        disk.put(name, raw)


def shorter(manager: StorageManager) -> None:
    manager.get(0).truncate(2)
    manager.get(0).set_low_water_mark(10, 2)


def longer(manager: StorageManager) -> None:
    manager.get(0).set_low_water_mark(10, RECORDS - 1)
    append(manager.get(0), RECORDS, 8)


def another(manager: StorageManager) -> None:
    manager.unassign(0, delete_files=True)
    manager.assign(0).set_low_water_mark(10, -1)
    append(manager.get(0), 0, 2)


@pytest.mark.parametrize(
    ("action", "last"), [(shorter, 2), (longer, RECORDS + 7), (another, 1), (lambda _: None, RECORDS - 1)]
)
def test_safety_c6_release_0_13_2_ran_in_between(
    action: Callable[[StorageManager], object], last: int
) -> None:
    """It adds and deletes segments and whole partitions and never looks at our files: nothing is refused, the
    fence stays."""
    disk = filled()
    by_0_13_2(disk, action)
    manager = opened(disk)
    assert manager.problems() == {}
    partition = manager.get(0)
    assert partition.max_txid == last
    assert partition.durable_fence >= 9
    partition.set_low_water_mark(10, last)  # a session that goes on raises no fence
    manager.close()
    lose(disk, [SIDECAR])
    manager = opened(disk)
    assert "waltz-fence" in manager.damaged[0]
    manager.close()


def test_safety_c6_an_empty_disk_is_absent_and_not_damaged() -> None:
    disk = filled()
    disk.wipe(ROOT)
    manager = opened(disk)
    assert manager.problems() == {}
    assert manager.assign(0).info.session_id == -1
    manager.close()


@pytest.mark.parametrize("session_id", [7, 9])
def test_safety_c6_a_partition_that_was_removed_may_lose_everything(session_id: int) -> None:
    """Its directory is left behind and somebody clears it away: added again it opens, and the fence is where
    it was, past the session that counted on the copy (B2)."""
    disk = filled()
    manager = opened(disk)
    manager.get(0).set_low_water_mark(session_id, RECORDS - 1)
    manager.unassign(0, delete_files=True)
    manager.close()
    disk.remove_dir(f"{ROOT}/0")
    manager = opened(disk)
    assert manager.problems() == {}
    assert manager.assign(0).durable_fence == max(9, session_id + 1)
    manager.close()


def test_safety_c6_other_partitions_go_on() -> None:
    disk = filled((0, 2))
    lose(disk, [name for name in disk.files() if name.startswith(f"{ROOT}/0/")])
    manager = opened(disk)
    assert list(manager.problems()) == [0]
    append(manager.get(2), RECORDS)
    assert_holds(manager.get(2), RECORDS + 1)
    manager.close()


def test_an_append_into_the_open_segment_does_not_touch_the_witness() -> None:
    disk = filled()
    manager = opened(disk)
    disk.calls.clear()
    append(manager.get(0), RECORDS)
    assert not [call for call in disk.calls if call[1] == WITNESS]
    append(manager.get(0), RECORDS + 1)
    assert [call[0] for call in disk.calls if call[1] == WITNESS] == ["pwrite", "sync"]
    manager.close()


def test_opening_costs_one_sync_for_the_witness_of_all_partitions() -> None:
    disk = filled(range(4))
    disk.calls.clear()
    manager = opened(disk)
    assert [call[0] for call in disk.calls if call[1] == WITNESS] == ["pwrite", "sync"]
    manager.close()


def test_opening_fills_no_hole_of_the_witness() -> None:
    """On a disk that is full to the last block it could not, and the node would not start."""
    disk = empty_disk()
    for partition_id in (3, 4, 900, 2_000):
        manager = open_manager(disk, num_partitions=4_096)
        manager.assign(partition_id).raise_fence(1)
        manager.close()
    before = len(disk.calls)
    manager = open_manager(disk, num_partitions=4_096)
    written = [call[2:] for call in disk.calls[before:] if call[:2] == ("pwrite", WITNESS)]
    last = len(disk.content(WITNESS)) - 2_000 * REGION_SIZE
    expected = [(3, 2 * REGION_SIZE), (900, REGION_SIZE), (2_000, last)]
    assert written == [(REGION_SIZE * partition_id, size) for partition_id, size in expected]
    assert [manager.get(one).durable_fence for one in (3, 4, 900, 2_000)] == [1] * 4
    manager.close()


def test_safety_c3_a_failed_sync_of_the_witness_takes_the_partition_out_of_service() -> None:
    disk = filled()
    manager = opened(disk)
    disk.fail_sync_once = WITNESS
    with pytest.raises(PartitionFailedError, match="waltz-witness"):
        manager.get(0).raise_fence(12)
    assert isinstance(refusal(lambda: append(manager.get(0), RECORDS)), PartitionFailedError)
    manager.close()
    disk.restart(CrashMode.LOSE)
    manager = opened(disk)
    assert_whole(manager)
    manager.close()


def test_a_disk_without_room_for_the_witness_of_a_new_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new segment is taken back; later the log rolls, and the witness knows."""
    disk = filled()
    manager = opened(disk)
    append(manager.get(0), RECORDS)
    real = FaultyDisk.room

    def room(self: FaultyDisk, inode: Inode, offset: int, size: int) -> int:
        if inode is self._names[ROOT][WITNESS_NAME]:
            raise OSError(errno.ENOSPC, "no room")
        return real(self, inode, offset, size)

    with monkeypatch.context() as patched:
        patched.setattr(FaultyDisk, "room", room)
        assert isinstance(refusal(lambda: append(manager.get(0), RECORDS + 1)), DiskWriteError)
    assert manager.get(0).num_segments == 3
    assert not disk.exists(segment_path(0, RECORDS + 1))
    append(manager.get(0), RECORDS + 1)
    assert manager.get(0).num_segments == 4
    manager.close()
    lose(disk, [segment_path(0, RECORDS + 1), segment_path(0, RECORDS + 1, ".idx")])
    manager = opened(disk)
    assert "0000000000000000009.seg" in manager.damaged[0]
    manager.close()


def test_a_witness_that_cannot_be_made_for_want_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = empty_disk()
    manager = opened(disk)
    partition = manager.assign(0)
    real = disk.open

    def scarce(name: str, *, create: bool = False, read_only: bool = False) -> object:
        if name == WITNESS:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(name, create=create, read_only=read_only)

    monkeypatch.setattr(disk, "open", scarce)
    with pytest.raises(OutOfResourcesError):
        partition.raise_fence(3)
    assert (partition.failed, partition.durable_fence) == (None, -1)
    monkeypatch.undo()
    partition.raise_fence(3)
    partition.set_low_water_mark(3, -1)
    manager.close()
    lose(disk, [SIDECAR])
    manager = opened(disk)
    assert "waltz-fence" in manager.damaged[0]
    manager.close()


def test_the_flag_of_a_refused_partition_can_be_set_and_changes_nothing() -> None:
    disk = filled()
    lose(disk, [SIDECAR])
    for available in (False, True):
        manager = opened(disk)
        manager.set_available(0, available)
        assert bool(manager.control.info(0).flags & FLAG_AVAILABLE) is available
        manager.close()
    manager = opened(disk)
    assert "waltz-fence" in manager.damaged[0]
    manager.close()
