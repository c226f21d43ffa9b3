"""The hot path of appends and of the feed says the same as the codec."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol_tests.strategies import DATA, I32, I64, REQ_IDS
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import EncodeError, ProtocolError, TooManyLocksError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append import (
    MAX_LOCKS,
    STEP_BYTES,
    Append,
    encode_append,
    parse_append,
    parse_large_append,
)
from waltz_protocol.frames.feed import (
    FRAME_BYTES,
    feed_frames_for_version,
    pack_feed_frame,
    unpack_feed_data,
)
from waltz_protocol.messages import client
from waltz_protocol.records import unpack_record, verify_record
from waltz_protocol.types import ReqId, data_checksum

_LOCKS = st.lists(I32, max_size=12)
_R = ReqId(1, 2, 3, 4)


@given(REQ_IDS, I64, _LOCKS, _LOCKS, _LOCKS, I32, DATA, st.integers(0, 4))
def test_appends_agree_with_the_codec(
    req_id: ReqId,
    high_water_mark: int,
    write: list[int],
    read: list[int],
    append: list[int],
    header: int,
    data: bytes,
    version: int,
) -> None:
    read = read if version >= 1 else []
    append = append if version >= 2 else []
    message = client.AppendRequest(
        req_id, high_water_mark, tuple(write), tuple(read), tuple(append), header, data, data_checksum(data)
    )
    frame = encode_append(req_id.pack(), high_water_mark, write, read, append, header, data, version)
    assert frame == CLIENT.encode(message, version)
    parsed = parse_append(memoryview(frame)[FRAME_HEADER_SIZE:], version)
    assert parsed is not None
    assert (parsed.write_locks, parsed.read_locks, parsed.append_locks) == (
        tuple(write),
        tuple(read),
        tuple(append),
    )
    assert (parsed.req_id, parsed.generation) == (req_id.pack(), req_id.generation)
    assert parsed.client_high_water_mark == high_water_mark
    wire_record = struct.pack(">q", 77) + parsed.req_id + parsed.tail
    assert verify_record(wire_record)
    record, end = unpack_record(wire_record)
    assert end == len(wire_record)
    assert record == (77, req_id, header, data, data_checksum(data))


def _body() -> bytearray:
    return bytearray(encode_append(_R.pack(), 9, [5], [6], [7], 1, b"hello", 4)[FRAME_HEADER_SIZE:])


@pytest.mark.parametrize("place", [25, 33, 41])
def test_a_null_lock_array_means_drop(place: int) -> None:
    body = _body()
    assert body[place : place + 4] == b"\0\0\0\1"
    body[place : place + 8] = b"\xff\xff\xff\xff"
    assert parse_append(memoryview(body), 4) is None
    assert isinstance(CLIENT.decode(body, 4), client.AppendRequest)


def test_a_null_lock_array_does_not_excuse_a_bad_checksum() -> None:
    body = _body()
    body[25:33] = b"\xff\xff\xff\xff"
    body[-1] ^= 1
    with pytest.raises(ProtocolError, match="checksum"):
        parse_append(memoryview(body), 4)


def test_what_is_wrong_with_an_append_is_a_protocol_error() -> None:
    body = _body()
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            parse_append(memoryview(body)[:end], 4)
    with pytest.raises(ProtocolError, match="length"):
        parse_append(memoryview(body + b"\0"), 4)
    flipped = bytearray(body)
    flipped[-6] ^= 1
    with pytest.raises(ProtocolError, match="checksum"):
        parse_append(memoryview(flipped), 4)
    null_data = bytes(body[:-13]) + b"\xff\xff\xff\xff" + bytes(4)
    with pytest.raises(ProtocolError, match="without data"):
        parse_append(memoryview(null_data), 4)
    other = bytearray(body)
    other[0] = 3
    with pytest.raises(ProtocolError, match="not an append"):
        parse_append(memoryview(other), 4)
    many = bytearray(body)
    many[25:29] = b"\x7f\xff\xff\xff"
    with pytest.raises(ProtocolError, match="locks that are not there"):
        parse_append(memoryview(many), 4)


@pytest.mark.parametrize(
    ("write", "read", "append"), [(65_537, 0, 0), (65_000, 537, 0), (20, 65_000, 517), (0, 0, 65_537)]
)
def test_too_many_locks_are_refused_before_any_is_read(write: int, read: int, append: int) -> None:
    """Of all three kinds together; one less is taken."""
    kinds = (tuple(range(write)), tuple(range(read)), tuple(range(append)))
    body = memoryview(encode_append(_R.pack(), 9, *kinds, 1, b"hello", 4))[FRAME_HEADER_SIZE:]
    with pytest.raises(TooManyLocksError):
        parse_append(body, 4)
    taken = parse_append(body, 4, MAX_LOCKS + 1)
    assert taken is not None
    assert (taken.write_locks, taken.read_locks, taken.append_locks) == kinds


def test_fifteen_million_locks_cost_no_memory() -> None:
    body = memoryview(b"\x02" + _R.pack() + struct.pack(">qi", 9, 15_000_000) + bytes(60_000_000 + 25))
    tracemalloc.start()
    try:
        with pytest.raises(TooManyLocksError, match="15000000 locks"):
            parse_append(body, 4)
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()


def _in_steps(body: memoryview, version: int) -> tuple[Append | None, list[int]]:
    steps, seen = parse_large_append(body, version), list[int]()
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as parsed:
            return parsed.value, seen


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("size", [0, 1, STEP_BYTES - 12, STEP_BYTES, 3 * STEP_BYTES + 5])
def test_a_large_append_in_steps_is_the_same_append(version: int, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    kinds = ([5, 6], [7] if version else [], [8, 9, 10] if version > 1 else [])
    body = memoryview(encode_append(_R.pack(), 9, *kinds, 1, data[:size], version))[FRAME_HEADER_SIZE:]
    parsed, steps = _in_steps(body, version)
    assert parsed == parse_append(body, version)
    assert max(steps) <= STEP_BYTES
    flipped = bytearray(body)
    flipped[-1] ^= 1
    with pytest.raises(ProtocolError, match="checksum"):
        _in_steps(memoryview(flipped), version)
    with pytest.raises(ProtocolError, match="length"):
        _in_steps(memoryview(bytes(body) + b"x"), version)


def test_a_parsed_append_does_not_share_the_receive_buffer() -> None:
    body = _body()
    parsed = parse_append(memoryview(body), 4)
    body[:] = bytes(len(body))
    assert parsed == Append(_R.pack(), 2, 9, (5,), (6,), (7,), parsed.tail if parsed else b"")
    assert parsed.tail[8:13] == b"hello"


def test_encode_append_refuses_what_the_version_or_the_wire_cannot_carry() -> None:
    with pytest.raises(EncodeError, match="read locks"):
        encode_append(_R.pack(), 0, [], [1], [], 0, b"", 0)
    with pytest.raises(EncodeError, match="append locks"):
        encode_append(_R.pack(), 0, [], [], [1], 0, b"", 1)
    with pytest.raises(EncodeError):
        encode_append(_R.pack(), 0, [2**31], [], [], 0, b"", 4)
    with pytest.raises(EncodeError, match="16 bytes"):
        encode_append(b"short", 0, [], [], [], 0, b"", 4)


@given(REQ_IDS, I64, I32, st.integers(0, 4))
def test_feed_frames_agree_with_the_codec(req_id: ReqId, txid: int, header: int, version: int) -> None:
    frame = pack_feed_frame(req_id.pack(), txid, header, version)
    assert len(frame) == FRAME_BYTES
    assert frame == CLIENT.encode(client.FeedData(req_id, txid, header), version)
    assert unpack_feed_data(frame, FRAME_HEADER_SIZE + 1) == (*req_id, txid, header)


@pytest.mark.parametrize("version", range(5))
def test_many_feed_frames_are_stamped_at_once(version: int) -> None:
    v4 = b"".join(pack_feed_frame(_R.pack(), t, -t) for t in range(300))
    expected = b"".join(pack_feed_frame(_R.pack(), t, -t, version) for t in range(300))
    assert feed_frames_for_version(memoryview(v4), version) == expected
    assert feed_frames_for_version(b"", version) == b""


def test_feed_frames_refuse_what_they_are_not() -> None:
    with pytest.raises(EncodeError):
        feed_frames_for_version(bytes(35), 3)
    with pytest.raises(EncodeError, match="16 bytes"):
        pack_feed_frame(b"x", 1, 1)
    with pytest.raises(EncodeError):
        pack_feed_frame(_R.pack(), 2**63, 1)
