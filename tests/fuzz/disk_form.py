"""The files of a storage directory, written and read from their description alone, for the fuzz targets to
compare with.

Shares no code with the engine. All integers are big-endian.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple
from uuid import UUID

KEY = UUID("00112233-4455-6677-8899-aabbccddeeff")
HEADER = 128
ENTRY = 76
CHECKPOINT = 1000


class Marks(NamedTuple):
    """What one valid struct of a control entry says."""

    session_id: int
    low_water_mark: int
    local_low_water_mark: int
    flags: int
    sequence: int


def record(txid: int, data: bytes) -> bytes:
    """One disk record with both checksums."""
    head = struct.pack(">q4iiiI", txid, 7, 1, 0, txid & 0x7FFFFFFF, 5, len(data), zlib.crc32(data))
    return head + data + struct.pack(">I", zlib.crc32(head + data))


def record_end(data: bytes, offset: int, txid: int) -> int:
    """Byte after the valid record `txid` at `offset`, -1 when there is none."""
    if offset < HEADER or offset + 40 > len(data):
        return -1
    found, length = struct.unpack_from(">q20xi", data, offset)
    end: int = offset + 40 + length
    if found != txid or length < 0 or end > len(data):
        return -1
    return end if zlib.crc32(data[offset : end - 4]) == int.from_bytes(data[end - 4 : end], "big") else -1


def records(data: bytes, txid: int, offset: int = HEADER) -> list[bytes]:
    """Valid records one after another, the first with id `txid`."""
    found: list[bytes] = []
    while (end := record_end(data, offset, txid)) >= 0:
        found.append(data[offset:end])
        offset, txid = end, txid + 1
    return found


def first_txid(data: bytes) -> int:
    """First TXID of a segment header, -1 when it is cut short."""
    return struct.unpack_from(">q", data, 32)[0] if len(data) >= HEADER else -1


def control_marks(raw: bytes, partition_id: int) -> Marks | None:
    """The current struct of a control entry, None when neither is valid, or when it cannot be known."""
    entry = raw[HEADER + ENTRY * partition_id :][:ENTRY]
    if len(entry) < ENTRY or struct.unpack_from(">i", entry)[0] != partition_id:
        return None
    valid = []
    for start in (4, 40):
        struct_bytes = entry[start : start + 32]
        if zlib.crc32(struct_bytes) == int.from_bytes(entry[start + 32 : start + 36], "big"):
            valid.append(Marks(*struct.unpack(">qqqii", struct_bytes)))
    if len(valid) == 2 and valid[0].sequence == valid[1].sequence and valid[0] != valid[1]:
        return None
    if len(valid) == 2:
        ahead = (valid[0].sequence - valid[1].sequence) & 0xFFFFFFFF
        return valid[0] if 0 < ahead < 2**31 else valid[1]
    return valid[0] if valid else None


def sidecar_mark(raw: bytes, partition_id: int, marks: Marks) -> int:
    """The synced mark if it belongs to these marks, else -1."""
    raw = raw.ljust(2048, b"\0")
    best: tuple[int, int] = (0, -1)
    for offset in (1024, 1536):
        body = raw[offset : offset + 36]
        magic, owner, counter, session, sequence, txid = struct.unpack(">iiqqiq", body)
        good = zlib.crc32(body) == int.from_bytes(raw[offset + 36 : offset + 40], "big")
        if good and magic == 0x575A4D31 and owner == partition_id and best[0] < counter < 2**63 - 1:
            fits = (session, sequence) == (marks.session_id, marks.sequence)
            best = (counter, txid if fits else -1)
    return best[1]


def sidecar_fence(raw: bytes, partition_id: int) -> int:
    """The highest fence of the valid slots, -1 without one."""
    raw = raw.ljust(2048, b"\0")
    fence = -1
    for offset in (0, 512):
        body = raw[offset : offset + 24]
        magic, owner, _, session = struct.unpack(">iiqq", body)
        good = zlib.crc32(body) == int.from_bytes(raw[offset + 24 : offset + 28], "big")
        if good and magic == 0x575A4631 and owner == partition_id:
            fence = max(fence, session)
    return fence
