"""The sidecar file of a partition. First byte, bit 0: the checksums of the four slots are made right."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from tests.fuzz.disk_form import Marks, sidecar_fence, sidecar_mark
from tests.fuzz.target import Target
from waltz_storage.engine.sidecar import Sidecar
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

PATH = "/d/waltz-fence"
_FORMS = ((0, ">iiqq"), (512, ">iiqq"), (1024, ">iiqqiq"), (1536, ">iiqqiq"))
HIGHEST = 2**63 - 1


def check(data: bytes) -> None:
    if not data:
        return
    raw = _signed(data[1:]) if data[0] & 1 else data[1:]
    disk = FaultyDisk()
    disk.add_dir("/d")
    disk.put(PATH, raw)
    sidecar = Sidecar.open(disk, "/d", 3)
    fence = sidecar_fence(raw, 3)
    assert sidecar.fence_session_id == fence
    marks = Marks(5, 0, 0, 5, 6)
    mark = sidecar_mark(raw, 3, marks)
    assert sidecar.synced_txid(5, 6) == mark
    sidecar.raise_fence(fence)
    assert sidecar.fence_session_id == fence
    if fence < HIGHEST:
        sidecar.raise_fence(fence + 1)
    sidecar.write_mark(5, 6, 99)
    sidecar.close()
    disk.restart(CrashMode.KEEP)
    again = Sidecar.open(disk, "/d", 3)
    assert again.fence_session_id == min(fence + 1, HIGHEST)
    assert again.synced_txid(5, 6) == 99
    again.close()


def _signed(body: bytes) -> bytes:
    raw = bytearray(body.ljust(2048, b"\0")[:2048])
    for offset, form in _FORMS:
        end = offset + struct.calcsize(form)
        raw[end : end + 4] = zlib.crc32(raw[offset:end]).to_bytes(4, "big")
    return bytes(raw)


def seeds() -> Iterator[bytes]:
    fence = struct.pack(">iiqq", 0x575A4631, 3, 4, 12).ljust(512, b"\0")
    older = struct.pack(">iiqq", 0x575A4631, 3, 3, 11).ljust(512, b"\0")
    mark = struct.pack(">iiqqiq", 0x575A4D31, 3, 8, 5, 6, 70).ljust(512, b"\0")
    earlier = struct.pack(">iiqqiq", 0x575A4D31, 3, 7, 5, 6, 60)
    yield b"\0"
    yield b"\1" + fence + older + mark + earlier
    yield b"\0" + _signed(fence + older + mark + earlier)[:1500]
    yield b"\1" + older + older + mark + mark
    yield b"\1" + struct.pack(">iiqq", 0x575A4631, 3, HIGHEST, HIGHEST)
    yield b"\1" + bytes(1024) + struct.pack(">iiqqiq", 0x575A4D31, 3, HIGHEST, 5, 6, 70)


TARGET = Target(check, seeds)
