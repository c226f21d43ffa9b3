"""The control file: opened by a node, by tools, and looked at. The first byte says how; the rest is the file.

Bit 0: the checksums of the entries are made right. Bit 1: the partition count of the header is made one that
exists.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from tests.fuzz.disk_form import ENTRY, HEADER, KEY, control_marks
from tests.fuzz.target import Target
from tests.interop.recordings import GOLDEN
from waltz_storage.engine.control_file import MAX_PARTITIONS, ControlFile
from waltz_storage.engine.errors import PartitionDamagedError, StorageError, StorageStartError
from waltz_storage.engine.inspect import inspect_directory
from waltz_testkit.faulty_disk import FaultyDisk

PATH = "/d/waltz-storage.ctl"
PARTITIONS = 4
PLAUSIBLE = 200


def check(data: bytes) -> None:
    if not data:
        return
    raw = _shaped(data[1:], data[0])
    if PLAUSIBLE < int.from_bytes(raw[28:32], "big") <= MAX_PARTITIONS:
        return  # believed, and each partition costs one line of complaint: slow, but bounded
    try:
        inspect_directory("/d", fs=_disk(raw))
    except StorageError:
        pass
    _opened_by_tools(raw)
    _opened_by_a_node(raw)


def _disk(raw: bytes, *, segment: bool = False) -> FaultyDisk:
    disk = FaultyDisk()
    disk.add_dir("/d")
    disk.put(PATH, raw)
    if segment:
        disk.add_dir("/d/0")
        disk.put("/d/0/0000000000000000000.seg", b"")
    return disk


def _opened_by_tools(raw: bytes) -> None:
    disk = _disk(raw)
    try:
        control = ControlFile.open_existing(disk, "/d")
    except StorageStartError:
        assert disk.content(PATH) == raw, "refused and changed"
        return
    assert disk.content(PATH) == raw, "opened and changed"
    for partition_id in range(min(control.num_partitions, 8)):
        marks = control_marks(raw, partition_id)
        try:
            info = control.info(partition_id)
        except PartitionDamagedError:
            assert marks is None
            control.reset(partition_id)
        else:
            assert tuple(info) == marks
            changed = control.update(partition_id, lambda old: old._replace(session_id=77))
            assert control_marks(disk.content(PATH), partition_id) == tuple(changed)
    control.close()


def _opened_by_a_node(raw: bytes) -> None:
    disk = _disk(raw, segment=True)
    try:
        ControlFile.open(disk, "/d", KEY, PARTITIONS, lambda: 5).close()
    except StorageStartError:
        assert disk.content(PATH) == raw, "refused and changed"
        return
    assert disk.content(PATH) == raw, "with segments there, nothing is initialised again"
    again = ControlFile.open(disk, "/d", KEY, PARTITIONS, lambda: 6)
    assert disk.content(PATH) == raw
    again.close()


def _shaped(body: bytes, how: int) -> bytes:
    raw = bytearray(body)
    if how & 2 and len(raw) >= 32:
        raw[:4] = bytes(4)
        raw[12:28] = KEY.bytes
        raw[28:32] = PARTITIONS.to_bytes(4, "big")
    if how & 1:
        for start in range(HEADER + 4, len(raw) - 35, 36):
            start += 4 * ((start - HEADER - 4) // ENTRY)
            if start + 36 <= len(raw):
                raw[start + 32 : start + 36] = zlib.crc32(raw[start : start + 32]).to_bytes(4, "big")
    return bytes(raw)


def seeds() -> Iterator[bytes]:
    for node in ("node0", "node1"):
        raw = (GOLDEN / "storage" / node / "waltz-storage.ctl").read_bytes()
        yield b"\0" + raw
        yield b"\3" + raw
        yield b"\2" + raw[:300]
    header = struct.pack(">iq16si", 0, 1, KEY.bytes, PARTITIONS).ljust(HEADER, b"\0")
    entries = b"".join(
        struct.pack(">i", p) + b"".join(struct.pack(">qqqii4x", s, 9, 8, 5, s) for s in (2**31 - 1, -(2**31)))
        for p in range(PARTITIONS)
    )
    yield b"\1" + header + entries
    yield b"\0" + header + bytes(len(entries))
    yield b"\0" + header[:28] + b"\x7f\xff\xff\xff" + header[32:]
    yield b"\0" + header[:28] + b"\x00\x0f\xff\xff" + header[32:]


TARGET = Target(check, seeds)
