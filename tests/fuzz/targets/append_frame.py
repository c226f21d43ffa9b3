"""The append on the hot path, compared with the same message decoded the careful way.

First byte: version (low bits); with bit 7 the checksum at the end is made right, so that what lies behind it
is tried.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from tests.fuzz.codec_properties import recorded_bodies
from tests.fuzz.target import Target
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError, TooManyLocksError
from waltz_protocol.frame import FRAME_HEADER_SIZE, Magic
from waltz_protocol.frames.append import APPEND_TYPE, MAX_LOCKS, Append, encode_append, parse_append
from waltz_protocol.messages import client
from waltz_protocol.records import unpack_record, verify_record

SIGN = 0x80


def check(data: bytes) -> None:
    if not data:
        return
    version, body = data[0] % 5, data[1:]
    if data[0] & SIGN:
        body = _signed(body, version)
    try:
        message: object = CLIENT.decode(body, version)
    except ProtocolError:
        message = None
    try:
        append = parse_append(memoryview(body), version)
    except TooManyLocksError:
        counts = (
            [len(locks) for locks in _locks(message) if locks] if message is not None else [MAX_LOCKS + 1]
        )
        assert sum(counts) > MAX_LOCKS, "refused, but it has no more locks than are taken"
        return
    except ProtocolError:
        assert not isinstance(message, client.AppendRequest), f"refused, but it is {message}"
        return
    assert isinstance(message, client.AppendRequest), "taken, but it is no append"
    if append is None:
        assert None in _locks(message)
        return
    _compare(append, message, version)


def _locks(message: object) -> tuple[tuple[int, ...] | None, ...]:
    assert isinstance(message, client.AppendRequest)
    return message.write_locks, message.read_locks, message.append_locks


def _compare(append: Append, message: client.AppendRequest, version: int) -> None:
    locks = (append.write_locks, append.read_locks, append.append_locks)
    assert locks == _locks(message)
    assert sum(map(len, locks)) <= MAX_LOCKS
    assert append.req_id == message.req_id.pack()
    assert append.generation == message.req_id.generation
    assert append.client_high_water_mark == message.client_high_water_mark
    wire = (5).to_bytes(8, "big") + append.req_id + append.tail
    assert verify_record(wire)
    record, end = unpack_record(wire)
    assert end == len(wire)
    assert (record.header, record.data) == (message.header, message.data)
    frame = encode_append(
        append.req_id,
        append.client_high_water_mark,
        append.write_locks,
        append.read_locks,
        append.append_locks,
        record.header,
        record.data,
        version,
    )
    assert frame == CLIENT.encode(message, version)
    assert parse_append(memoryview(frame)[FRAME_HEADER_SIZE:], version) == append


def _signed(body: bytes, version: int) -> bytes:
    """The body with the length and the checksum that fit its locks and its size, as far as the locks can be
    read."""
    offset = 25
    for _ in range(min(version, 2) + 1):
        count = int.from_bytes(body[offset : offset + 4], "big", signed=True)
        offset += 4 + 4 * max(0, count)
    offset += 4
    if offset + 8 > len(body):
        return body
    data = body[offset + 4 : -4]
    return body[:offset] + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")


def seeds() -> Iterator[bytes]:
    for version, body in recorded_bodies(Magic.CLIENT):
        if body[0] == APPEND_TYPE:
            yield bytes((version,)) + body
    req_id = bytes(range(16))
    shapes: tuple[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
        (0, (), (), ()),
        (0, (1, 2), (), ()),
        (1, (1,), (2, 3), ()),
        (2, (), (), ()),
        (3, (-1,), (), ()),
        (4, (1, 2), (3,), tuple(range(12))),
        (4, (), (), (7,)),
    )
    for version, write, read, append in shapes:
        body = encode_append(req_id, 41, write, read, append, 6, b"data of it", version)[FRAME_HEADER_SIZE:]
        yield bytes((version | SIGN,)) + body


TARGET = Target(check, seeds)
