"""Reading and writing the primitive values of the protocols and of znodes (all big-endian).

Pure. Used by the message codec and the ZooKeeper serializers; the hot path has its own precompiled structs.
A `Reader` raises its own error and nothing else, whatever the bytes are, and never allocates by a number that
the bytes claim.
"""

import struct
from typing import ClassVar, Self
from uuid import UUID

from waltz_protocol.errors import EncodeError, ProtocolError

MAX_LIST_INTEGERS = 131_072
"""In one list of partition ids. No cluster has more partitions: ZooKeeper keeps at most 1 MiB in a znode, and
that of the assignment takes 8 bytes for each."""

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class Reader:
    """A cursor over one body. A subclass says what it reads and which error it raises."""

    __slots__ = ("buf", "kind", "offset")

    failure: ClassVar[type[Exception]] = ProtocolError

    def __init__(
        self, buf: bytes | bytearray | memoryview, offset: int = 0, *, kind: str = "a message"
    ) -> None:
        self.buf = memoryview(buf)
        self.offset = offset
        self.kind = kind

    def error(self, text: str) -> Exception:
        """What to raise when these are not the bytes of what is read."""
        return self.failure(f"{self.kind}: {text}")

    def _cut_short(self) -> Exception:
        return self.error(f"cut short at byte {len(self.buf)}")

    def _take(self, layout: struct.Struct) -> int:
        try:
            value: int = layout.unpack_from(self.buf, self.offset)[0]
        except struct.error:
            raise self._cut_short() from None
        self.offset += layout.size
        return value

    def i8(self) -> int:
        """One signed byte."""
        return self._take(_I8)

    def i16(self) -> int:
        """Two bytes, signed."""
        return self._take(_I16)

    def u16(self) -> int:
        """Two bytes, unsigned."""
        return self._take(_U16)

    def i32(self) -> int:
        """Four bytes, signed."""
        return self._take(_I32)

    def i64(self) -> int:
        """Eight bytes, signed."""
        return self._take(_I64)

    def boolean(self) -> bool:
        """One byte; only 1 is true."""
        return self._take(_I8) == 1

    def raw(self, size: int) -> memoryview:
        """`size` bytes as a view."""
        end = self.offset + size
        if size < 0 or end > len(self.buf):
            raise self._cut_short()
        view = self.buf[self.offset : end]
        self.offset = end
        return view

    def octets(self) -> bytes | None:
        """i32 length and that many bytes; any negative length is null."""
        length = self.i32()
        return None if length < 0 else bytes(self.raw(length))

    def text(self) -> str | None:
        """A string; bytes that are not UTF-8 become replacement characters, as in the reference."""
        data = self.octets()
        return None if data is None else data.decode("utf-8", "replace")

    def count(self, item_bytes: int) -> int:
        """An i32 count of items that take at least `item_bytes` each, checked against what is there."""
        n = self.i32()
        if n < 0 or n * item_bytes > len(self.buf) - self.offset:
            raise self.error(f"{n} items do not fit in the bytes left")
        return n

    def i32_array(self) -> tuple[int, ...] | None:
        """i32 count and that many i32, at most `MAX_LIST_INTEGERS`; a negative count is null."""
        n = self.i32()
        if n < 0:
            return None
        if n > MAX_LIST_INTEGERS:
            raise self.error(f"a list of {n} integers, more than {MAX_LIST_INTEGERS}")
        return struct.unpack(f">{n}i", self.raw(4 * n))

    def uuid(self) -> UUID:
        """16 bytes, most significant first."""
        return UUID(bytes=bytes(self.raw(16)))

    def finish(self) -> None:
        """An error when bytes are left over."""
        if self.offset != len(self.buf):
            raise self.error(f"{len(self.buf) - self.offset} bytes are left over")


class Writer:
    """Collects the parts of one body; each call gives the writer back. Raises its own error when a value does
    not fit."""

    __slots__ = ("parts",)

    failure: ClassVar[type[Exception]] = EncodeError

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def _put(self, layout: struct.Struct, value: int) -> Self:
        try:
            self.parts.append(layout.pack(value))
        except struct.error:
            raise self.failure(f"{value!r} does not fit {layout.size} bytes") from None
        return self

    def i8(self, value: int) -> Self:
        """One signed byte."""
        return self._put(_I8, value)

    def i16(self, value: int) -> Self:
        """Two bytes, signed."""
        return self._put(_I16, value)

    def u16(self, value: int) -> Self:
        """Two bytes, unsigned."""
        return self._put(_U16, value)

    def i32(self, value: int) -> Self:
        """Four bytes, signed."""
        return self._put(_I32, value)

    def i64(self, value: int) -> Self:
        """Eight bytes, signed."""
        return self._put(_I64, value)

    def boolean(self, value: bool) -> Self:
        """1 or 0."""
        return self.raw(b"\x01" if value else b"\x00")

    def raw(self, data: bytes) -> Self:
        """Bytes as they are."""
        self.parts.append(data)
        return self

    def octets(self, data: bytes | None) -> Self:
        """Length and bytes; None as length -1."""
        if data is None:
            return self.i32(-1)
        return self.i32(len(data)).raw(bytes(data))

    def text(self, value: str | None) -> Self:
        """A string as UTF-8; what UTF-8 cannot express becomes a question mark, as in the reference."""
        return self.octets(None if value is None else value.encode("utf-8", "replace"))

    def i32_array(self, values: "tuple[int, ...] | list[int] | None") -> Self:
        """Count and values, at most `MAX_LIST_INTEGERS`; None as count -1."""
        if values is None:
            return self.i32(-1)
        if len(values) > MAX_LIST_INTEGERS:
            raise self.failure(f"a list of {len(values)} integers, more than {MAX_LIST_INTEGERS}")
        try:
            self.parts.append(struct.pack(f">i{len(values)}i", len(values), *values))
        except struct.error as e:
            raise self.failure(f"a list of integers cannot be encoded: {e}") from None
        return self

    def uuid(self, value: UUID) -> Self:
        """16 bytes, most significant first."""
        return self.raw(value.bytes)

    def bytes(self) -> bytes:
        """All parts joined."""
        return b"".join(self.parts)
