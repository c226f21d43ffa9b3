"""Frames: 7 bytes of header (i8 magic, i16 version, i32 length) and a body; sans-io splitting of a byte
stream.

`FrameSplitter` owns what one connection has received. Connections that a process accepts share one buffer to
read into (`scratch`): what is left of a read is kept in as many bytes as it has, so a connection at a frame
boundary takes no memory, and one inside a small frame as much as has arrived of it. Only the rest of a large
frame, and connections without a `scratch`, have a buffer of their own. Invariants:
* bytes `[start, end)` of the buffer are received and not yet yielded, starting at a frame boundary;
* the shared buffer is in use only between `get_buffer` and `settle` (or `keep`), within one call of the
  transport;
* the buffer grows only when it is full of received bytes, and never beyond one frame of the limit (storage
  protocol weakness: a claimed length must not cost memory): by doubling up to `MAPPED_BYTES`, then to the
  size of the frame, but mapped, so that it takes memory only as far as bytes have arrived;
* a yielded body is a view into the buffer and is valid until the next call of `get_buffer`;
* while a frame above the limit is passed over, nothing is received and not yet yielded: what comes of it is
  forgotten at once.
"""

import mmap
import struct
from collections.abc import Callable, Iterator

from waltz_protocol.errors import EncodeError, FrameTooLargeError, ProtocolError

FRAME_HEADER_SIZE = 7
DEFAULT_MAX_FRAME_BYTES = 64 * 1024 * 1024
INITIAL_BUFFER_BYTES = 64 * 1024
KEPT_FACTOR = 16
CALM_READS = 256
MAPPED_BYTES = 1024 * 1024
"""From this size on a receive buffer is mapped: its pages cost nothing before they are written."""
MAX_READ_BYTES = 256 * 1024
"""Of one read, so that a peer that sends fast does not hold up the loop."""
HEAD_BYTES = 17
"""Of the body of a frame above the limit, shown to who may have it passed over: a message type and a request
id."""

_HEADER = struct.Struct(">bhi")
_NOTHING = memoryview(b"")


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


def frame_header(magic: int, version: int, size: int) -> bytes:
    """The 7 bytes in front of a body of `size` bytes."""
    return _HEADER.pack(magic, version, size)


def keep_alive_frame(magic: int, version: int) -> bytes:
    """A frame of length zero: says "still here", is never answered."""
    return frame_header(magic, version, 0)


class FrameSplitter:
    """Turns received bytes into frames. Feed it: `get_buffer`, fill a part, `buffer_updated`.

    `expected` is the (magic, version) every header must carry, compared as soon as the 7 header bytes are
    there; it may be changed between two yielded frames (after a Hello). None accepts all. With `scratch`, at
    least twice `initial_bytes` long, every read ends with `settle` or `keep`.
    """

    __slots__ = (
        "_calm_reads",
        "_end",
        "_passing",
        "_rest",
        "_scratch",
        "_start",
        "_view",
        "expected",
        "initial_bytes",
        "max_frame_bytes",
        "passes_over",
    )

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        expected: tuple[int, int] | None = None,
        initial_bytes: int = INITIAL_BUFFER_BYTES,
        scratch: memoryview | None = None,
    ) -> None:
        self._scratch = scratch
        self._rest = b""
        self.max_frame_bytes = max_frame_bytes
        self.expected = expected
        self.initial_bytes = max(initial_bytes, FRAME_HEADER_SIZE)
        self.passes_over: Callable[[memoryview, int], bool] | None = None
        """Asked about a frame above the limit, with the first `HEAD_BYTES` of its body and its size: whether
        it is passed over. Without it, and where it says no, `FrameTooLargeError` is raised."""
        self._passing = 0
        """Bytes still to come of the frame that is passed over."""
        self._calm_reads = 0
        self._view = _NOTHING  # made when there is something to read: many peers connect and say nothing
        self._start = 0
        self._end = 0

    @property
    def buffered_bytes(self) -> int:
        """Received bytes that do not form a whole frame yet (0 = the stream is at a frame boundary)."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """Size of the receive buffer, or of what is kept without one."""
        return len(self._view) or len(self._rest)

    @property
    def has_frame(self) -> bool:
        """`frames` has something to say: the next frame is there as a whole, or its header is wrong."""
        start = self._start
        if self._end - start < FRAME_HEADER_SIZE:
            return False
        magic, version, length = _HEADER.unpack_from(self._view or self._rest, start)
        if (magic, version) != self.expected and self.expected is not None:
            return True
        if length > self.max_frame_bytes and self.passes_over is not None:
            length = min(length, HEAD_BYTES)
        return bool(length > self.max_frame_bytes or start + FRAME_HEADER_SIZE + length <= self._end)

    @property
    def missing_bytes(self) -> int:
        """Bytes that are still to come of the frame under way; 0 while its header is not there."""
        if self._end - self._start < FRAME_HEADER_SIZE:
            return 0
        length: int = _HEADER.unpack_from(self._view or self._rest, self._start)[2]
        return max(0, self._start + FRAME_HEADER_SIZE + length - self._end)

    def discard(self) -> None:
        """Forget everything and give the memory back; nothing may follow."""
        self._view, self._rest = _NOTHING, b""
        self._start = self._end = self._passing = 0

    def settle(self) -> None:
        """Every whole frame has been taken: keep what is left in as little as it needs. For connections with
        a `scratch`."""
        if self._scratch is None:
            return
        held = self._end - self._start
        if held <= self.initial_bytes >> 1:
            self._rest = bytes(self._view[self._start : self._end]) if held else b""
            self._view = _NOTHING
            self._start, self._end = 0, held
        elif self._view is self._scratch or self._start:  # the rest of a large frame: a buffer that grows
            capacity = self.initial_bytes
            while capacity <= held:
                capacity *= 2
            self._resize(min(capacity, max(self.max_frame_bytes + FRAME_HEADER_SIZE, held + 1)), held)

    def keep(self) -> None:
        """The next frames are taken later: keep them apart from the shared buffer."""
        if self._view is self._scratch:
            held = self._end - self._start
            self._view = memoryview(bytearray(self._view[self._start : self._end]))
            self._start, self._end = 0, held

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Free room for received bytes, at least one byte; earlier bodies become invalid."""
        capacity = len(self._view)
        held = self._end - self._start
        if not capacity and self._scratch is not None:
            if not held:
                return self._scratch
            self._scratch[:held] = self._rest
            return self._scratch[held:]
        if not held:
            received = self._end
            self._start = self._end = 0
            if not capacity:
                self._view = _new_buffer(self.initial_bytes)
            elif capacity > self.initial_bytes:
                self._shrink_when_calm(capacity, received)
        elif capacity - self._end <= capacity >> 2:
            # Little room at the end: make some. Moving is cheap here, it is one frame's beginning, and rare.
            if held > capacity >> 1 and held + self.missing_bytes >= capacity:
                grown = self._grown(capacity, held)
                if grown > capacity:
                    self._resize(grown, held)
            if self._start:
                self._view[:held] = self._view[self._start : self._end]
                self._start, self._end = 0, held
        return self._view[self._end : self._end + MAX_READ_BYTES]

    def _grown(self, capacity: int, held: int) -> int:
        """Twice as large, and from `MAPPED_BYTES` on as large as the frame: no more copies, and no memory
        before bytes."""
        limit = max(self.max_frame_bytes + FRAME_HEADER_SIZE, self.initial_bytes)
        return min(
            limit, capacity * 2 if capacity * 2 < MAPPED_BYTES else max(held + self.missing_bytes, capacity)
        )

    def _shrink_when_calm(self, capacity: int, received: int) -> None:
        """Frames are done. A very large buffer goes at once; one that large frames need again and again stays
        for a while, because a new one has to be filled with zeros each time."""
        self._calm_reads = 0 if received > self.initial_bytes else self._calm_reads + 1
        if capacity > KEPT_FACTOR * self.initial_bytes or self._calm_reads > CALM_READS:
            self._calm_reads = 0
            self._resize(self.initial_bytes, 0)

    def _resize(self, capacity: int, held: int) -> None:
        grown = _new_buffer(capacity)
        grown[:held] = self._view[self._start : self._end]
        self._view = grown
        self._start, self._end = 0, held

    def buffer_updated(self, n: int) -> Iterator[tuple[int, int, memoryview]]:
        """`n` bytes were written into the last `get_buffer`: yields (magic, version, body) of each whole
        frame.

        Keep-alives (length zero) are skipped. Exhaust the iterator, stop for good, or continue with `frames`.
        Raises ProtocolError for a wrong magic or version and for a negative length, FrameTooLargeError above
        the limit, unless the frame is passed over.
        """
        self.received(n)
        return self.frames()

    def received(self, n: int) -> None:
        """`n` bytes were written into the last `get_buffer`."""
        if not self._view and self._scratch is not None:
            self._view, self._rest = self._scratch, b""
        self._end += n
        if self._passing:
            self._pass_over()

    def frames(self) -> Iterator[tuple[int, int, memoryview]]:
        """Whole frames from where the last iterator stopped; see `buffer_updated`."""
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
                if self.passes_over is not None:
                    head = view[body : min(end, body + min(length, HEAD_BYTES))]
                    if len(head) < min(length, HEAD_BYTES):
                        return
                    if self.passes_over(head, length):
                        self._start, self._passing = body, length
                        self._pass_over()
                        continue
                raise FrameTooLargeError(
                    f"a frame of {length} bytes exceeds the limit of {self.max_frame_bytes} bytes"
                )
            if body + length > end:
                return
            self._start = body + length
            if length:
                yield magic, version, view[body : body + length]

    def _pass_over(self) -> None:
        """Forget what has arrived of a frame above the limit."""
        size = min(self._passing, self._end - self._start)
        self._start += size
        self._passing -= size


def _new_buffer(capacity: int) -> memoryview:
    return memoryview(bytearray(capacity) if capacity < MAPPED_BYTES else mmap.mmap(-1, capacity))


def _mismatch(magic: int, version: int, expected: tuple[int, int]) -> str:
    return (
        f"a frame starts with magic 0x{magic & 0xFF:02X} version {version}, "
        f"expected magic 0x{expected[0]:02X} version {expected[1]}"
    )
