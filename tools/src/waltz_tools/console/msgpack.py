"""Reads MessagePack into values that JSON can show, to display a payload. Pure.

Bounded in depth and in the number of values. Bytes and extensions become short descriptions: this is for a
person's eyes, and nothing is written back.
"""

from __future__ import annotations

import struct

MAX_DEPTH = 32
MAX_VALUES = 20_000


class NotMessagePackError(ValueError):
    """The bytes are something else."""


_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
    0xD3: ">q",
}  # fmt: skip
_LENGTHS = {1: ">B", 2: ">H", 4: ">I"}


def decode(data: bytes) -> object:
    """The one value that the bytes are; NotMessagePackError when they are not exactly one."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.position != len(data):
        raise NotMessagePackError("bytes are left over")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self._values = 0

    def _take(self, count: int) -> bytes:
        taken = self._data[self.position : self.position + count]
        if len(taken) < count:
            raise NotMessagePackError("it ends too early")
        self.position += count
        return taken

    def _length(self, size: int) -> int:
        (length,) = struct.unpack(_LENGTHS[size], self._take(size))
        return int(length)

    def value(self, depth: int) -> object:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise NotMessagePackError("it is too deep or too large to be shown")
        code = self._take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code < 0x90:
            return self._map(code & 0x0F, depth)
        if code < 0xA0:
            return self._list(code & 0x0F, depth)
        if code < 0xC0:
            return self._text(code & 0x1F)
        if code in _NUMBERS:
            form = _NUMBERS[code]
            (number,) = struct.unpack(form, self._take(struct.calcsize(form)))
            return number
        return self._other(code, depth)

    def _other(self, code: int, depth: int) -> object:
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        if code in (0xC4, 0xC5, 0xC6):
            return _described("bytes", self._take(self._length(1 << (code - 0xC4))))
        if code in (0xC7, 0xC8, 0xC9):
            return self._extension(self._length(1 << (code - 0xC7)))
        if 0xD4 <= code <= 0xD8:
            return self._extension(1 << (code - 0xD4))
        if code in (0xD9, 0xDA, 0xDB):
            return self._text(self._length(1 << (code - 0xD9)))
        if code in (0xDC, 0xDD):
            return self._list(self._length(2 << (code - 0xDC)), depth)
        if code in (0xDE, 0xDF):
            return self._map(self._length(2 << (code - 0xDE)), depth)
        raise NotMessagePackError(f"0x{code:02x} begins no value")

    def _extension(self, size: int) -> str:
        kind = self._take(1)[0]
        return _described(f"extension {kind}", self._take(size))

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise NotMessagePackError("a text is not UTF-8") from None

    def _list(self, count: int, depth: int) -> list[object]:
        return [self.value(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for _ in range(count):
            position = self.position
            key = self.value(depth + 1)
            if isinstance(key, (list, dict)):  # their text would double its quotes at each depth
                kind = "list" if isinstance(key, list) else "map"
                key = f"<{kind} of {len(key)} at byte {position}>"
            found[key if isinstance(key, str) else repr(key)] = self.value(depth + 1)
        return found


def _described(what: str, data: bytes) -> str:
    shown = data[:32].hex()
    return f"<{what}, {len(data)} bytes: {shown}{'…' if len(data) > 32 else ''}>"
