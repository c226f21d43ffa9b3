"""Readers that are handed nothing although the log has moved, and nothing is wrong that would explain it."""

from __future__ import annotations

from tests.sim.checkers.history import FeedLog, History
from tests.sim.checkers.violation import Violation

SILENCE_SECONDS = 45.0
"""Without any fault a reader that lacks something is handed something within this time. Servers that fail
start over after pauses of up to 20 s, half-open connections are given up after 30 s."""


class SilenceWatch:
    """Called again and again while a run is on. Violation: `feed_silent`, once per feed."""

    def __init__(self, history: History, bound_seconds: float = SILENCE_SECONDS) -> None:
        self._history = history
        self._bound = bound_seconds
        self._known = 0
        self._open: dict[FeedLog, tuple[int, float]] = {}
        """Feed -> how much it had delivered, and since when it has been waiting for more."""

    def look(self, calm: bool) -> None:
        """`calm`: no fault is under way, all machines run, and no partition waits for a copy that was
        destroyed."""
        history = self._history
        now = history.now()
        for feed in history.feeds[self._known :]:
            self._open[feed] = (0, now)
        self._known = len(history.feeds)
        for feed, (count, since) in list(self._open.items()):
            if feed.ended_for_good():
                del self._open[feed]
            elif not calm or feed.count != count or not feed.waits():
                self._open[feed] = (feed.count, now)
            elif now - since > self._bound:
                del self._open[feed]
                text = (
                    f"{feed.name}: partition {feed.partition}: nothing for {now - since:.1f} s after {feed.last}, "
                    f"{history.book.mark(feed.partition)} is committed"
                )
                history.report(Violation("feed_silent", text))
