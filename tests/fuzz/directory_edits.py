"""Bytes as a list of changes to the files of a storage directory.

A change is an operation byte, a byte that chooses the file and what the operation needs. Missing bytes read
as zero, so every input means something. The language has what damage looks like (bits, sectors, cuts, lost
and swapped files) and what no damage can do, but a program could: changes with right checksums.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from tests.fuzz.directory_bases import PARTITIONS, ROOT, Files
from tests.fuzz.disk_form import ENTRY, HEADER, control_marks, first_txid, record, records

MAX_FILE_BYTES = 1 << 18
CONTROL = f"{ROOT}/waltz-storage.ctl"
SIDECAR = "waltz-fence"
_NEW_NAMES = (
    "0000000000000000000.seg",
    "0000000000000000000.idx",
    "0000000000000000000.seq",
    "0000000000000000003.seg",
    "0000000000000000003.idx",
    "9223372036854775807.seg",
    "x.seg",
    ".idx",
    SIDECAR,
    "notes.txt",
)


class Script:
    """Reads an input byte by byte; past its end everything is zero."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._data)

    def number(self, size_bytes: int = 1) -> int:
        return int.from_bytes(self.take(size_bytes).ljust(size_bytes, b"\0"), "big")

    def take(self, size_bytes: int) -> bytes:
        piece = self._data[self._at : self._at + size_bytes]
        self._at += size_bytes
        return piece

    def place(self, size: int) -> int:
        """A position in `size` bytes: from the start, or (odd first byte) from the end, where things
        break."""
        kind, offset = self.number(), self.number(2)
        offset = (offset << 2 | kind >> 6) % (size + 1)
        return size - offset if kind & 1 else offset


def apply(files: Files, script: Script, max_edits: int = 24) -> None:
    """Change `files` in place."""
    for _ in range(max_edits):
        if script.done or not files:
            return
        operation = OPERATIONS[script.number() % len(OPERATIONS)]
        names = sorted(files)
        operation(files, names[script.number() % len(names)], script)


def _overwrite(files: Files, name: str, script: Script) -> None:
    raw = bytearray(files[name])
    at = script.place(len(raw))
    piece = script.take(script.number())
    raw[at : at + len(piece)] = piece
    files[name] = bytes(raw)


def _flip(files: Files, name: str, script: Script) -> None:
    raw = bytearray(files[name])
    if raw:
        raw[script.place(len(raw) - 1)] ^= 1 << (script.number() & 7)
    files[name] = bytes(raw)


def _cut(files: Files, name: str, script: Script) -> None:
    files[name] = files[name][: script.place(len(files[name]))]


def _zeros(files: Files, name: str, script: Script) -> None:
    files[name] = (files[name] + bytes(script.number(2)))[:MAX_FILE_BYTES]


def _extend(files: Files, name: str, script: Script) -> None:
    files[name] = (files[name] + script.take(script.number()))[:MAX_FILE_BYTES]


def _remove(files: Files, name: str, script: Script) -> None:
    del files[name]


def _copy(files: Files, name: str, script: Script) -> None:
    names = sorted(files)
    files[name] = files[names[script.number() % len(names)]]


def _zero_sector(files: Files, name: str, script: Script) -> None:
    raw = bytearray(files[name])
    start = script.place(len(raw)) // 512 * 512
    raw[start : start + 512] = bytes(len(raw[start : start + 512]))
    files[name] = bytes(raw)


def _new_file(files: Files, name: str, script: Script) -> None:
    new = f"{ROOT}/{script.number() % PARTITIONS}/{_NEW_NAMES[script.number() % len(_NEW_NAMES)]}"
    files[new] = files[name] if script.number() & 1 else b""


def _sign(files: Files, name: str, script: Script) -> None:
    """Right checksums over whatever is there now."""
    raw = bytearray(files[name])
    if name.endswith((".seg", ".seq")):
        offset = HEADER
        while offset + 40 <= len(raw):
            end = offset + 40 + struct.unpack_from(">i", raw, offset + 28)[0]
            if not offset + 40 <= end <= len(raw):
                break
            _put_crc(raw, offset, end - 4)
            offset = end
    elif name == CONTROL:
        for start in range(HEADER, len(raw) - ENTRY + 1, ENTRY):
            _put_crc(raw, start + 4, start + 36)
            _put_crc(raw, start + 40, start + 72)
    elif name.endswith(SIDECAR):
        for start, size in ((0, 24), (512, 24), (1024, 36), (1536, 36)):
            if start + size + 4 <= len(raw):
                _put_crc(raw, start, start + size)
    files[name] = bytes(raw)


def _put_crc(raw: bytearray, start: int, end: int) -> None:
    raw[end : end + 4] = zlib.crc32(raw[start:end]).to_bytes(4, "big")


def _add_records(files: Files, name: str, script: Script) -> None:
    """Valid records at the end of a data file; the first id may be off by a little."""
    if name.endswith((".seg", ".seq")):
        raw = files[name]
        first = first_txid(raw)
        txid = first + len(records(raw, first)) + (script.number() % 4) * script.number()
        for number in range(script.number() % 8):
            if -(2**63) <= txid + number < 2**63:
                raw += record(txid + number, b"added")
        files[name] = raw[:MAX_FILE_BYTES]


def _set_marks(files: Files, name: str, script: Script) -> None:
    """A control entry with other marks, correctly written."""
    if CONTROL not in files:
        return
    partition_id = script.number() % PARTITIONS
    marks = control_marks(files[CONTROL], partition_id)
    if marks is None:
        return
    changed = marks._replace(
        session_id=script.number() - 2,
        low_water_mark=script.number(2) - 2,
        local_low_water_mark=script.number(2) - 2,
        flags=script.number(),
        sequence=((marks.sequence + 1 + 2**31) & 0xFFFFFFFF) - 2**31,
    )
    body = struct.pack(">qqqii", *changed)
    raw = bytearray(files[CONTROL])
    start = HEADER + ENTRY * partition_id + 4 + 36 * (script.number() & 1)
    raw[start : start + 36] = body + zlib.crc32(body).to_bytes(4, "big")
    files[CONTROL] = bytes(raw)


OPERATIONS: tuple[Callable[[Files, str, Script], None], ...] = (
    _overwrite,
    _flip,
    _cut,
    _zeros,
    _extend,
    _remove,
    _copy,
    _zero_sector,
    _new_file,
    _sign,
    _add_records,
    _set_marks,
)
