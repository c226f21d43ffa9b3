"""Moved to `waltz_protocol.frames`."""

from waltz_protocol.frames.feed import feed_frames_for_version, pack_feed_frame

__all__ = ["feed_frames_for_version", "pack_feed_frame"]
