"""Moved to `waltz_protocol.frames`."""

from waltz_protocol.frames.data import data_failure, data_response
from waltz_protocol.frames.replies import (
    feed_suspended,
    flush_response,
    high_water_mark_response,
    lock_failure,
    mount_response,
)

__all__ = [
    "data_failure",
    "data_response",
    "feed_suspended",
    "flush_response",
    "high_water_mark_response",
    "lock_failure",
    "mount_response",
]
