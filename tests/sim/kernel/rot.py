"""Bit rot of a chosen kind: one bit of something that was synced, on the platter and in memory."""

from __future__ import annotations

import enum
import posixpath
import random
import struct

from tests.sim.kernel.disk import DATA_DIRECTORY, SimDisk, partition_directory
from waltz_storage.engine import layout
from waltz_storage.engine.witness import REGION_SIZE

_LENGTH = struct.Struct(">i")
_LENGTH_OFFSET = layout.RECORD_HEAD_SIZE - 4
_CHECKSUM_SIZE = 4

Range = tuple[str, int, int]
"""Path, first byte, byte after the last."""


class Rot(enum.Enum):
    """What is damaged."""

    RECORD_DATA = "record data"
    RECORD_HEADER = "record header"  # ids, header, length or data checksum
    RECORD_CHECKSUM = "record checksum"
    SEGMENT_HEADER = "segment header"
    INDEX_ENTRY = "index entry"
    INDEX_HEADER = "index header"
    CONTROL_ENTRY = "control entry"
    CONTROL_HEADER = "control header"
    SIDECAR = "sidecar"
    WITNESS = "witness"


def flip(disk: SimDisk, kind: Rot, partition_id: int, rng: random.Random) -> str | None:
    """Flip one bit of this kind in the files of a partition; where it was, `None` when there is no such
    byte."""
    disk.land_all()
    ranges = [found for found in _ranges(disk, kind, partition_id) if found[1] < found[2]]
    if not ranges:
        return None
    path, start, end = rng.choice(ranges)
    offset, bit = rng.randrange(start, end), rng.randrange(8)
    disk.flip_bit(path, offset, bit)
    return f"{kind.value}: {path} byte {offset} bit {bit}"


def _ranges(disk: SimDisk, kind: Rot, partition_id: int) -> list[Range]:
    if kind in (Rot.CONTROL_ENTRY, Rot.CONTROL_HEADER):
        return _control(disk, kind, partition_id)
    if kind is Rot.WITNESS:
        return _witness(disk, partition_id)
    directory = partition_directory(partition_id)
    if not disk.is_dir(directory):
        return []
    found: list[Range] = []
    for name in sorted(disk.listdir(directory)):
        path = posixpath.join(directory, name)
        size = disk.durable_size(path)
        if name.endswith(layout.DATA_SUFFIXES):
            found += _segment(disk, kind, path, size)
        elif name.endswith(layout.INDEX_SUFFIX) and kind is Rot.INDEX_HEADER:
            found.append((path, 0, min(size, layout.HEADER_SIZE)))
        elif name.endswith(layout.INDEX_SUFFIX) and kind is Rot.INDEX_ENTRY:
            found.append((path, layout.HEADER_SIZE, size))
        elif name == layout.SIDECAR_NAME and kind is Rot.SIDECAR:
            found.append((path, 0, size))
    return found


def _control(disk: SimDisk, kind: Rot, partition_id: int) -> list[Range]:
    path = posixpath.join(DATA_DIRECTORY, layout.CONTROL_FILE_NAME)
    if not disk.exists(path):
        return []
    start = layout.HEADER_SIZE + layout.ENTRY_SIZE * partition_id
    if kind is Rot.CONTROL_HEADER:
        return [(path, 0, min(layout.HEADER_SIZE, disk.durable_size(path)))]
    return [(path, start, min(start + layout.ENTRY_SIZE, disk.durable_size(path)))]


def _witness(disk: SimDisk, partition_id: int) -> list[Range]:
    path = posixpath.join(DATA_DIRECTORY, layout.WITNESS_NAME)
    if not disk.exists(path):
        return []
    start = REGION_SIZE * partition_id
    return [(path, start, min(start + REGION_SIZE, disk.durable_size(path)))]


def _segment(disk: SimDisk, kind: Rot, path: str, size: int) -> list[Range]:
    if kind is Rot.SEGMENT_HEADER:
        return [(path, 0, min(size, layout.HEADER_SIZE))]
    data = disk.content(path)
    size = min(size, len(data))  # a cut that no sync has taken
    found: list[Range] = []
    start = layout.HEADER_SIZE
    while start + layout.RECORD_FIXED_SIZE <= size:
        length = _LENGTH.unpack_from(data, start + _LENGTH_OFFSET)[0]
        end = start + layout.RECORD_FIXED_SIZE + length
        if length < 0 or end > size:
            break
        data_start = start + layout.RECORD_HEAD_SIZE + _CHECKSUM_SIZE
        parts = {
            Rot.RECORD_HEADER: (path, start, data_start),
            Rot.RECORD_DATA: (path, data_start, end - _CHECKSUM_SIZE),
            Rot.RECORD_CHECKSUM: (path, end - _CHECKSUM_SIZE, end),
        }
        if kind in parts:
            found.append(parts[kind])
        start = end
    return found
