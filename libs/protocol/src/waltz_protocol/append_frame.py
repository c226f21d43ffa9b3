"""Moved to `waltz_protocol.frames`."""

from waltz_protocol.frames.append import (
    APPEND_TYPE,
    LARGE_BYTES,
    MAX_LOCKS,
    Append,
    AppendWithManyLocks,
    encode_append,
    parse_append,
    parse_large_append,
)

__all__ = [
    "APPEND_TYPE",
    "LARGE_BYTES",
    "MAX_LOCKS",
    "Append",
    "AppendWithManyLocks",
    "encode_append",
    "parse_append",
    "parse_large_append",
]
