"""The Hello that both sides send first, and the choice of a version (docs/protocol.md, clients and
servers)."""

import struct
from collections.abc import Collection
from typing import NamedTuple

from waltz_protocol.buffer import Reader, Writer
from waltz_protocol.errors import HandshakeError
from waltz_protocol.frame import Magic, frame

HELLO_VERSION = 0
ZSTD_BLOCKS = 1001
"""The server takes requests for feeds of compressed blocks, in version 5."""
FEATURES = frozenset({ZSTD_BLOCKS})
"""Numbers among the versions of a Hello that are not versions: no side chooses one, and a side that does not
know one passes over it."""
MAX_HELLO_BYTES = 64 * 1024
"""A Hello is a few dozen bytes; before the handshake nothing larger is read from a stranger."""


class Hello(NamedTuple):
    """The versions a side speaks and a free text nobody checks."""

    versions: tuple[int, ...]
    text: str | None


def encode_hello(versions: Collection[int], text: str | None) -> bytes:
    """The whole Hello frame."""
    writer = Writer()
    writer.i32(len(versions))
    for version in versions:
        writer.i16(version)
    writer.text(text)
    return frame(Magic.HELLO, HELLO_VERSION, writer.bytes())


def decode_hello(body: bytes | bytearray | memoryview) -> Hello:
    """Parse the body of a Hello; ProtocolError when it is malformed."""
    reader = Reader(body)
    count = reader.count(2)
    versions = struct.unpack(f">{count}h", reader.raw(2 * count))
    text = reader.text()
    reader.finish()
    return Hello(versions, text)


def choose_version(ours: Collection[int], theirs: Collection[int]) -> int:
    """The highest version both sides speak; HandshakeError when there is none."""
    common = set(ours) & set(theirs)
    if not common:
        raise HandshakeError(
            f"no common protocol version: ours {sorted(ours)}, the peer's {sorted(set(theirs))[:20]}"
        )
    return max(common)
