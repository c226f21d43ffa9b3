"""Reading a data file without trusting it: validation, sequential scan, search after a break.

Memory stays bounded whatever the file says: a length is believed only as far as the file has bytes, and long
records are checksummed in pieces.
"""

from __future__ import annotations

import re
from array import array
from typing import NamedTuple

from waltz_protocol.checksum import crc32
from waltz_storage.engine import layout
from waltz_storage.engine.errors import StorageError
from waltz_storage.engine.files import File
from waltz_storage.engine.layout import RECORD_FIXED_SIZE, RECORD_HEAD, RECORD_HEAD_SIZE, unpack_u32

CHUNK_SIZE = 1 << 20
SECTOR_SIZE = 512
MAX_TXID = (1 << 63) - 1
SEARCH_BUDGET = 16
"""How often the search behind a break may checksum as many bytes as it searches."""


class SearchGivenUpError(StorageError):
    """The bytes behind a break look so much like records that it is not known whether one is there."""


class Scan(NamedTuple):
    """Valid records found one after another."""

    offsets: array[int]  # of each record
    end: int  # byte after the last valid record
    next_txid: int


def record_end(data: File, offset: int, txid: int, size: int) -> int:
    """Byte after the valid record `txid` at `offset`, or -1 when there is no such record."""
    if offset < layout.HEADER_SIZE or offset + RECORD_FIXED_SIZE > size:
        return -1
    head = data.pread(RECORD_HEAD_SIZE, offset)
    if len(head) < RECORD_HEAD_SIZE:
        return -1
    found, length = RECORD_HEAD.unpack(head)
    end: int = offset + RECORD_FIXED_SIZE + length
    if found != txid or length < 0 or end > size:
        return -1
    checksum, position = 0, offset
    while position < end - 4:
        piece = data.pread(min(CHUNK_SIZE, end - 4 - position), position)
        if not piece:
            return -1
        checksum = crc32(piece, checksum)
        position += len(piece)
    tail = data.pread(4, end - 4)
    return end if len(tail) == 4 and unpack_u32(tail) == checksum else -1


def scan(data: File, offset: int, txid: int, size: int, stop_txid: int | None = None) -> Scan:
    """Follow valid records from `offset` until one is not, the file ends, or `stop_txid` is reached."""
    offsets = array("q")
    base, chunk = offset, b""
    while stop_txid is None or txid < stop_txid:
        start = offset - base
        end = _end_in_chunk(chunk, start, txid)
        if end is None:
            base, chunk = offset, data.pread(min(CHUNK_SIZE, max(0, size - offset)), offset)
            end = _end_in_chunk(chunk, 0, txid)
            if end is None:  # longer than a chunk, or cut off by the end of the file
                end = record_end(data, offset, txid, size) - base
        if end <= 0:
            break
        offsets.append(offset)
        offset = base + end
        txid += 1
    return Scan(offsets, offset, txid)


def _end_in_chunk(chunk: bytes, start: int, txid: int) -> int | None:
    """End of the record inside the chunk, -1 when it is invalid, `None` when the chunk is too short to
    say."""
    if start + RECORD_FIXED_SIZE > len(chunk):
        return None
    found, length = RECORD_HEAD.unpack_from(chunk, start)
    if found != txid or length < 0:
        return -1
    end: int = start + RECORD_FIXED_SIZE + length
    if end > len(chunk):
        return None
    return end if crc32(chunk[start : end - 4]) == unpack_u32(chunk, end - 4) else -1


def find_later_record(data: File, start: int, size: int, expected: int) -> int:
    """Offset of a valid record with a TXID above `expected` after the break at `start`, or -1.

    Looks at every byte position, fast: only places whose eight bytes can be such a TXID are examined, and
    those whose length fits into the file are checksummed. That length is any user's to choose, so there is a
    bound: `SearchGivenUpError` when `SEARCH_BUDGET` times the bytes behind the break were not
    enough.
    """
    highest = min(expected + max(1, (size - start) // RECORD_FIXED_SIZE), MAX_TXID)
    if expected >= highest:
        return -1
    pattern = _txid_pattern(expected + 1, highest)
    budget = SEARCH_BUDGET * (size - start)
    position = start + 1
    while position < size:
        chunk = data.pread(CHUNK_SIZE + RECORD_HEAD_SIZE - 1, position)
        for match in pattern.finditer(chunk, 0, CHUNK_SIZE + 7):
            at = match.start()
            if at + RECORD_HEAD_SIZE > len(chunk):
                break  # the end of the file
            txid, length = RECORD_HEAD.unpack_from(chunk, at)
            end = position + at + RECORD_FIXED_SIZE + length
            if not expected < txid <= highest or length < 0 or end > size:
                continue
            budget -= RECORD_FIXED_SIZE + length
            if budget < 0:
                raise SearchGivenUpError(
                    f"too many of the {size - start:,} bytes behind it look like records"
                )
            found = _end_in_chunk(chunk, at, txid)
            if found is None:
                found = record_end(data, position + at, txid, size)
            if found >= 0:
                return position + at
        position += CHUNK_SIZE
    return -1


def _txid_pattern(low: int, high: int) -> re.Pattern[bytes]:
    first, last = low.to_bytes(8, "big", signed=True), high.to_bytes(8, "big", signed=True)
    common = 0
    while common < 7 and first[common] == last[common]:
        common += 1
    byte_range = (
        b"[" + re.escape(first[common : common + 1]) + b"-" + re.escape(last[common : common + 1]) + b"]"
    )
    # Stretches of zeros are common after a power loss and never a TXID above another one: skipped at full
    # speed.
    text = b"(?!\\x00{8})" + re.escape(first[:common]) + byte_range + b"." * (7 - common)
    return re.compile(b"(?=" + text + b")", re.DOTALL)


def unwritten_sector(data: File, start: int, size: int, expected: int) -> bool:
    """True when the broken record at `start` has a whole sector that reads as zeros where bytes must have
    been.

    That is what a sector looks like that never reached the disk, because files only grow here; a changed bit
    does not look like that.
    """
    head = data.pread(RECORD_HEAD_SIZE, start)
    end = start + RECORD_FIXED_SIZE
    if len(head) == RECORD_HEAD_SIZE:
        found, length = RECORD_HEAD.unpack(head)
        if found == expected and 0 <= length <= size - start - RECORD_FIXED_SIZE:
            end += length
    position = start
    while position < min(end, size):
        sector_end = min(position - position % SECTOR_SIZE + SECTOR_SIZE, size)
        piece = data.pread(sector_end - position, position)
        if not piece.strip(b"\0"):
            shown = expected.to_bytes(8, "big", signed=True)[: len(piece)]
            # Zeros at the start of a record may be its own: the first bytes of a small TXID.
            if position > start or shown.strip(b"\0") or len(piece) >= RECORD_FIXED_SIZE:
                return True
        position = sector_end
    return False
