"""Feed data on the hot path, compared with the same message decoded the careful way. First byte: the
version."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.codec_properties import recorded_bodies
from tests.fuzz.target import Target
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.feed_frame import (
    FEED_DATA_TYPE,
    FEED_FRAME_SIZE,
    feed_frames_for_version,
    pack_feed_frame,
    parse_feed_data,
)
from waltz_protocol.frame import Magic
from waltz_protocol.messages import client


def check(data: bytes) -> None:
    if not data:
        return
    version, body = data[0] % 5, data[1:]
    try:
        message: object = CLIENT.decode(body, version)
    except ProtocolError:
        message = None
    try:
        req_id, transaction_id, header = parse_feed_data(body)
    except ProtocolError:
        assert not isinstance(message, client.FeedData), f"refused, but it is {message}"
    else:
        assert isinstance(message, client.FeedData)
        assert (req_id, transaction_id, header) == (
            message.req_id.pack(),
            message.transaction_id,
            message.header,
        )
        assert pack_feed_frame(req_id, transaction_id, header, version) == CLIENT.encode(message, version)
    try:
        stamped = feed_frames_for_version(body, version)
    except EncodeError:
        assert len(body) % FEED_FRAME_SIZE
    else:
        assert len(stamped) == len(body)


def seeds() -> Iterator[bytes]:
    for version, body in recorded_bodies(Magic.CLIENT):
        if body[0] == FEED_DATA_TYPE:
            yield bytes((version,)) + body
    yield bytes((2,)) + pack_feed_frame(bytes(range(16)), 5, 6) * 2


TARGET = Target(check, seeds)
