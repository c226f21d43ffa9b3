"""The frame splitter under any stream in pieces of any size, compared with a simple reading of the same
stream.

First byte: expected magic and version, limit and starting size of the buffer, and whether frames above the
limit whose first byte is even are passed over. Second byte: how many bytes of
pieces follow (used in turn, 0 = 1). The rest is the stream. It goes through a buffer of its own, and through
one that is shared, a few frames at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice

from tests.fuzz.target import Target
from tests.interop.recordings import frames
from waltz_protocol.errors import FrameTooLargeError, ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE, HEAD_BYTES, FrameSplitter, frame, keep_alive_frame

Frames = list[tuple[int, int, bytes]]
LIMITS = (64, 300, 5000, 64 * 1024 * 1024)
SIZES = (7, 16, 64, 1024)
EXPECTED: tuple[tuple[int, int] | None, ...] = (None, (0x4C, 4), (0x53, 0), (0x48, 0))


def check(data: bytes) -> None:
    if len(data) < 2:
        return
    expected = EXPECTED[data[0] & 3]
    limit, initial = LIMITS[data[0] >> 2 & 3], SIZES[data[0] >> 4 & 3]
    pieces = list(data[2 : 2 + data[1]]) or [255]
    stream = data[2 + data[1] :]
    passes_over = bool(data[0] >> 6 & 1)
    wanted, wanted_problem = _reference(stream, limit, expected, passes_over)
    for scratch in (None, memoryview(bytearray(2 * initial))):
        splitter = FrameSplitter(limit, expected, initial, scratch)
        if passes_over:
            splitter.passes_over = _is_even
        found, problem = _split(splitter, stream, pieces, scratch)
        assert found == wanted
        assert problem is wanted_problem
        if problem is not None:
            splitter.discard()
        assert splitter.capacity_bytes <= max(initial, 4 * len(stream)), "a claimed length costs memory"


def _split(
    splitter: FrameSplitter, stream: bytes, pieces: list[int], scratch: memoryview | None
) -> tuple[Frames, type | None]:
    found: Frames = []
    at_once = 1 + pieces[0] % 3
    position = turn = 0
    while position < len(stream):
        room = splitter.get_buffer()
        size = min(len(room), max(1, pieces[turn % len(pieces)]), len(stream) - position)
        assert size > 0, "no room for one byte"
        room[:size] = stream[position : position + size]
        position, turn = position + size, turn + 1
        try:
            splitter.received(size)
            while True:
                for magic, version, body in islice(splitter.frames(), at_once):
                    found.append((magic, version, bytes(body)))
                if not splitter.has_frame:
                    break
                splitter.keep()
                _overwrite(scratch)
            splitter.settle()
            _overwrite(scratch)
        except ProtocolError as error:
            return found, type(error)
    return found, None


def _is_even(head: memoryview, size: int) -> bool:
    assert len(head) == HEAD_BYTES < size
    return head[0] % 2 == 0


def _overwrite(scratch: memoryview | None) -> None:
    """Another connection reads."""
    if scratch is not None:
        scratch[:] = b"\xff" * len(scratch)


def _reference(
    stream: bytes, limit: int, expected: tuple[int, int] | None, passes_over: bool
) -> tuple[Frames, type | None]:
    found: Frames = []
    offset = 0
    while offset + FRAME_HEADER_SIZE <= len(stream):
        magic, version, length = struct.unpack_from(">bhi", stream, offset)
        offset += FRAME_HEADER_SIZE
        if expected not in (None, (magic, version)) or length < 0:
            return found, ProtocolError
        if length > limit and passes_over:
            if len(stream) - offset < HEAD_BYTES:
                break
            if stream[offset] % 2 == 0:
                offset += length
                continue
        if length > limit:
            return found, FrameTooLargeError
        if offset + length > len(stream):
            break
        if length:
            found.append((magic, version, stream[offset : offset + length]))
        offset += length
    return found, None


def seeds() -> Iterator[bytes]:
    recorded = [f.raw for f in frames("client-workload") if f.raw[0] == 0x4C][:8]
    yield bytes((0b1100, 2, 3, 50)) + b"".join(recorded)
    stream = frame(0x4C, 4, b"a" * 20) + keep_alive_frame(0x4C, 4) + frame(0x4C, 4, b"b" * 60)
    yield bytes((1, 1, 1)) + stream
    yield bytes((0b10001, 3, 7, 1, 200)) + stream
    yield bytes((0b1000, 0)) + frame(0x53, 0, b"c" * 400) * 3
    yield bytes((0, 1, 9)) + frame(0x48, 0, b"d" * 65)
    yield bytes((0b1100, 1, 16)) + struct.pack(">bhi", 0x4C, 4, 2**26) + b"e" * 200
    large = frame(0x4C, 4, b"d" * 400) + frame(0x4C, 4, b"a") + frame(0x4C, 4, b"e" * 301)
    yield bytes((0b1000100, 3, 3, 50, 255)) + large
    yield bytes((0b1000100, 1, 255)) + large
    yield bytes((0, 0)) + struct.pack(">bhi", 0x4C, 4, -1)


TARGET = Target(check, seeds, memory_bytes=64 * 1024)
