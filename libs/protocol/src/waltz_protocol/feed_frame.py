"""FEED_DATA frames without message objects: all have 36 bytes, so many of them are one slice of a cache.

A server encodes each committed transaction once, for version 4, and writes the same bytes to every client
that follows the log; peers with an older version get the same frames with another version number (FEED_DATA
has not changed since version 0).
"""

import struct

from waltz_protocol.errors import EncodeError, ProtocolError

FEED_FRAME_SIZE = 36
FEED_DATA_TYPE = 4

_FRAME = struct.Struct(">bhib16sqi")
_BODY_SIZE = FEED_FRAME_SIZE - 7
_PARSE = struct.Struct(">b16sqi")


def pack_feed_frame(req_id: bytes, transaction_id: int, header: int, version: int = 4) -> bytes:
    """One whole FEED_DATA frame; `req_id` is that of the append, 16 bytes."""
    if len(req_id) != 16:  # struct would pad or cut it silently
        raise EncodeError(f"a ReqId has 16 bytes, not {len(req_id)}")
    try:
        return _FRAME.pack(0x4C, version, _BODY_SIZE, FEED_DATA_TYPE, req_id, transaction_id, header)
    except struct.error as e:
        raise EncodeError(f"feed data cannot be encoded: {e}") from None


def feed_frames_for_version(v4_frames: bytes | bytearray | memoryview, version: int) -> bytes:
    """The same FEED_DATA frames (any number, back to back) stamped with another version number."""
    if version == 4:
        return bytes(v4_frames)
    count, rest = divmod(len(v4_frames), FEED_FRAME_SIZE)
    if rest or not 0 <= version < 128:
        raise EncodeError(f"{len(v4_frames)} bytes are not whole feed frames for version {version}")
    stamped = bytearray(v4_frames)
    stamped[2::FEED_FRAME_SIZE] = bytes((version,)) * count
    return bytes(stamped)


def parse_feed_data(body: memoryview | bytes) -> tuple[bytes, int, int]:
    """(ReqId bytes, transaction id, header) of a FEED_DATA body; ProtocolError when it is not one."""
    if len(body) != _BODY_SIZE:
        raise ProtocolError(f"feed data has {len(body)} bytes instead of {_BODY_SIZE}")
    message_type, req_id, transaction_id, header = _PARSE.unpack(body)
    if message_type != FEED_DATA_TYPE:
        raise ProtocolError(f"message type {message_type} is not feed data")
    return req_id, transaction_id, header
