"""What znodes have and the protocols do not: versions, Java's text, and an error of their own.

Pure. Whatever the bytes are, reading ends in a value or in a SerializationError. Bytes behind the value are
ignored, as by release 0.13.2.
"""

import struct
from typing import Self

from waltz_cluster.errors import SerializationError
from waltz_protocol.buffer import Reader, Writer


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
        units += unit.to_bytes(2, "big")
        i += size
    return units.decode("utf-16-be", "surrogatepass")


class ZnodeWriter(Writer):
    """Collects the fields of one znode."""

    __slots__ = ()

    failure = SerializationError

    def java_text(self, text: str) -> Self:
        """A string as modified UTF-8 behind its length in two bytes."""
        data = _encode_modified_utf8(text)
        if len(data) > 0xFFFF:
            raise SerializationError(f"text of {len(data)} bytes is too long for a znode field")
        return self.u16(len(data)).raw(data)


class ZnodeReader(Reader):
    """Takes the fields of one znode in order; every shortage is a SerializationError naming the znode's
    kind."""

    __slots__ = ()

    failure = SerializationError

    def __init__(self, data: bytes | None, kind: str) -> None:
        super().__init__(data or b"", kind=kind)
        if not data:
            raise self.error("the znode has no data")

    def version(self, expected: int) -> None:
        """One byte that has to be this number."""
        found = self.i8()
        if found != expected:
            raise self.error(f"version {found} is not the known version {expected}")

    def java_text(self) -> str:
        """See `ZnodeWriter.java_text`."""
        return _decode_modified_utf8(bytes(self.raw(self.u16())))
