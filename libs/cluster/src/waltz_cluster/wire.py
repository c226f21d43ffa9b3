"""Reader and writer of znode bytes (ZooKeeper layout, encoding rules): big-endian, counted, bounds checked.

Pure. Whatever the bytes are, reading ends in a value or in a SerializationError. Bytes behind the value are
ignored, as by release 0.13.2.
"""

import struct
from uuid import UUID

from waltz_cluster.errors import SerializationError

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">H")


def _encode_modified_utf8(text: str) -> bytes:
    """Java's "modified UTF-8": NUL as two bytes, characters outside the BMP as two surrogates of three bytes
    each."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    utf16 = text.encode("utf-16-be", "surrogatepass")
    out = bytearray()
    for (unit,) in struct.iter_unpack(">H", utf16):
        if 0x01 <= unit <= 0x7F:
            out.append(unit)
        elif unit <= 0x7FF:
            out += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            out += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(out)


def _decode_modified_utf8(data: bytes) -> str:
    if data.isascii():
        return data.decode("ascii")
    units = bytearray()
    i = 0
    while i < len(data):
        lead = data[i]
        if lead < 0x80:
            unit, size = lead, 1
        elif lead >> 5 == 0b110:
            size = 2
            unit = (lead & 0x1F) << 6
        elif lead >> 4 == 0b1110:
            size = 3
            unit = (lead & 0x0F) << 12
        else:
            raise SerializationError("text in a znode is not modified UTF-8")
        tail = data[i + 1 : i + size]
        if len(tail) != size - 1 or any(byte >> 6 != 0b10 for byte in tail):
            raise SerializationError("text in a znode is not modified UTF-8")
        for place, byte in enumerate(reversed(tail)):
            unit |= (byte & 0x3F) << 6 * place
        units += _SHORT.pack(unit)
        i += size
    return units.decode("utf-16-be", "surrogatepass")


class Writer:
    """Collects the fields of one znode."""

    __slots__ = ("_out",)

    def __init__(self) -> None:
        self._out = bytearray()

    def byte(self, value: int) -> "Writer":
        self._out.append(value)
        return self

    def int32(self, value: int) -> "Writer":
        return self._pack(_INT, value)

    def int64(self, value: int) -> "Writer":
        return self._pack(_LONG, value)

    def _pack(self, layout: struct.Struct, value: int) -> "Writer":
        try:
            self._out += layout.pack(value)
        except struct.error as error:
            raise SerializationError(f"{value!r} does not fit its field: {error}") from None
        return self

    def utf(self, text: str) -> "Writer":
        data = _encode_modified_utf8(text)
        if len(data) > 0xFFFF:
            raise SerializationError(f"text of {len(data)} bytes is too long for a znode field")
        self._out += _SHORT.pack(len(data)) + data
        return self

    def uuid(self, value: UUID) -> "Writer":
        self._out += value.bytes
        return self

    def done(self) -> bytes:
        return bytes(self._out)


class Reader:
    """Takes the fields of one znode in order; every shortage is a SerializationError naming the znode's
    kind."""

    __slots__ = ("_data", "_kind", "_offset")

    def __init__(self, data: bytes | None, kind: str) -> None:
        if not data:
            raise SerializationError(f"{kind}: the znode has no data")
        self._data = data
        self._kind = kind
        self._offset = 0

    def error(self, text: str) -> SerializationError:
        return SerializationError(f"{self._kind}: {text}")

    def _take(self, size_bytes: int) -> bytes:
        end = self._offset + size_bytes
        if end > len(self._data):
            raise self.error(f"cut short at byte {len(self._data)}")
        piece = self._data[self._offset : end]
        self._offset = end
        return piece

    def version(self, expected: int) -> None:
        found = self._take(1)[0]
        if found != expected:
            raise self.error(f"version {found} is not the known version {expected}")

    def int32(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_LONG.unpack(self._take(8))[0])

    def count(self, item_size_bytes: int) -> int:
        """A number of items of at least that size each; more than fit in the rest is an error, not an
        allocation."""
        count = self.int32()
        if count < 0 or count * item_size_bytes > len(self._data) - self._offset:
            raise self.error(f"{count} items do not fit in the bytes left")
        return count

    def utf(self) -> str:
        size_bytes = int(_SHORT.unpack(self._take(2))[0])
        return _decode_modified_utf8(self._take(size_bytes))

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))
