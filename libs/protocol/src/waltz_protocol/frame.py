"""Frames: 7 bytes of header (i8 magic, i16 version, i32 length) and a body; sans-io splitting of a byte stream.

`FrameSplitter` owns the receive buffer of one connection. Invariants:
* bytes `[start, end)` of the buffer are received and not yet yielded, starting at a frame boundary;
* the buffer grows by doubling, only when it is full of received bytes, never because of a claimed length, and
  never beyond one frame of the limit (storage protocol weakness: a claimed length must not cost memory);
* a yielded body is a view into the buffer and is valid until the next call of `get_buffer`.
"""

import struct
from collections.abc import Iterator

from waltz_protocol.errors import EncodeError, FrameTooLargeError, ProtocolError

FRAME_HEADER_SIZE = 7
DEFAULT_MAX_FRAME_BYTES = 64 * 1024 * 1024
INITIAL_BUFFER_BYTES = 64 * 1024
KEPT_FACTOR = 16
CALM_READS = 256

_HEADER = struct.Struct(">bhi")


class Magic:
    """First byte of every frame: which protocol the frame belongs to."""

    HELLO = 0x48
    CLIENT = 0x4C
    STORAGE = 0x53
    ADMIN = 0x41


def frame(magic: int, version: int, body: bytes | bytearray | memoryview) -> bytes:
    """A whole frame around `body`; EncodeError when it cannot be expressed."""
    try:
        return b"".join((_HEADER.pack(magic, version, len(body)), body))
    except struct.error as e:
        raise EncodeError(f"a frame cannot be encoded: {e}") from None


def keep_alive_frame(magic: int, version: int) -> bytes:
    """A frame of length zero: says "still here", is never answered."""
    return _HEADER.pack(magic, version, 0)


class FrameSplitter:
    """Turns received bytes into frames. Feed it: `get_buffer`, fill a part, `buffer_updated`.

    `expected` is the (magic, version) every header must carry, compared as soon as the 7 header bytes are there;
    it may be changed between two yielded frames (after a Hello). None accepts all.
    """

    __slots__ = (
        "_buffer",
        "_calm_reads",
        "_end",
        "_start",
        "_view",
        "expected",
        "initial_bytes",
        "max_frame_bytes",
    )

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        expected: tuple[int, int] | None = None,
        initial_bytes: int = INITIAL_BUFFER_BYTES,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.expected = expected
        self.initial_bytes = max(initial_bytes, FRAME_HEADER_SIZE)
        self._calm_reads = 0
        self._buffer = bytearray(self.initial_bytes)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    @property
    def buffered_bytes(self) -> int:
        """Received bytes that do not form a whole frame yet (0 = the stream is at a frame boundary)."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """Size of the receive buffer."""
        return len(self._buffer)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Free room for received bytes, at least one byte; earlier bodies become invalid."""
        capacity = len(self._buffer)
        held = self._end - self._start
        if not held:
            received = self._end
            self._start = self._end = 0
            if capacity > self.initial_bytes:
                self._shrink_when_calm(capacity, received)
        elif capacity - self._end <= capacity >> 2:
            # Little room at the end: make some. Moving is cheap here, it is one frame's beginning, and rare.
            if held > capacity >> 1:
                limit = self.max_frame_bytes + FRAME_HEADER_SIZE
                grown = min(capacity * 2, max(limit, self.initial_bytes))
                if grown > capacity:
                    self._resize(grown, held)
            if self._start:
                self._view[:held] = self._view[self._start : self._end]
                self._start, self._end = 0, held
        return self._view[self._end :]

    def _shrink_when_calm(self, capacity: int, received: int) -> None:
        """Frames are done. A very large buffer goes at once; one that large frames need again and again stays for a
        while, because a new one has to be filled with zeros each time."""
        self._calm_reads = 0 if received > self.initial_bytes else self._calm_reads + 1
        if capacity > KEPT_FACTOR * self.initial_bytes or self._calm_reads > CALM_READS:
            self._calm_reads = 0
            self._resize(self.initial_bytes, 0)

    def _resize(self, capacity: int, held: int) -> None:
        grown = bytearray(capacity)
        grown[:held] = self._view[self._start : self._end]
        self._buffer = grown
        self._view = memoryview(grown)
        self._start, self._end = 0, held

    def buffer_updated(self, n: int) -> Iterator[tuple[int, int, memoryview]]:
        """`n` bytes were written into the last `get_buffer`: yields (magic, version, body) of each whole frame.

        Keep-alives (length zero) are skipped. Exhaust the iterator, or stop for good. Raises ProtocolError for a
        wrong magic or version and for a negative length, FrameTooLargeError above the limit.
        """
        self._end += n
        end = self._end
        view = self._view
        header = _HEADER.unpack_from
        while end - self._start >= FRAME_HEADER_SIZE:
            start = self._start
            magic, version, length = header(view, start)
            if (magic, version) != self.expected and self.expected is not None:
                raise ProtocolError(_mismatch(magic, version, self.expected))
            body = start + FRAME_HEADER_SIZE
            if length < 0:
                raise ProtocolError(f"a frame has the negative length {length}")
            if length > self.max_frame_bytes:
                raise FrameTooLargeError(
                    f"a frame of {length} bytes exceeds the limit of {self.max_frame_bytes} bytes"
                )
            if body + length > end:
                return
            self._start = body + length
            if length:
                yield magic, version, view[body : body + length]


def _mismatch(magic: int, version: int, expected: tuple[int, int]) -> str:
    return (
        f"a frame starts with magic 0x{magic & 0xFF:02X} version {version}, "
        f"expected magic 0x{expected[0]:02X} version {expected[1]}"
    )
