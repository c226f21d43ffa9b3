"""Safety rules of the disk: torn tails, damage, failed syncs, truncation."""

from __future__ import annotations

import contextlib
import struct

import pytest

from waltz_storage.engine.errors import (
    DiskWriteError,
    PartitionDamagedError,
    PartitionFailedError,
    RecordDamagedError,
)
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .support import (
    append,
    assert_holds,
    batch,
    empty_disk,
    forget_our_files,
    open_manager,
    path,
    payload,
    refusal,
    segment_path,
)


def filled(count: int = 10, *, size: int = 40, mark: int | None = None) -> FaultyDisk:
    """A directory with some records, cleanly closed."""
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(0)
    for txid in range(count):
        append(partition, txid, 1, size)
        if mark is not None and txid == mark:
            partition.set_low_water_mark(1, mark)
    manager.close()
    return disk


RECORD = 80  # bytes of a record with 40 bytes of data


def test_safety_c2_torn_tail_is_cut() -> None:
    disk = filled()
    forget_our_files(disk)
    disk.set_size(segment_path(0, 0), 128 + 9 * RECORD + 33)
    manager = open_manager(disk)
    assert manager.get(0).max_txid == 8
    assert len(disk.content(segment_path(0, 0))) == 128 + 9 * RECORD
    assert_holds(manager.get(0), 9)
    manager.close()


def test_safety_c2_damage_at_or_below_the_synced_mark_is_refused() -> None:
    """The same torn file with the sidecar that says it was synced: nothing is cut, the partition is
    refused."""
    disk = filled()
    disk.set_size(segment_path(0, 0), 128 + 9 * RECORD + 33)
    before = disk.content(segment_path(0, 0))
    manager = open_manager(disk)
    assert "transaction 9 is missing or damaged, 9 was synced" in manager.damaged[0]
    with pytest.raises(PartitionDamagedError):
        manager.get(0)
    assert disk.content(segment_path(0, 0)) == before
    manager.close()


@pytest.mark.parametrize("at", [0, 9, 30, 33, 60, 79])
def test_safety_c2_damage_below_the_local_mark_is_refused(at: int) -> None:
    disk = filled(mark=5)
    forget_our_files(disk)
    disk.flip_bit(segment_path(0, 0), 128 + 4 * RECORD + at)
    manager = open_manager(disk)
    assert "transaction 4" in manager.damaged[0]
    manager.close()


@pytest.mark.parametrize("at", [0, 9, 30, 33, 60, 79])
def test_safety_c2_damage_before_valid_records_is_refused(at: int) -> None:
    """Nothing is certain, but a broken record with valid ones behind it is no torn tail."""
    disk = filled()
    forget_our_files(disk)
    disk.flip_bit(segment_path(0, 0), 128 + 4 * RECORD + at)
    manager = open_manager(disk)
    assert "valid ones follow" in manager.damaged[0]
    manager.close()


def test_safety_c2_last_record_above_certain_is_cut() -> None:
    disk = filled()
    forget_our_files(disk)
    disk.flip_bit(segment_path(0, 0), 128 + 9 * RECORD + 50)
    manager = open_manager(disk)
    assert manager.get(0).max_txid == 8
    manager.close()


def test_safety_c2_sectors_of_a_job_lost_in_any_order() -> None:
    """A power loss inside a job can leave its later sectors without its earlier ones: cut, never
    acknowledged."""
    disk = filled(3, size=600)
    forget_our_files(disk)
    disk.overwrite(segment_path(0, 0), 512, bytes(512))
    manager = open_manager(disk)
    assert manager.damaged == {}
    assert manager.get(0).max_txid == -1
    manager.close()


def test_safety_c2_mark_of_another_control_state_is_ignored() -> None:
    """0.13.2 ran in between, truncated and started a session: the old mark says nothing about the new log."""
    disk = filled()
    sidecar = disk.content(path(0, "waltz-fence"))
    forget_our_files(disk)
    manager = open_manager(disk)
    manager.get(0).truncate(6)
    manager.get(0).set_low_water_mark(9, 6)
    manager.close()
    disk.put(path(0, "waltz-fence"), sidecar)
    manager = open_manager(disk)
    assert manager.get(0).max_txid == 6
    manager.close()


def test_safety_c2_index_checkpoint_makes_certain() -> None:
    """An entry after 1000 in the index proves that 999 was synced, also without sidecar and marks."""
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(0), 0, 1002)
    manager.close()
    forget_our_files(disk)
    disk.set_size(segment_path(0, 0), 128 + 998 * RECORD + 5)
    manager = open_manager(disk)
    assert "999 was synced" in manager.damaged[0]
    manager.close()


def test_safety_c2_a_damaged_partition_does_not_stop_the_others() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    for partition_id in range(3):
        append(manager.assign(partition_id), 0, 5)
    manager.close()
    disk.flip_bit(segment_path(1, 0), 200)
    manager = open_manager(disk)
    assert sorted(manager.partitions) == [0, 2]
    assert list(manager.problems()) == [1]
    assert manager.status() == {0: True, 1: False, 2: True}
    manager.close()


def test_safety_c3_failed_sync_takes_the_partition_out_of_service() -> None:
    disk = filled()
    manager = open_manager(disk)
    partition = manager.get(0)
    disk.fail_sync_once = ".seg"
    assert isinstance(refusal(lambda: append(partition, 10)), PartitionFailedError)
    # The disk works again; the partition never believes that.
    assert isinstance(refusal(lambda: append(partition, 10)), PartitionFailedError)
    assert isinstance(refusal(lambda: partition.truncate(3)), PartitionFailedError)
    assert isinstance(refusal(lambda: partition.set_low_water_mark(7, 20)), PartitionFailedError)
    assert isinstance(refusal(lambda: partition.raise_fence(7)), PartitionFailedError)
    assert partition.max_txid == 9
    assert_holds(partition, 10)
    assert partition.read(10, 1, 1 << 20) == []
    assert "out of service" in manager.problems()[0]
    manager.close()


@pytest.mark.parametrize("cleanup_fails", [False, True])
def test_safety_c3_a_restart_does_not_turn_a_failed_sync_into_success(cleanup_fails: bool) -> None:
    """Pages of a failed sync look clean. What a restart finds in them it must write again before it
    counts."""
    disk = filled()
    manager = open_manager(disk)
    disk.fail_sync_once = ".seg"
    if cleanup_fails:
        disk.crash_before = len(disk.calls) + 2  # the process dies before it can cut the file back
    try:
        append(manager.get(0), 10)
    except (PartitionFailedError, CrashError):
        pass
    disk.restart(CrashMode.KEEP)
    manager = open_manager(disk)
    shown = manager.get(0).max_txid
    assert shown == (10 if cleanup_fails else 9)
    disk.restart(CrashMode.LOSE)  # power loss right after: everything that was shown is still there
    manager = open_manager(disk)
    assert manager.get(0).max_txid == shown
    assert_holds(manager.get(0), shown + 1)
    manager.close()


@pytest.mark.parametrize("where", ["waltz-fence", ".ctl", ".idx"])
def test_safety_c3_failed_syncs_of_the_other_files(where: str) -> None:
    disk = filled()
    manager = open_manager(disk)
    partition = manager.get(0)
    disk.fail_sync_once = where
    if where == "waltz-fence":
        assert isinstance(refusal(lambda: partition.raise_fence(3)), PartitionFailedError)
    else:
        assert isinstance(refusal(lambda: partition.set_low_water_mark(3, 9)), PartitionFailedError)
    assert isinstance(refusal(lambda: append(partition, 10)), PartitionFailedError)
    assert partition.info.session_id == -1
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert_holds(manager.get(0), 10)
    manager.close()


def _believed_after_a_failed_sync(file: str) -> tuple[FaultyDisk, tuple[int, int]]:
    """Session 7 arrives while the syncs of a file fail; the process is started again, and asked for session
    and fence."""
    disk = filled()
    manager = open_manager(disk)
    partition = manager.get(0)
    partition.raise_fence(5)
    partition.set_low_water_mark(5, 9)
    disk.fail_sync = file
    with contextlib.suppress(PartitionFailedError):
        partition.raise_fence(7)
    with contextlib.suppress(PartitionFailedError):
        partition.set_low_water_mark(7, 9)
    assert partition.failed is not None
    disk.fail_sync = None
    disk.restart(CrashMode.KEEP)  # the pages stay, look clean and were never written
    partition = open_manager(disk).get(0)
    return disk, (partition.info.session_id, partition.durable_fence)


def test_safety_c3_a_restart_makes_the_marks_durable_that_a_failed_sync_left_in_memory() -> None:
    """What the node tells servers after the restart must be there after a power loss."""
    disk, told = _believed_after_a_failed_sync("waltz-storage.ctl")
    disk.restart(CrashMode.LOSE)
    partition = open_manager(disk).get(0)
    assert (partition.info.session_id, partition.durable_fence) == told
    assert_holds(partition, 10)


def test_safety_b2_a_restart_makes_the_fence_durable_that_a_failed_sync_left_in_memory() -> None:
    disk, told = _believed_after_a_failed_sync("waltz-fence")
    assert told == (5, 7)
    disk.restart(CrashMode.LOSE)
    assert open_manager(disk).get(0).durable_fence == 7


def test_safety_c4_cut_bytes_never_return() -> None:
    """Cut, append a shorter record in their place, lose power: no old record behind the new one revives."""
    disk = filled(6)
    manager = open_manager(disk)
    partition = manager.get(0)
    partition.truncate(2)
    append(partition, 3, 1, size=8)
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    partition = manager.get(0)
    assert partition.max_txid == 3
    assert partition.read(3, 10, 1 << 20)[0].endswith(payload(3, 8) + partition.read(3, 1, 1)[0][-4:])
    manager.close()


def test_safety_c4_torn_tail_is_cut_before_anything_is_appended() -> None:
    disk = filled(6)
    forget_our_files(disk)
    whole = disk.content(segment_path(0, 0))
    torn_at = 128 + 3 * RECORD
    disk.overwrite(segment_path(0, 0), 0, whole[: torn_at + 20])
    disk.set_size(segment_path(0, 0), torn_at + 20)
    manager = open_manager(disk)
    assert len(disk.content(segment_path(0, 0))) == torn_at
    manager.close()


def test_safety_c4_segments_are_deleted_newest_first() -> None:
    disk = empty_disk()
    manager = open_manager(disk, threshold=300)
    partition = manager.assign(0)
    for i in range(4):
        append(partition, i * 3, 3)
    assert partition.num_segments == 4
    disk.calls.clear()
    partition.truncate(1)
    deletions = [c for c in disk.calls if c[0] in ("unlink", "sync_dir")]
    expected: list[tuple[object, ...]] = []
    for first in (9, 6, 3):
        for suffix in (".idx", ".seg"):
            expected += [("unlink", segment_path(0, first, suffix)), ("sync_dir", "/data/0")]
    assert deletions == expected
    assert_holds(partition, 2)
    manager.close()


def test_safety_c1_nothing_is_shown_before_its_sync() -> None:
    """While the sync of an append is running (here: at the moment of the call) maximum and reads are the old
    ones."""
    disk = filled(2)
    manager = open_manager(disk)
    partition = manager.get(0)
    seen: list[tuple[int, int]] = []
    original = disk.call

    def spy(*what: object) -> None:
        if what[0] == "sync" and str(what[1]).endswith(".seg"):
            seen.append((partition.max_txid, len(partition.read(0, 10, 1 << 20))))
        original(*what)

    disk.call = spy  # type: ignore[method-assign]
    append(partition, 2, 3)
    assert seen == [(1, 2)]
    assert partition.max_txid == 4
    manager.close()


def test_safety_c1_what_a_truncation_is_about_to_cut_is_not_shown_though_it_fails() -> None:
    disk = filled()
    manager = open_manager(disk)
    partition = manager.get(0)
    disk.fail_sync_once = "waltz-fence"
    assert isinstance(refusal(lambda: partition.truncate(3)), PartitionFailedError)
    assert partition.max_txid == 3
    assert partition.read(4, 10, 1 << 20) == []
    assert_holds(partition, 4)
    manager.close()


def test_safety_a2_a_low_water_mark_is_refused_by_each_of_its_conditions() -> None:
    """One off in every direction; what is allowed comes last, and again."""
    disk = filled()
    manager = open_manager(disk)
    partition = manager.get(0)
    partition.set_low_water_mark(5, 12)
    for session_id, mark, why in (
        (6, 8, "below this node's last transaction 9"),
        (4, 12, "session 5 is persisted, 4 is older"),
        (5, 11, "below the persisted 12"),
        (6, 11, "below the persisted 12"),
    ):
        assert why in str(refusal(lambda s=session_id, m=mark: partition.set_low_water_mark(s, m)))  # type: ignore[misc]
        assert partition.info[:3] == (5, 12, 9)
    for session_id, mark in ((5, 12), (6, 12), (6, 13)):
        partition.set_low_water_mark(session_id, mark)
        assert partition.info[:3] == (session_id, mark, 9)
    assert partition.failed is None
    manager.close()


def test_storage_7_05_record_checksum_is_verified_on_every_read() -> None:
    disk = filled()
    manager = open_manager(disk)
    partition = manager.get(0)
    disk.flip_bit(segment_path(0, 0), 128 + 4 * RECORD + 50)
    assert len(partition.read(0, 10, 1 << 20)) == 4
    with pytest.raises(RecordDamagedError, match="transaction 4"):
        partition.read(4, 10, 1 << 20)
    assert len(partition.read(5, 10, 1 << 20)) == 5
    assert "damaged record" in manager.problems()[0]
    manager.close()


def test_full_disk_takes_everything_back_and_can_be_tried_again() -> None:
    disk = filled()
    manager = open_manager(disk, threshold=1000)
    partition = manager.get(0)
    used = sum(map(len, disk.files().values()))
    for room in (0, 5, 90, 170, 400, 600, 900):
        disk.capacity_bytes = used + room
        error = refusal(lambda: append(partition, 10, 30))
        assert isinstance(error, DiskWriteError), room
        assert error.retriable
        assert partition.max_txid == 9
        assert partition.failed is None
        assert_holds(partition, 10)
    disk.capacity_bytes = None
    append(partition, 10, 30)
    assert_holds(partition, 40)
    manager.close()
    manager = open_manager(disk)
    assert_holds(manager.get(0), 40)
    manager.close()


def test_short_writes_go_on() -> None:
    disk = filled()
    disk.short_writes = True
    manager = open_manager(disk)
    append(manager.get(0), 10, 5)
    manager.close()
    disk.short_writes = False
    manager = open_manager(disk)
    assert_holds(manager.get(0), 15)
    manager.close()


def test_one_data_sync_per_job() -> None:
    """Several requests in one call share one write and one sync; a bad one among them changes nothing for the
    rest."""
    disk = filled(1)
    manager = open_manager(disk)
    partition = manager.get(0)
    disk.calls.clear()
    results = partition.append([batch(1, 2), batch(9, 1), batch(3, 1), batch(4, 0)])
    assert [r is None for r in results] == [True, False, True, True]
    assert [c[0] for c in disk.calls] == ["pwrite", "sync", "pwrite", "pwrite"]
    assert_holds(partition, 4)
    manager.close()


def test_index_is_synced_after_each_checkpoint_entry() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    partition = manager.assign(0)
    append(partition, 0, 1)
    disk.calls.clear()
    append(partition, 1, 2005)
    index = segment_path(0, 0, ".idx")
    calls = [c for c in disk.calls if c[1] == index]
    assert calls == [
        ("pwrite", index, 128 + 8, 8000),
        ("sync", index),
        ("pwrite", index, 128 + 8 * 1001, 8000),
        ("sync", index),
        ("pwrite", index, 128 + 8 * 2001, 8 * 5),
    ]
    assert struct.unpack_from(">q", disk.content(index), 128 + 8 * 7)[0] == 128 + 7 * RECORD
    manager.close()
