"""Records and files at the edges of what is read in one piece: the smallest and the longest record, a log
that is taken away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from waltz_storage.engine.scan import CHUNK_SIZE, find_later_record, record_end
from waltz_storage.engine.storage_manager import StorageManager

from .support import KEY, append, assert_holds, empty_disk, now_ms, open_manager, path, segment_path


def test_safety_c2_a_valid_record_right_behind_the_smallest_damaged_one_is_seen() -> None:
    """Records without data: the next one begins 40 bytes behind the damaged one."""
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(0), 0, 3, size=0)
    manager.close()
    disk.remove(path(0, "waltz-fence"))
    disk.flip_bit(segment_path(0, 0), 128 + 40 + 12)
    file = disk.open(segment_path(0, 0))
    assert find_later_record(file, 128 + 40, file.size(), 1) == 128 + 80
    manager = open_manager(disk)
    assert "valid ones follow" in manager.damaged[0]
    manager.close()


@pytest.mark.parametrize("size", [CHUNK_SIZE - 41, CHUNK_SIZE - 40, CHUNK_SIZE, 5 * CHUNK_SIZE // 2])
def test_records_longer_than_a_piece_are_checked_whole(size: int) -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(0), 0, 1, size)
    append(manager.get(0), 1)
    manager.close()
    disk.remove(path(0, "waltz-fence"))
    manager = open_manager(disk)
    assert manager.get(0).max_txid == 1
    assert_holds(manager.get(0), 1, size)
    manager.close()
    file = disk.open(segment_path(0, 0))
    assert record_end(file, 128, 0, file.size()) == 128 + 40 + size
    for offset in (128 + 40, 128 + 40 + size // 2, 128 + 35 + size):
        disk.flip_bit(segment_path(0, 0), offset)
        assert record_end(file, 128, 0, file.size()) == -1
        disk.flip_bit(segment_path(0, 0), offset)


def test_a_log_whose_directory_is_gone_is_damaged_and_not_begun_anew(tmp_path: Path) -> None:
    def opened() -> StorageManager:
        return StorageManager.open(str(tmp_path), cluster_key=KEY, num_partitions=3, now_ms=now_ms)

    manager = opened()
    append(manager.assign(0), 0, 3)
    manager.get(0).set_low_water_mark(4, 2)
    manager.assign(1)
    append(manager.assign(2), 0, 3)
    manager.get(2).set_low_water_mark(-1, 2)  # filled past the servers, in no session yet
    manager.close()
    for partition_id in (0, 1, 2):
        shutil.rmtree(tmp_path / str(partition_id))
    manager = opened()
    assert sorted(manager.damaged) == [0, 2]
    assert all("its directory is missing" in why for why in manager.damaged.values())
    assert manager.get(1).max_txid == -1  # it never had anything
    manager.close()
    assert not (tmp_path / "0").exists()


def test_safety_c4_a_copy_that_is_taken_away_loses_its_newest_segment_first() -> None:
    """A crash in between leaves a shorter log, never one without its beginning."""
    disk = empty_disk()
    manager = open_manager(disk, threshold=100)
    partition = manager.assign(0)
    for txid in range(4):
        append(partition, txid)
    firsts = list(range(partition.num_segments))
    disk.calls.clear()
    manager.unassign(0, delete_files=True)
    gone = [call[1] for call in disk.calls if call[0] == "unlink"]
    assert gone == [segment_path(0, n, end) for n in reversed(firsts) for end in (".idx", ".seg")]
    manager.close()


@pytest.mark.parametrize("left", [0, 1, 60, 127, 128])
def test_an_index_that_ends_inside_its_header_is_made_whole(left: int) -> None:
    """0.13.2 looks at the header of both files."""
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(0), 0, 5)
    manager.close()
    index = segment_path(0, 0, ".idx")
    whole = disk.content(index)
    disk.set_size(index, left)
    manager = open_manager(disk)
    assert_holds(manager.get(0), 5)
    manager.close()
    assert disk.content(index) == whole
