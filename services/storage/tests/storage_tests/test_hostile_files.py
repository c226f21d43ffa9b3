"""Files that no damage makes by chance, found by fuzzing (tests/fuzz): readers end with their own errors, soon."""

from __future__ import annotations

import struct
import zlib

import pytest

from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.inspect import inspect_control_file, inspect_directory, iterate_records
from waltz_storage.engine.layout import CONTROL_FILE_NAME, HEADER_SIZE, SIDECAR_NAME
from waltz_storage.engine.scan import find_later_record
from waltz_storage.engine.sidecar import Sidecar

from .support import KEY, ROOT, append, empty_disk, open_manager, segment_path


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
