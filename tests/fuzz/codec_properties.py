"""What must hold of every message codec, and the recorded messages to start from."""

from __future__ import annotations

from collections.abc import Iterator

from tests.interop.recordings import SESSIONS, frames
from waltz_protocol.buffer import MAX_LIST_INTEGERS
from waltz_protocol.codec import Protocol
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import ReqId


def decoded(protocol: Protocol, body: bytes, version: int) -> Message | None:
    """The message, None when the body is refused. Decoding what was encoded gives the same message and
    bytes."""
    try:
        message = protocol.decode(body, version)
    except ProtocolError:
        return None
    for name in message.__dataclass_fields__:
        value = getattr(message, name)
        if isinstance(value, tuple) and value and isinstance(value[0], int) and not isinstance(value, ReqId):
            assert len(value) <= MAX_LIST_INTEGERS, f"{name} has {len(value)} integers"
    encoded = protocol.encode_body(message, version)
    again = protocol.decode(encoded, version)
    assert again == message, f"{message} became {again}"
    assert protocol.encode_body(again, version) == encoded, f"{message} has two encodings"
    assert protocol.encode(message, version)[FRAME_HEADER_SIZE:] == encoded
    return message


def recorded_bodies(magic: int) -> Iterator[tuple[int, bytes]]:
    """(version, body) of recorded frames of release 0.13.2, the shortest of each message type and version."""
    found: dict[tuple[int, int], bytes] = {}
    for session in SESSIONS:
        for frame in frames(session):
            if frame.raw[0] != magic or not frame.body:
                continue
            key = (frame.version, frame.body[0])
            if key not in found or len(frame.body) < len(found[key]):
                found[key] = frame.body
    for (version, _), body in sorted(found.items()):
        yield version, body
