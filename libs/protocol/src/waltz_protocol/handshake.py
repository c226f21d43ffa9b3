"""The Hello that both sides send first, and the choice of a version (docs/protocol.md, clients and
servers)."""

import re
import struct
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

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


_PROCESS = re.compile(r", process ([0-9a-f]{32})")


class Hello(NamedTuple):
    """The versions a side speaks and a text for people."""

    versions: tuple[int, ...]
    text: str | None

    @property
    def features(self) -> frozenset[int]:
        """Those of `FEATURES` that the side has."""
        return FEATURES.intersection(self.versions)

    @property
    def process_id(self) -> UUID | None:
        """Of the process that sent it (`with_process`); None where it does not state one."""
        found = _PROCESS.search(self.text or "")
        return None if found is None else UUID(found[1])

    def brief(self) -> "Hello":
        """What may be asked for later. A stranger's Hello has up to 64 KiB, for as long as he is there."""
        found = _PROCESS.search(self.text or "")
        return Hello(tuple(self.features), None if found is None else found[0])


def with_process(text: str, process_id: UUID | None) -> str:
    """The text of a Hello that states which process sends it, the same on all its ports and another one
    after each start. Peers of release 0.13.2 read no meaning into the text."""
    return text if process_id is None else f"{text}, process {process_id.hex}"


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
