"""Index entries and marks of appends behind a journal: written when the journal is made in the files, and
read from memory until then."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from itertools import pairwise

import pytest

from waltz_protocol.errors import RequestFailedError
from waltz_storage.engine.errors import PartitionFailedError
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY
from waltz_storage.engine.journal.log import JournalSettings, read_journal
from waltz_storage.engine.journal.replay import Replay
from waltz_storage.engine.layout import HEADER_SIZE, INDEX_ENTRY_SIZE
from waltz_storage.engine.segment import Segment
from waltz_storage.engine.sidecar import Sidecar
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk, FaultyFile

from .node_support import GatedExecutor, connected, records, running_node
from .support import (
    ROOT,
    append,
    assert_holds,
    batch,
    empty_disk,
    open_manager,
    payload,
    segment_path,
    wire_record,
)

LARGE = JournalSettings(file_bytes=1 << 20, files=3)
SIZE = 40


def opened(disk: FaultyDisk, *partitions: int, threshold: int = 1_000_000_000) -> StorageManager:
    manager = open_manager(disk, journal=LARGE, threshold=threshold)
    for partition_id in partitions or (0,):
        manager.assign(partition_id)
    manager.commit()
    manager.make()
    return manager


def indexed(disk: FaultyDisk, partition_id: int = 0, first: int = 0) -> int:
    """Entries in the index file; each points at the record before which the last one ended."""
    raw = disk.files()[segment_path(partition_id, first, ".idx")][HEADER_SIZE:]
    offsets = struct.unpack(f">{len(raw) // INDEX_ENTRY_SIZE}q", raw)
    assert all(after - before == 40 + SIZE for before, after in pairwise(offsets))
    assert not offsets or offsets[0] == HEADER_SIZE
    return len(offsets)


def mark(disk: FaultyDisk, partition_id: int = 0) -> int | None:
    """What the side file says is synced, whatever the control entry is."""
    sidecar = Sidecar.open(disk, f"{ROOT}/{partition_id}", partition_id)
    return None if sidecar._mark is None else sidecar._mark[2]


def test_records_are_read_by_entries_in_the_file_in_memory_and_in_both() -> None:
    disk = empty_disk()
    manager = opened(disk)
    partition = manager.get(0)
    append(partition, 0, 6)
    manager.commit()
    assert indexed(disk) == 0
    manager.make()
    assert (indexed(disk), mark(disk)) == (6, 5)
    append(partition, 6, 3)
    append(partition, 9, 3)
    manager.commit()
    assert indexed(disk) == 6
    for first in range(12):
        for count in range(1, 13 - first):
            found = partition.read(first, count, 1 << 20)
            assert found == [wire_record(txid, payload(txid, SIZE)) for txid in range(first, first + count)]
    manager.close()
    assert (indexed(disk), mark(disk)) == (12, 11)


def test_the_entry_of_a_checkpoint_and_all_before_it_are_durable_with_its_record() -> None:
    """There release 0.13.2 begins to look for the end of the log."""
    disk = empty_disk()
    manager = opened(disk)
    for first, count in ((0, 1), (1, 998), (999, 1)):
        append(manager.get(0), first, count)
        manager.commit()
    assert len(manager.get(0)._segments[-1]._unindexed) == 999  # all since that of transaction 0
    append(manager.get(0), 1000, 1)
    manager.commit()
    append(manager.get(0), 1001, 1)
    manager.commit()
    journal_id = manager.files._journal._journal_id  # type: ignore[union-attr]
    disk.restart(CrashMode.LOSE)
    Replay(disk, ROOT, {}).run(read_journal(disk, f"{ROOT}/{JOURNAL_DIRECTORY}", journal_id, LARGE.files))
    assert indexed(disk) == 1001


@pytest.mark.parametrize("made", [0, 3])
@pytest.mark.parametrize("keep", [-1, 2, 5, 8])
def test_a_cut_of_entries_that_wait(made: int, keep: int) -> None:
    disk = empty_disk()
    manager = opened(disk)
    partition = manager.get(0)
    append(partition, 0, made or 1)
    manager.commit()
    if made:
        manager.make()
    append(partition, made or 1, 10 - (made or 1))
    manager.commit()
    assert partition.truncate(keep) == keep
    append(partition, keep + 1, 2)
    manager.commit()
    assert_holds(partition, keep + 3)
    manager.close()
    assert (indexed(disk), mark(disk)) == (keep + 3, keep + 2)


@pytest.mark.parametrize("keep", [-1, 2, 3])
def test_a_cut_that_deletes_a_segment_whose_entries_wait(keep: int) -> None:
    disk = empty_disk()
    manager = opened(disk, threshold=HEADER_SIZE + 3 * (40 + SIZE))
    partition = manager.get(0)
    for txid in range(7):
        append(partition, txid)
        if txid >= 4:  # made with the witness of the second segment
            manager.commit()
    assert (partition.num_segments, len(partition._segments[-1]._unindexed)) == (2, 2)
    assert partition.truncate(keep) == keep
    manager.commit()
    assert partition.failed is None
    append(partition, keep + 1)
    manager.commit()
    assert_holds(partition, keep + 2)
    manager.close()
    found = indexed(disk) + (indexed(disk, first=4) if keep == 3 else 0)
    assert (found, mark(disk)) == (keep + 2, keep + 1)


@pytest.mark.parametrize(("file_bytes", "count", "size"), [(64 << 10, 900, 20), (1 << 20, 2048, 480)])
def test_safety_c7_power_is_lost_within_an_append_of_several_commits(
    file_bytes: int, count: int, size: int
) -> None:
    """Nothing of it was acknowledged, and none of it is taken for damage."""
    settings = JournalSettings(file_bytes=file_bytes, files=3)
    for seed in range(12):
        disk = empty_disk()
        manager = open_manager(disk, journal=settings)
        manager.assign(0)
        append(manager.get(0), 0, 10, size)
        manager.close()  # names are durable
        manager = open_manager(disk, journal=settings)
        manager.get(0).raise_fence(5)  # the witness is written: the next commit is made at once
        append(manager.get(0), 10, count, size)
        assert_holds(manager.get(0), 10 + count, size)
        disk.restart(CrashMode.SOME, random.Random(seed))
        again = open_manager(disk)
        assert again.damaged == {}
        assert_holds(again.get(0), 10, size)
        again.close()


def test_a_full_segment_has_its_entries() -> None:
    disk = empty_disk()
    manager = opened(disk, threshold=HEADER_SIZE + 3 * (40 + SIZE))
    for txid in range(5):
        append(manager.get(0), txid)
    manager.commit()
    assert manager.get(0).num_segments == 2
    manager.close()
    assert (indexed(disk), indexed(disk, first=4)) == (4, 1)


def test_a_partition_that_is_given_up_leaves_a_whole_index_and_no_mark() -> None:
    disk = empty_disk()
    manager = opened(disk, 0, 1)
    append(manager.get(0), 0, 1)
    append(manager.get(0), 1, 6)
    manager.unassign(0, delete_files=False)
    append(manager.get(1), 0, 1)
    manager.commit()
    manager.make()
    manager.close()
    assert (indexed(disk), mark(disk)) == (7, -1)


def test_what_is_made_while_a_partition_is_given_up_brings_no_mark_back() -> None:
    disk = empty_disk()
    manager = opened(disk)
    append(manager.get(0), 0, 7)
    manager.get(0).prepare_reset()
    manager.commit()  # as a full journal does in the middle of it
    manager.make()
    assert mark(disk) == -1
    manager.close()


def test_an_append_that_is_taken_back_leaves_the_entries_of_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = empty_disk()
    manager = opened(disk)
    partition = manager.get(0)
    append(partition, 0, 1)
    append(partition, 1, 3)
    manager.commit()
    files = manager.files
    assert files is not None
    full = True

    def no_room(*arguments: object) -> None:
        if full:
            raise OSError(28, "No space left on device")
        taken(*arguments)  # type: ignore[arg-type]

    taken = files.written
    monkeypatch.setattr(files, "written", no_room)
    (refused,) = partition.append([batch(4)])
    assert refused is not None
    assert (partition.failed, indexed(disk)) == (None, 0)
    full = False
    append(partition, 4, 2)
    manager.commit()
    assert_holds(partition, 6)
    manager.close()
    assert indexed(disk) == 6


def test_entries_are_counted_as_taken() -> None:
    manager = opened(empty_disk())
    before = manager.room.promised_bytes
    append(manager.get(0), 0, 1)  # transaction 0 is a checkpoint: its entry does not wait
    append(manager.get(0), 1, 100)
    manager.commit()
    assert manager.room.promised_bytes - before >= 101 * (40 + SIZE + INDEX_ENTRY_SIZE)
    manager.make()
    assert manager.room.promised_bytes == 0
    manager.close()


def test_nothing_follows_a_failed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = empty_disk()
    manager = opened(disk)
    append(manager.get(0), 0, 3)
    manager.commit()
    manager.make()
    append(manager.get(0), 3, 3)
    monkeypatch.setattr(FaultyFile, "sync", _fails)
    with pytest.raises(PartitionFailedError, match="journal"):
        manager.commit()
    monkeypatch.undo()
    assert not manager.unmade
    manager.make()
    assert (indexed(disk), mark(disk)) == (3, 2)


async def test_safety_c1_an_error_that_nobody_foresaw_ends_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever was acknowledged is there, and nothing is taken after it."""
    disk, write_index, broken = empty_disk(), Segment.write_index, True

    def out_of_memory(segment: Segment) -> None:
        nonlocal broken
        if broken and segment._unindexed:
            broken = False
            raise MemoryError
        write_index(segment)

    monkeypatch.setattr(Segment, "write_index", out_of_memory)
    settings = JournalSettings(file_bytes=16 << 10, files=3)
    async with (
        running_node(ROOT, fs=disk, journal=settings, executor=GatedExecutor(), assign=(0,)) as node,
        connected(node) as server,
    ):
        taken = 0
        with pytest.raises(RequestFailedError, match="MemoryError"):
            while taken < 900:
                await server.append(1, 0, records(taken, 3))
                taken += 3
        with pytest.raises(RequestFailedError, match="out of service"):
            await server.append(1, 0, records(node.manager.get(0).max_txid + 1, 3))
        assert "MemoryError" in str(node.manager.files and node.manager.files.failed)
    disk.restart(CrashMode.KEEP)
    manager = open_manager(disk)
    assert manager.damaged == {}
    assert manager.get(0).max_txid >= taken - 1
    assert_holds(manager.get(0), manager.get(0).max_txid + 1)


async def test_safety_c1_a_commit_that_ends_in_an_unforeseen_error_stops_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, commit, broken = empty_disk(), StorageManager.commit, False

    def out_of_memory(manager: StorageManager, partition_ids: Iterable[int] | None = None) -> None:
        commit(manager, partition_ids)
        if broken:
            raise MemoryError

    monkeypatch.setattr(StorageManager, "commit", out_of_memory)
    async with (
        running_node(ROOT, fs=disk, journal=LARGE, executor=GatedExecutor(), assign=(0,)) as node,
        connected(node) as server,
    ):
        await server.append(1, 0, records(0, 3))
        broken = True
        with pytest.raises(RequestFailedError, match="MemoryError"):
            await server.append(1, 0, records(3, 3))
        broken = False
        with pytest.raises(RequestFailedError, match="out of service"):
            await server.append(1, 0, records(node.manager.get(0).max_txid + 1, 3))


def _fails(_file: FaultyFile) -> None:
    raise OSError(5, "Input/output error")
