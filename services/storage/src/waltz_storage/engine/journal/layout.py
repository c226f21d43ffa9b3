"""Byte layouts of the node journal (docs/storage-files.md, the journal), pure.

All integers are big-endian. A journal file begins with one sector:

    char[4] magic "WZJF" | i32 version | char[16] journal id | i64 epoch | i32 number | u32 crc

and is followed by frames, back to back:

    u32 magic | i64 commit | i32 part | i32 flags | i32 length | u32 crc | length bytes of changes

A *commit* is what one sync makes durable: one frame or several, the last one marked. The checksum of a frame
begins with journal id and epoch, so that no frame of an earlier life of the file is ever taken for one of
this.

Changes, in the order in which they were made (`name`: a number for a path, given before its first use in each
file):

    1 name     i32 name, i16 length, path relative to the storage directory
    2 write    i32 name, i64 offset, i32 length, bytes
    3 cut      i32 name, i64 size
    4 create   i32 name: an empty file
    5 unlink   i32 name
    6 make_dir i32 name
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple
from uuid import UUID

from waltz_protocol.checksum import crc32

VERSION = 1
SECTOR_SIZE = 512
JOURNAL_SUFFIX = ".jnl"
RELEASED = -1
"""Epoch of a file that was in use and is not needed any longer; earlier releases of ours gave it 0."""
LAST = 1
"""Flag of the last frame of a commit."""
END = 2
"""Flag of the last frame of a file: the journal continues in the file of the next epoch."""
_FLAGS = frozenset({0, LAST, END})

_FILE = struct.Struct(">4si16sqi")
_FILE_MAGIC = b"WZJF"
_FRAME = struct.Struct(">Iqiii")
_FRAME_MAGIC = 0x575A4A31  # "WZJ1"
_CRC = struct.Struct(">I")
FRAME_HEADER_SIZE = _FRAME.size + _CRC.size
_SALT = struct.Struct(">16sq")

_NAME = struct.Struct(">bih")
_WRITE = struct.Struct(">biqi")
_CUT = struct.Struct(">biq")
_SHORT = struct.Struct(">bi")
WRITE_HEADER_SIZE = _WRITE.size
_MAX_PATH = 4096


class JournalDamagedError(Exception):
    """Bytes of a journal that were once synced are missing or changed."""


class JournalReleasedError(JournalDamagedError):
    """A file of the journal was released for another copy of the storage directory."""


class FileHeader(NamedTuple):
    """First sector of a journal file. `epoch` 0: it has not been used since the journal was made; `RELEASED`:
    all that it held is in the files."""

    journal_id: UUID
    epoch: int
    number: int

    def to_bytes(self) -> bytes:
        """One sector."""
        raw = _FILE.pack(_FILE_MAGIC, VERSION, self.journal_id.bytes, self.epoch, self.number)
        return (raw + _CRC.pack(crc32(raw))).ljust(SECTOR_SIZE, b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes) -> FileHeader | None:
        """`None` when it is no header of a journal file."""
        if len(raw) < _FILE.size + _CRC.size:
            return None
        if crc32(raw[: _FILE.size]) != _CRC.unpack_from(raw, _FILE.size)[0]:
            return None
        magic, version, journal_id, epoch, number = _FILE.unpack_from(raw)
        if magic != _FILE_MAGIC or version != VERSION:
            return None
        return cls(UUID(bytes=journal_id), epoch, number)


class Frame(NamedTuple):
    """One frame as it was found. `end`: offset of the byte after it."""

    commit: int
    part: int
    flags: int
    changes: bytes
    end: int


class Name(NamedTuple):
    """A number for a path, from here on in this file."""

    name: int
    path: str


class Write(NamedTuple):
    """Bytes at an offset."""

    name: int
    offset: int
    data: bytes


class Cut(NamedTuple):
    """A file gets a size."""

    name: int
    size: int


class Create(NamedTuple):
    """A file is made, empty."""

    name: int


class Unlink(NamedTuple):
    """A file is deleted."""

    name: int


class MakeDir(NamedTuple):
    """A directory is made."""

    name: int


Change = Name | Write | Cut | Create | Unlink | MakeDir


def salt(journal_id: UUID, epoch: int) -> int:
    """With what the checksums of a file begin."""
    return crc32(_SALT.pack(journal_id.bytes, epoch))


def frame(salted: int, commit: int, part: int, flags: int, changes: bytes) -> bytes:
    """One frame with its checksum."""
    head = _FRAME.pack(_FRAME_MAGIC, commit, part, flags, len(changes))
    return b"".join((head, _CRC.pack(crc32(changes, crc32(head, salted))), changes))


def read_frame(raw: bytes, offset: int, salted: int) -> Frame | None:
    """The valid frame at an offset, or `None`."""
    start = offset + FRAME_HEADER_SIZE
    if start > len(raw):
        return None
    magic, commit, part, flags, length = _FRAME.unpack_from(raw, offset)
    end = start + length
    if magic != _FRAME_MAGIC or length < 0 or end > len(raw):
        return None
    changes = memoryview(raw)[start:end]
    if (
        crc32(changes, crc32(raw[offset : offset + _FRAME.size], salted))
        != _CRC.unpack_from(raw, offset + _FRAME.size)[0]
    ):
        return None
    return Frame(commit, part, flags, bytes(changes), end)


def later_commit(raw: bytes, offset: int, salted: int, commit: int) -> int:
    """Offset of a valid frame at or after `offset` that belongs to a later commit, -1 when there is none.

    A client may have filled what an earlier life of the file has left there with bytes that look like frames
    of any length, so none of them is read: the checksum of each follows from those of what comes before its
    beginning and before its end. What that costs grows with the size of the file alone.
    """
    magic = _CRC.pack(_FRAME_MAGIC)
    sums: _Checksums | None = None
    place = raw.find(magic, offset, len(raw) - FRAME_HEADER_SIZE + len(magic))
    while place >= 0:
        _, found, part, flags, length = _FRAME.unpack_from(raw, place)
        start = place + FRAME_HEADER_SIZE
        if found > commit and part >= 0 and flags in _FLAGS and 0 <= length <= len(raw) - start:
            sums = sums if sums is not None else _Checksums(raw)
            checksum = sums.of(start, length, crc32(raw[place : place + _FRAME.size], salted))
            if checksum == _CRC.unpack_from(raw, place + _FRAME.size)[0]:
                return place
        place = raw.find(magic, place + 1, len(raw) - FRAME_HEADER_SIZE + len(magic))
    return -1


class _Checksums:
    """The checksums of parts of a file without reading them. A CRC is a polynomial over the field of two
    elements, and what follows some bytes multiplies theirs by x for each bit: so the checksum of a part is
    that of all up to its end, without that of all before it, times x as often as the part has bits."""

    def __init__(self, raw: bytes) -> None:
        self._raw = memoryview(raw)
        self._before = array("Q", [0])  # of all bytes before each block
        for start in range(0, len(raw), _BLOCK_BYTES):
            self._before.append(crc32(self._raw[start : start + _BLOCK_BYTES], self._before[-1]))

    def of(self, start: int, length: int, value: int) -> int:
        """What `crc32` makes of so many bytes from `start` on, beginning with `value`."""
        return self._up_to(start + length) ^ _shifted(self._up_to(start) ^ value, length)

    def _up_to(self, end: int) -> int:
        block = end // _BLOCK_BYTES
        return crc32(self._raw[block * _BLOCK_BYTES : end], self._before[block])


_BLOCK_BYTES = 256
_POLYNOMIAL = 0xEDB88320
"""Of CRC-32; the highest bit belongs to the lowest power."""


def _shifted(checksum: int, length: int) -> int:
    """Times x as often as so many bytes have bits."""
    for place in (0, 12, 24):
        digit = length >> place & 0xFFF
        if digit:
            checksum = _product(checksum, _power(digit << place))
    return checksum


@cache
def _power(length: int) -> int:
    """x as often as so many bytes have bits; of three times 4,095 different lengths."""
    result, square = 1 << 31, 1 << 31 - 8
    while length:
        if length & 1:
            result = _product(result, square)
        square = _product(square, square)
        length >>= 1
    return result


def _product(one: int, other: int) -> int:
    result, bit = 0, 1 << 31
    while bit:
        if one & bit:
            result ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
        bit >>= 1
    return result


def name_change(name: int, path: str) -> bytes:
    """See the module."""
    raw = path.encode()
    if len(raw) > _MAX_PATH:
        raise ValueError(f"a path of {len(raw)} bytes")
    return _NAME.pack(1, name, len(raw)) + raw


def write_head(name: int, offset: int, length: int) -> bytes:
    """See the module: a write without its bytes, which follow."""
    return _WRITE.pack(2, name, offset, length)


def cut_change(name: int, size: int) -> bytes:
    """See the module."""
    return _CUT.pack(3, name, size)


def create_change(name: int) -> bytes:
    """See the module."""
    return _SHORT.pack(4, name)


def unlink_change(name: int) -> bytes:
    """See the module."""
    return _SHORT.pack(5, name)


def make_dir_change(name: int) -> bytes:
    """See the module."""
    return _SHORT.pack(6, name)


def changes_of(raw: bytes) -> Iterator[Change]:
    """The changes of a frame. JournalDamagedError for bytes that are none, under a right checksum."""
    offset, limit = 0, len(raw)
    try:
        while offset < limit:
            kind = raw[offset]
            if kind == 1:
                _, name, length = _NAME.unpack_from(raw, offset)
                offset += _NAME.size
                yield Name(name, _taken(raw, offset, length).decode())
                offset += length
            elif kind == 2:
                _, name, place, length = _WRITE.unpack_from(raw, offset)
                offset += _WRITE.size
                yield Write(name, place, _taken(raw, offset, length))
                offset += length
            elif kind == 3:
                _, name, size = _CUT.unpack_from(raw, offset)
                offset += _CUT.size
                yield Cut(name, size)
            elif kind in _SHORT_KINDS:
                _, name = _SHORT.unpack_from(raw, offset)
                offset += _SHORT.size
                yield _SHORT_KINDS[kind](name)
            else:
                raise JournalDamagedError(f"a change of the unknown kind {kind}")
    except (struct.error, UnicodeDecodeError) as error:
        raise JournalDamagedError(f"a change that cannot be read: {error}") from None


_SHORT_KINDS: dict[int, type[Create] | type[Unlink] | type[MakeDir]] = {4: Create, 5: Unlink, 6: MakeDir}


def _taken(raw: bytes, offset: int, length: int) -> bytes:
    if length < 0 or offset + length > len(raw):
        raise JournalDamagedError(f"a change of {length} bytes, of which {len(raw) - offset} are there")
    return raw[offset : offset + length]
