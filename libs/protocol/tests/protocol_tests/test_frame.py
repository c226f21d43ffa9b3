"""Splitting a byte stream into frames: limits, growth, and what ends a connection."""

from itertools import islice

import pytest

from waltz_protocol.errors import EncodeError, FrameTooLargeError, HandshakeError, ProtocolError
from waltz_protocol.frame import (
    CALM_READS,
    FRAME_HEADER_SIZE,
    HEAD_BYTES,
    KEPT_FACTOR,
    FrameSplitter,
    Magic,
    frame,
    keep_alive_frame,
)
from waltz_protocol.handshake import choose_version, decode_hello, encode_hello

INITIAL = 64
SCRATCH = memoryview(bytearray(512))


def feed(splitter: FrameSplitter, data: bytes) -> list[tuple[int, int, bytes]]:
    frames = []
    fed = 0
    while fed < len(data):
        room = splitter.get_buffer()
        n = min(len(room), len(data) - fed)
        room[:n] = data[fed : fed + n]
        fed += n
        frames += [(m, v, bytes(b)) for m, v, b in splitter.buffer_updated(n)]
    return frames


def test_frames_of_many_sizes_come_out_whole() -> None:
    splitter = FrameSplitter(initial_bytes=INITIAL)
    bodies = [bytes([i % 251]) * size for i, size in enumerate([1, 50, 57, 58, 64, 65, 1000, 1, 5000, 3])]
    stream = b"".join(frame(Magic.CLIENT, 4, b) for b in bodies)
    assert feed(splitter, stream) == [(Magic.CLIENT, 4, b) for b in bodies]


def test_zero_length_frames_are_ignored() -> None:
    splitter = FrameSplitter(expected=(Magic.CLIENT, 4))
    assert feed(splitter, keep_alive_frame(Magic.CLIENT, 4) * 10_000) == []
    assert feed(splitter, frame(Magic.CLIENT, 4, b"x")) == [(Magic.CLIENT, 4, b"x")]


def test_client_server_13_01_a_claimed_length_costs_no_memory() -> None:
    splitter = FrameSplitter(max_frame_bytes=1 << 30, initial_bytes=INITIAL)
    feed(splitter, b"\x4c\x00\x04\x3f\xff\xff\xff" + b"x" * 10)
    assert splitter.capacity_bytes == INITIAL
    feed(splitter, b"x" * 100)
    assert splitter.capacity_bytes <= 4 * 128


def test_client_server_13_01_a_frame_over_the_limit_is_refused_at_its_header() -> None:
    splitter = FrameSplitter(max_frame_bytes=100, initial_bytes=INITIAL)
    assert feed(splitter, frame(Magic.CLIENT, 4, bytes(100))) == [(Magic.CLIENT, 4, bytes(100))]
    with pytest.raises(FrameTooLargeError, match="101 bytes exceeds the limit of 100"):
        feed(splitter, b"\x4c\x00\x04\x00\x00\x00\x65")


@pytest.mark.parametrize("scratch", [None, SCRATCH])
@pytest.mark.parametrize("piece", [1, 7, 23, 24, 25, 100, 5000])
def test_a_frame_over_the_limit_is_passed_over_where_its_head_says_so(
    piece: int, scratch: memoryview | None
) -> None:
    """Asked once, when the head is there; nothing of the frame is kept, and what follows comes out."""
    asked: list[tuple[bytes, int]] = []

    def judge(head: memoryview, size: int) -> bool:
        asked.append((bytes(head), size))
        return head[0] == 2

    splitter = FrameSplitter(100, (Magic.CLIENT, 5), INITIAL, scratch)
    splitter.passes_over = judge
    bodies = [b"first", bytes([2]) * 101, b"second", bytes([2]) * 4000, b"third"]
    stream = b"".join(frame(Magic.CLIENT, 5, body) for body in bodies)
    found = []
    for start in range(0, len(stream), piece):
        found += [body for _, _, body in feed(splitter, stream[start : start + piece])]
        assert not splitter.has_frame
        splitter.settle()
        assert splitter.capacity_bytes <= 100 + FRAME_HEADER_SIZE
    assert found == [b"first", b"second", b"third"]
    assert asked == [(bytes([2]) * HEAD_BYTES, 101), (bytes([2]) * HEAD_BYTES, 4000)]
    assert splitter.buffered_bytes == 0
    with pytest.raises(FrameTooLargeError, match="101 bytes exceeds the limit of 100"):
        feed(splitter, frame(Magic.CLIENT, 5, bytes(101)))


def test_the_buffer_never_outgrows_one_frame_and_shrinks_again() -> None:
    limit = 10_000
    splitter = FrameSplitter(max_frame_bytes=limit, initial_bytes=INITIAL)
    data = frame(Magic.CLIENT, 4, bytes(limit))
    for i in range(0, len(data), 13):
        feed(splitter, data[i : i + 13])
        assert splitter.capacity_bytes <= limit + FRAME_HEADER_SIZE
    splitter.get_buffer()
    assert splitter.capacity_bytes == INITIAL


def test_a_negative_length_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="negative length"):
        feed(FrameSplitter(), b"\x4c\x00\x04\xff\xff\xff\xff")


@pytest.mark.parametrize("header", [b"\x53\x00\x04", b"\x4c\x00\x03", b"\x48\x00\x00", b"\x4c\x01\x04"])
def test_another_magic_or_version_is_an_error_at_the_header(header: bytes) -> None:
    splitter = FrameSplitter(expected=(Magic.CLIENT, 4))
    assert feed(splitter, header + b"\x00\x00\x00") == []
    with pytest.raises(ProtocolError, match="expected magic 0x4C version 4"):
        feed(splitter, b"\x10")


def test_what_is_expected_may_change_between_two_frames_of_one_read() -> None:
    splitter = FrameSplitter(expected=(Magic.HELLO, 0))
    data = encode_hello((0, 1), "x") + frame(Magic.CLIENT, 1, b"abc")
    room = splitter.get_buffer()
    room[: len(data)] = data
    seen = []
    for magic, _, _body in splitter.buffer_updated(len(data)):
        seen.append(magic)
        splitter.expected = (Magic.CLIENT, 1)
    assert seen == [Magic.HELLO, Magic.CLIENT]


def test_the_highest_common_version_is_chosen() -> None:
    assert choose_version((0, 1, 2, 3, 4), (4, 0, 9)) == 4
    assert choose_version((0, 1, 2), (0, 1, 2, 3, 4)) == 2
    with pytest.raises(HandshakeError, match="no common protocol version"):
        choose_version((0,), (1, 2))
    with pytest.raises(HandshakeError):
        choose_version((0,), ())


@pytest.mark.parametrize(
    "body",
    [
        "",
        "00000001",
        "ffffffff",
        "7fffffff0000",
        "000000010000",
        "0000000100000000000261",
        "0000000000000000ff",
    ],
)
def test_a_malformed_hello_is_a_protocol_error(body: str) -> None:
    with pytest.raises(ProtocolError):
        decode_hello(bytes.fromhex(body))


def test_a_frame_that_cannot_be_expressed_is_an_encode_error() -> None:
    with pytest.raises(EncodeError):
        frame(300, 0, b"")


def test_a_grown_buffer_stays_while_large_frames_come_and_goes_after_calm_reads() -> None:
    splitter = FrameSplitter(initial_bytes=INITIAL)
    large, small = frame(Magic.CLIENT, 4, bytes(8 * INITIAL)), frame(Magic.CLIENT, 4, b"x")
    for _ in range(3):
        for i in range(0, len(large), INITIAL):
            feed(splitter, large[i : i + INITIAL])
        splitter.get_buffer()
        assert INITIAL < splitter.capacity_bytes <= KEPT_FACTOR * INITIAL
    for _ in range(CALM_READS + 2):
        assert [body for _, _, body in feed(splitter, small)] == [b"x"]
    assert splitter.capacity_bytes == INITIAL


def shared_feed(splitter: FrameSplitter, data: bytes, piece: int, frames_at_once: int) -> list[bytes]:
    """Through the shared buffer, in pieces; no more than so many frames before the rest is kept apart."""
    bodies: list[bytes] = []
    fed = 0
    while fed < len(data):
        room = splitter.get_buffer()
        n = min(len(room), piece, len(data) - fed)
        assert n > 0
        room[:n] = data[fed : fed + n]
        fed += n
        splitter.received(n)
        bodies += [bytes(b) for _, _, b in islice(splitter.frames(), frames_at_once)]
        while splitter.has_frame:
            splitter.keep()
            SCRATCH[:] = bytes(len(SCRATCH))  # other connections read in between
            bodies += [bytes(b) for _, _, b in islice(splitter.frames(), frames_at_once)]
        splitter.settle()
        SCRATCH[:] = bytes(len(SCRATCH))
    return bodies


@pytest.mark.parametrize("piece", [1, 3, 64, 200, 512])
@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_frames_come_out_whole_through_a_shared_buffer(piece: int, at_once: int) -> None:
    splitter = FrameSplitter(initial_bytes=INITIAL, scratch=SCRATCH)
    bodies = [
        bytes([1 + i % 250]) * size for i, size in enumerate([1, 50, 57, 64, 65, 1000, 1, 5000, 3, 1, 1, 2])
    ]
    stream = b"".join(frame(Magic.CLIENT, 4, b) for b in bodies)
    assert shared_feed(splitter, stream * 2, piece, at_once) == bodies * 2
    assert splitter.capacity_bytes == 0


def test_between_two_reads_a_connection_takes_what_it_holds() -> None:
    """At a frame boundary nothing; inside a small frame its beginning; of a large one a buffer that grows."""
    splitter = FrameSplitter(initial_bytes=INITIAL, scratch=SCRATCH)
    small, large = frame(Magic.CLIENT, 4, bytes(20)), frame(Magic.CLIENT, 4, bytes(10_000))
    assert shared_feed(splitter, small * 5, 512, 100) == [bytes(20)] * 5
    assert splitter.capacity_bytes == 0
    shared_feed(splitter, small + small[:9], 512, 100)
    assert splitter.capacity_bytes == splitter.buffered_bytes == 9
    assert splitter.missing_bytes == len(small) - 9
    shared_feed(splitter, small[9:], 512, 100)
    for start in range(0, 5000, 100):
        shared_feed(splitter, large[start : start + 100], 100, 100)
        assert splitter.capacity_bytes <= max(4 * splitter.buffered_bytes, INITIAL)
    assert shared_feed(splitter, large[5000:] + small[:5], 512, 100) == [bytes(10_000)]
    assert splitter.capacity_bytes == 5


def test_client_server_13_01_a_claimed_length_costs_no_memory_in_a_shared_buffer_either() -> None:
    splitter = FrameSplitter(max_frame_bytes=1 << 30, initial_bytes=INITIAL, scratch=SCRATCH)
    shared_feed(splitter, b"\x4c\x00\x04\x3f\xff\xff\xff" + b"x" * 200, 50, 100)
    assert splitter.capacity_bytes <= 4 * 207
    splitter.discard()
    assert splitter.capacity_bytes == 0
