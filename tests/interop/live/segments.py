"""Reads what storage nodes keep, from the description in docs/storage-files.md alone: nothing of the engine
is used here.

The files are those of both implementations. A reader of this module knows no index, no control file and no
side file: records one after another, each with its two checksums, ids without a gap, segments that continue
one another.
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

_HEADER_BYTES = 128
_FIRST_ID_AT = 32
_HEAD = struct.Struct(">q16siiI")
_CHECKSUM = struct.Struct(">I")


class SegmentError(AssertionError):
    """A file that is not as the description says; the message names it and the byte."""


@dataclass(frozen=True)
class Entry:
    """One record: its id, the 16 bytes of its request id, its header, its data."""

    transaction_id: int
    request_id: bytes
    header: int
    data: bytes


def read_partition(directory: Path) -> list[Entry]:
    """All records of a partition's directory in order; an empty list when there is none. SegmentError."""
    entries: list[Entry] = []
    for path in sorted(directory.glob("*.seg")):
        if int(path.stem) != len(entries):
            raise SegmentError(f"{path}: the segment before ends at {len(entries) - 1}")
        entries += _read_segment(path)
    return entries


def _read_segment(path: Path) -> list[Entry]:
    raw = path.read_bytes()
    first = int(path.stem)
    if len(raw) < _HEADER_BYTES or struct.unpack_from(">q", raw, _FIRST_ID_AT)[0] != first:
        raise SegmentError(f"{path}: its header does not begin with {first}")
    entries: list[Entry] = []
    place = _HEADER_BYTES
    while place < len(raw):
        entry, place = _read_record(path, raw, place, first + len(entries))
        entries.append(entry)
    return entries


def _read_record(path: Path, raw: bytes, place: int, expected: int) -> tuple[Entry, int]:
    try:
        transaction_id, request_id, header, length, data_checksum = _HEAD.unpack_from(raw, place)
        end = place + _HEAD.size + length
        (checksum,) = _CHECKSUM.unpack_from(raw, end)
    except struct.error:
        raise SegmentError(f"{path}: byte {place}: half a record") from None
    data = raw[place + _HEAD.size : end]
    if transaction_id != expected:
        raise SegmentError(f"{path}: byte {place}: record {transaction_id} where {expected} was expected")
    if length < 0 or zlib.crc32(data) != data_checksum or zlib.crc32(raw[place:end]) != checksum:
        raise SegmentError(f"{path}: byte {place}: record {transaction_id} has a wrong checksum")
    return Entry(transaction_id, request_id, header, data), end + _CHECKSUM.size
