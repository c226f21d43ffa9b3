"""Since when the feed has brought nothing that an append waits for. Pure."""

from __future__ import annotations


class FeedSilence:
    """Owner: the partition, which counts the ticks."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._since = 0

    def is_over_limit(self, waited_for: bool, received: int, tick: int, limit: int) -> bool:
        """Whether the feed, waited for, has not moved for `limit` ticks; then the next period begins."""
        if not waited_for or received != self._received:
            self._received = received
            self._since = tick
        elif tick - self._since >= limit:
            self._since = tick
            return True
        return False
