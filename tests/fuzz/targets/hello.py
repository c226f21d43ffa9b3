"""The Hello of a stranger, and the choice of a version."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.codec_properties import recorded_bodies
from tests.fuzz.target import Target
from waltz_protocol.errors import HandshakeError, ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE, Magic
from waltz_protocol.handshake import choose_version, decode_hello, encode_hello


def check(data: bytes) -> None:
    try:
        hello = decode_hello(data)
    except ProtocolError:
        return
    encoded = encode_hello(hello.versions, hello.text)[FRAME_HEADER_SIZE:]
    assert decode_hello(encoded) == hello
    try:
        chosen = choose_version((0, 1, 2, 3, 4), hello.versions)
    except HandshakeError as error:
        text = str(error)
        assert len(text) < 500, "a stranger decides how long the message is"
        assert not set(hello.versions) & {0, 1, 2, 3, 4}
    else:
        assert chosen in hello.versions
        assert chosen in range(5)


def seeds() -> Iterator[bytes]:
    for _, body in recorded_bodies(Magic.HELLO):
        yield body
    yield encode_hello((), None)[FRAME_HEADER_SIZE:]
    yield encode_hello((0, 1, 2, 3, 4), "Wältz \x00")[FRAME_HEADER_SIZE:]
    yield encode_hello((-1, 99), "")[FRAME_HEADER_SIZE:]


TARGET = Target(check, seeds)
