"""A bit flipped in the header of any segment file: the node is up soon, with every record or with one clear
refusal."""

from __future__ import annotations

import struct

import pytest
from structlog.testing import capture_logs

from waltz_storage.engine import storage_manager
from waltz_storage.engine.layout import HEADER_SIZE
from waltz_storage.engine.partition import Partition
from waltz_testkit.faulty_disk import FaultyDisk, FaultyFile

from .support import (
    ROOT,
    append,
    assert_holds,
    empty_disk,
    forget_our_files,
    open_manager,
    segment_path,
)

RECORDS = 30
FIRSTS = (0, 6, 12, 18, 24)
THRESHOLD = 600
FIELD_BITS = 8 * 40  # version, time, key, partition, first transaction; zeros follow
MOST_READS = 200


class TooManyReadsError(BaseException):
    """Not an `Exception`: nobody may catch it."""


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    disk = empty_disk()
    manager = open_manager(disk, threshold=THRESHOLD)
    for partition_id in (0, 1):
        partition = manager.assign(partition_id)
        for txid in range(RECORDS):
            append(partition, txid)
    manager.close()
    assert tuple(f for f in range(RECORDS) if segment_path(0, f) in disk.files()) == FIRSTS
    return disk.files()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Reads so far; too many of them end the test, and an offset the system would refuse is refused."""
    reads = [0]
    real = FaultyFile.pread

    def pread(file: FaultyFile, size: int, offset: int) -> bytes:
        reads[0] += 1
        if reads[0] > MOST_READS:
            raise TooManyReadsError(f"{file.path} at {offset}")
        if not 0 <= offset < 1 << 63:
            raise OverflowError("Python int too large to convert to C long")
        return real(file, size, offset)

    monkeypatch.setattr(FaultyFile, "pread", pread)
    return reads


def disk_with(files: dict[str, bytes]) -> FaultyDisk:
    disk = empty_disk()
    for partition_id in (0, 1):
        disk.add_dir(f"{ROOT}/{partition_id}")
    for name, content in files.items():
        disk.put(name, content)
    return disk


@pytest.mark.parametrize("mark", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("suffix", [".seg", ".idx"])
@pytest.mark.parametrize("first", FIRSTS)
def test_safety_c2_any_flipped_bit_of_a_header_ends_soon(
    files: dict[str, bytes], counted: list[int], first: int, suffix: str, mark: bool
) -> None:
    name = segment_path(0, first, suffix)
    for bit in [*range(FIELD_BITS), 8 * HEADER_SIZE - 1]:
        disk = disk_with(files)
        if not mark:
            forget_our_files(disk)
        disk.flip_bit(name, bit // 8, bit % 8)
        counted[0] = 0
        manager = open_manager(disk, threshold=THRESHOLD)
        if 0 in manager.partitions:
            assert_holds(manager.get(0), RECORDS)
        else:
            text = manager.damaged[0]
            assert text.startswith("partition 0 is damaged: ")
            assert "\n" not in text
            for f in FIRSTS:
                data = segment_path(0, f)
                assert disk.content(data)[HEADER_SIZE:] == files[data][HEADER_SIZE:]
        assert_holds(manager.get(1), RECORDS)
        manager.close()


@pytest.mark.parametrize("bit", [34, 40, 58, 61])
def test_a_first_transaction_far_away_is_refused_by_what_is_missing(
    files: dict[str, bytes], counted: list[int], bit: int
) -> None:
    """It was walked down to in steps of a thousand, one read each; or the offset was too large for any
    read."""
    disk = disk_with(files)
    disk.flip_bit(segment_path(0, FIRSTS[-1]), 32 + 7 - bit // 8, bit % 8)
    manager = open_manager(disk, threshold=THRESHOLD)
    assert f"transaction {FIRSTS[-1]} is missing or damaged" in manager.damaged[0]
    manager.close()


@pytest.mark.parametrize("kept", [HEADER_SIZE, HEADER_SIZE + 80], ids=["no record", "one record"])
def test_safety_c2_a_segment_that_claims_a_transaction_of_the_one_before_is_refused(
    files: dict[str, bytes], kept: int
) -> None:
    """Nothing else contradicts such a header, and what the segment before holds from there on would be
    gone."""
    disk = disk_with(files)
    forget_our_files(disk)
    disk.set_size(segment_path(0, 24), kept)
    disk.set_size(segment_path(0, 24, ".idx"), HEADER_SIZE)
    disk.overwrite(segment_path(0, 24), 32, struct.pack(">q", 20))
    manager = open_manager(disk, threshold=THRESHOLD)
    assert "has transaction 20, with which the next one claims to begin" in manager.damaged[0]
    manager.close()


def test_an_error_nobody_foresaw_stops_one_partition_only(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fs: object, directory: str, partition_id: int, *rest: object) -> object:
        if partition_id == 0:
            raise OverflowError("Python int too large to convert to C long")
        return Partition(fs, directory, partition_id, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(storage_manager, "Partition", broken)
    with capture_logs() as lines:
        manager = open_manager(disk_with(files), threshold=THRESHOLD)
    assert manager.damaged == {0: "internal error: OverflowError: Python int too large to convert to C long"}
    assert_holds(manager.get(1), RECORDS)
    (line,) = lines
    assert (line["log_level"], line["partition"]) == ("error", 0)
    assert isinstance(line["exc_info"], OverflowError)
    manager.close()
