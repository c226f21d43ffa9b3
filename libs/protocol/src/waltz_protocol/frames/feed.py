"""FEED_DATA frames without message objects: all have 36 bytes, so many of them are one slice of a cache.

Pure. A server encodes each committed transaction once, for version 4, and writes the same bytes to every
client that follows the log; peers with an older version get the same frames with another version number
(FEED_DATA has not changed since version 0).
"""

import struct
from collections.abc import Iterable
from typing import Protocol

from waltz_protocol.errors import EncodeError
from waltz_protocol.frame import Magic
from waltz_protocol.messages.client import FeedData

FEED_DATA = FeedData.TYPE
FRAME_BYTES = 36
FEED_DATA_BODY_BYTES = FRAME_BYTES - 7

_FRAME = struct.Struct(">bhib16sqi")
_CLIENT_ID = struct.Struct(">i")
_HEAD = struct.pack(">bhib", Magic.CLIENT, 4, FEED_DATA_BODY_BYTES, FEED_DATA)
"""Of every frame of version 4; behind it ReqId, transaction id, header."""

unpack_feed_data = struct.Struct(">iiiiqi").unpack_from
"""`unpack_feed_data(body, 1)` -> (client id, generation, partition id, seq num, transaction id, header)."""


def pack_feed_frame(req_id: bytes, transaction_id: int, header: int, version: int = 4) -> bytes:
    """One whole FEED_DATA frame; `req_id` is that of the append, 16 bytes."""
    if len(req_id) != 16:  # struct would pad or cut it silently
        raise EncodeError(f"a ReqId has 16 bytes, not {len(req_id)}")
    try:
        return _FRAME.pack(
            Magic.CLIENT, version, FEED_DATA_BODY_BYTES, FEED_DATA, req_id, transaction_id, header
        )
    except struct.error as e:
        raise EncodeError(f"feed data cannot be encoded: {e}") from None


class Entry(Protocol):
    """An append that has an id; `tail` starts with the i32 header."""

    req_id: bytes
    transaction_id: int
    tail: bytes


def frames_of_entries(entries: Iterable[Entry]) -> bytes:
    """Version 4 frames of entries just committed."""
    pieces: list[bytes] = []
    for entry in entries:
        pieces += (_HEAD, entry.req_id, entry.transaction_id.to_bytes(8, "big"), entry.tail[:4])
    return b"".join(pieces)


def client_of_frame(frame: bytes | memoryview) -> int:
    """The client id in a feed frame: who appended the transaction."""
    client_id: int = _CLIENT_ID.unpack_from(frame, 8)[0]
    return client_id


def frames_of_records(records: Iterable[bytes]) -> bytes:
    """Version 4 frames of wire or stored records: i64 id | ReqId | i32 header | ..."""
    pieces: list[bytes] = []
    for record in records:
        pieces += (_HEAD, record[8:24], record[:8], record[24:28])
    return b"".join(pieces)


def feed_frames_for_version(v4_frames: bytes | bytearray | memoryview, version: int) -> bytes:
    """The same FEED_DATA frames (any number, back to back) stamped with another version number."""
    if version == 4:
        return bytes(v4_frames)
    count, rest = divmod(len(v4_frames), FRAME_BYTES)
    if rest or not 0 <= version < 128:
        raise EncodeError(f"{len(v4_frames)} bytes are not whole feed frames for version {version}")
    if count == 1:
        return b"".join((v4_frames[:2], bytes((version,)), v4_frames[3:]))
    stamped = bytearray(v4_frames)
    stamped[2::FRAME_BYTES] = bytes((version,)) * count
    return bytes(stamped)
