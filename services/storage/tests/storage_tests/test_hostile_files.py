"""Files that no damage makes by chance, found by fuzzing (tests/fuzz): readers end with their own errors,
soon."""

from __future__ import annotations

import struct
import zlib

import pytest

from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.inspect import inspect_control_file, inspect_directory
from waltz_storage.engine.layout import CONTROL_FILE_NAME, HEADER_SIZE, SIDECAR_NAME
from waltz_storage.engine.scan import CHUNK_SIZE, SearchGivenUpError, find_later_record
from waltz_storage.engine.sidecar import Sidecar
from waltz_testkit.stored_records import iterate_records

from .support import KEY, ROOT, append, batch, empty_disk, open_manager, segment_path


@pytest.mark.parametrize("partitions", [2**31 - 1, 2**20 + 1, 0, -1])
def test_a_claimed_number_of_partitions_is_not_believed_by_tools(partitions: int) -> None:
    disk = empty_disk()
    header = struct.pack(">iq16si", 0, 1, KEY.bytes, partitions).ljust(HEADER_SIZE, b"\0")
    disk.put(f"{ROOT}/{CONTROL_FILE_NAME}", header)
    for look in (inspect_directory, inspect_control_file):
        with pytest.raises(StorageStartError, match=f"names {partitions} partitions"):
            look(ROOT, fs=disk)


@pytest.mark.parametrize("expected", [2**63 - 2, 2**63 - 1])
def test_the_search_behind_a_break_ends_at_the_highest_id(expected: int) -> None:
    disk = empty_disk()
    disk.put("/data/f", bytes(HEADER_SIZE) + b"\x7f" + b"\xff" * 200)
    file = disk.open("/data/f", read_only=True)
    assert find_later_record(file, HEADER_SIZE, HEADER_SIZE + 201, expected) == -1


def test_records_end_at_a_segment_without_a_header() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(3), 0, 2)
    manager.close()
    disk.put(segment_path(3, 2), b"\0" * 50)
    assert len(list(iterate_records(ROOT, 3, fs=disk))) == 2


def test_a_sidecar_whose_counters_are_at_their_end_still_takes_a_fence_and_a_mark() -> None:
    disk = empty_disk()
    fence = struct.pack(">iiqq", 0x575A4631, 3, 2**63 - 1, 12)
    mark = struct.pack(">iiqqiq", 0x575A4D31, 3, 2**63 - 1, 5, 6, 70)
    signed = [raw + struct.pack(">I", zlib.crc32(raw)) for raw in (fence, mark)]
    disk.put(f"{ROOT}/{SIDECAR_NAME}", signed[0].ljust(1024, b"\0") + signed[1])
    sidecar = Sidecar.open(disk, ROOT, 3)
    assert (sidecar.fence_session_id, sidecar.synced_txid(5, 6)) == (12, -1)
    sidecar.raise_fence(13)
    sidecar.write_mark(5, 6, 71)
    again = Sidecar.open(disk, ROOT, 3)
    assert (again.fence_session_id, again.synced_txid(5, 6)) == (13, 71)


def heads(expected: int, size: int, length: int) -> bytes:
    """Data full of what looks like the head of a later record, each with a length that fits."""
    head = struct.pack(">q", expected + 1) + b"\xff" * 20 + struct.pack(">i", length)
    return (head * (size // len(head) + 1))[:size]


def bytes_checksummed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    total = [0]
    real = zlib.crc32

    def crc32(data: bytes, value: int = 0) -> int:
        total[0] += len(data)
        return real(data, value)

    monkeypatch.setattr("waltz_storage.engine.scan.crc32", crc32)
    return total


def test_the_search_behind_a_break_gives_up_before_it_has_checksummed_the_tail_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = empty_disk()
    tail = heads(7, 100_000, 40_000)
    disk.put("/data/f", bytes(HEADER_SIZE) + tail)
    file = disk.open("/data/f", read_only=True)
    total = bytes_checksummed(monkeypatch)
    with pytest.raises(SearchGivenUpError, match="look like records"):
        find_later_record(file, HEADER_SIZE, HEADER_SIZE + len(tail), 7)
    assert total[0] <= 17 * len(tail)


def test_many_that_only_look_like_records_do_not_hide_a_real_one() -> None:
    disk = empty_disk()
    expected = 0x01020307  # its bytes fit at one alignment only
    tail = heads(expected, 3 * CHUNK_SIZE, 40)
    real = batch(expected + 2).data
    for at in (CHUNK_SIZE - 1, CHUNK_SIZE - 8, CHUNK_SIZE - 20, CHUNK_SIZE - 40, 2 * CHUNK_SIZE, len(tail)):
        disk.put("/data/f", bytes(HEADER_SIZE) + tail[:at] + real + tail[at + len(real) :])
        file = disk.open("/data/f", read_only=True)
        assert find_later_record(file, HEADER_SIZE, file.size(), expected) == HEADER_SIZE + at


def torn(data: bytes, missing: int = 1000) -> bytes:
    """A record 2 whose end was not written."""
    return struct.pack(">q20xi", 2, len(data) + missing) + bytes(4) + data


def test_safety_c2_a_tail_that_cannot_be_searched_is_refused_and_left_alone() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(3), 0, 2)
    manager.close()
    name = segment_path(3, 0)
    whole = disk.content(name) + torn(heads(2, 50_000, 20_000))
    disk.put(name, whole)
    manager = open_manager(disk)
    assert "transaction 2 is damaged" in manager.damaged[3]
    assert "look like records" in manager.damaged[3]
    assert disk.content(name) == whole
    manager.close()


def test_a_tail_with_an_unwritten_sector_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(3), 0, 2)
    manager.close()
    name = segment_path(3, 0)
    body = heads(2, 4096, 2000) + bytes(1024) + heads(2, 50_000, 20_000)
    disk.put(name, disk.content(name) + torn(body, missing=0) + bytes(4))

    def search(*_: object) -> int:
        raise AssertionError("it was searched")

    monkeypatch.setattr("waltz_storage.engine.recovery.find_later_record", search)
    manager = open_manager(disk)
    assert manager.damaged == {}
    assert manager.get(3).max_txid == 1
    manager.close()
