"""Feed data on the hot path, compared with the same message decoded the careful way. First byte: the
version."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.codec_properties import recorded_bodies
from tests.fuzz.target import Target
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.frame import Magic
from waltz_protocol.frames.feed import (
    FEED_DATA,
    FEED_DATA_BODY_BYTES,
    FRAME_BYTES,
    feed_frames_for_version,
    pack_feed_frame,
    unpack_feed_data,
)
from waltz_protocol.messages import client


def check(data: bytes) -> None:
    if not data:
        return
    version, body = data[0] % 5, data[1:]
    try:
        message: object = CLIENT.decode(body, version)
    except ProtocolError:
        message = None
    if body[:1] == bytes((FEED_DATA,)):  # what a client looks at before it takes the fields
        taken = len(body) == FEED_DATA_BODY_BYTES
        assert taken == isinstance(message, client.FeedData)
        if isinstance(message, client.FeedData):
            fields = (*message.req_id, message.transaction_id, message.header)
            assert unpack_feed_data(body, 1) == fields
            packed = pack_feed_frame(message.req_id.pack(), message.transaction_id, message.header, version)
            assert packed == CLIENT.encode(message, version)
    try:
        stamped = feed_frames_for_version(body, version)
    except EncodeError:
        assert len(body) % FRAME_BYTES
    else:
        assert len(stamped) == len(body)


def seeds() -> Iterator[bytes]:
    for version, body in recorded_bodies(Magic.CLIENT):
        if body[0] == FEED_DATA:
            yield bytes((version,)) + body
    yield bytes((2,)) + pack_feed_frame(bytes(range(16)), 5, 6) * 2


TARGET = Target(check, seeds)
