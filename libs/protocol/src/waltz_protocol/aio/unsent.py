"""Replies that peers have asked for and do not take: bounded over all connections.

Owner: the loop. A connection is looked at only once it has more than `NOTICED_BYTES` waiting; what it then
may have is its share of the limit, so that peers that take nothing share the memory instead of adding it up.
A job that is under way may go past it by what it was allowed to read.
"""

from __future__ import annotations

from typing import Protocol

NOTICED_BYTES = 1 << 20


class Behind(Protocol):
    """A connection that is behind with its answers."""

    @property
    def closed(self) -> bool: ...

    @property
    def pending_bytes(self) -> int:
        """Bytes queued and not taken by the peer yet."""


class UnsentReplies:
    """The connections that are behind, and how far."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._behind: dict[Behind, None] = {}

    def sent(self, channel: Behind) -> None:
        """Replies were queued for this connection."""
        if channel.pending_bytes > NOTICED_BYTES:
            self._behind[channel] = None

    def beyond_share(self, channel: Behind) -> bool:
        """True when no more should be read for this connection now."""
        pending = channel.pending_bytes
        if pending <= NOTICED_BYTES:
            return False
        for other in list(self._behind):
            if other.closed or other.pending_bytes <= NOTICED_BYTES:
                del self._behind[other]
        total = sum(other.pending_bytes for other in self._behind)
        return total > self.limit_bytes and pending > self.limit_bytes // max(1, len(self._behind))
