"""Frames that a server sends on its busy paths, packed with one `struct` call each. Pure.

All `version` arguments are negotiated versions 0 to 5; `req_id` is the 16 bytes of the request answered. Data
responses are in `data`, feed data in `feed`.
"""

import struct

from waltz_protocol.frame import Magic
from waltz_protocol.messages.client import (
    FeedSuspended,
    FlushResponse,
    HighWaterMarkResponse,
    LockFailure,
    MountResponse,
    MountState,
)

_MAGIC = Magic.CLIENT
_FRAME = struct.Struct(">bhib16s")
_FRAME_WITH_ID = struct.Struct(">bhib16sq")
_FRAME_WITH_STATE = struct.Struct(">bhib16si")
_FRAME_WITH_BOOL = struct.Struct(">bhib16s?")
_BODY_BYTES = 17
"""Of type and ReqId; the rest comes behind them."""
_FIRST_VERSION_WITH_MOUNT_STATE = 3


def mount_response(version: int, req_id: bytes, state: MountState) -> bytes:
    """MOUNT_RESPONSE: i32 state since version 3, a bool before."""
    if version >= _FIRST_VERSION_WITH_MOUNT_STATE:
        return _FRAME_WITH_STATE.pack(_MAGIC, version, _BODY_BYTES + 4, MountResponse.TYPE, req_id, state)
    ready = state is MountState.READY
    return _FRAME_WITH_BOOL.pack(_MAGIC, version, _BODY_BYTES + 1, MountResponse.TYPE, req_id, ready)


def feed_suspended(version: int, req_id: bytes) -> bytes:
    """FEED_SUSPENDED: the credit of the feed request is used up."""
    return _FRAME.pack(_MAGIC, version, _BODY_BYTES, FeedSuspended.TYPE, req_id)


def flush_response(version: int, req_id: bytes, high_water_mark: int) -> bytes:
    """FLUSH_RESPONSE with the high-water mark after all earlier appends were resolved."""
    return _FRAME_WITH_ID.pack(_MAGIC, version, _BODY_BYTES + 8, FlushResponse.TYPE, req_id, high_water_mark)


def lock_failure(version: int, req_id: bytes, transaction_id: int) -> bytes:
    """LOCK_FAILURE with the id of the (estimated) youngest conflicting transaction."""
    return _FRAME_WITH_ID.pack(_MAGIC, version, _BODY_BYTES + 8, LockFailure.TYPE, req_id, transaction_id)


def high_water_mark_response(version: int, req_id: bytes, high_water_mark: int) -> bytes:
    """HIGH_WATER_MARK_RESPONSE with the last committed id, -1 for an empty log."""
    return _FRAME_WITH_ID.pack(
        _MAGIC, version, _BODY_BYTES + 8, HighWaterMarkResponse.TYPE, req_id, high_water_mark
    )
