"""How fast the log grows and when the disk will be full (pure: times and sizes are given).

The window is the last 24 hours, or the time since the start of the process if that is shorter; growth is not
said before a minute has passed, and the end of the room not before an hour: a busy minute is no prophecy.
What counts as growth is what was added: the files of a partition that were deleted meanwhile do not take
anything off. The disk fills at the faster of two paces, this growth and the net loss of free space, which
also knows of other programs and of other nodes on the same file system.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

WINDOW_SECONDS = 24 * 3600.0
SAMPLE_SECONDS = 300.0
MIN_GROWTH_SECONDS = 60.0
MIN_FORECAST_SECONDS = 3600.0
_DAY_SECONDS = 24 * 3600.0


class Sample(NamedTuple):
    """One look. `added_bytes`: what the log has grown by since the first look."""

    at_seconds: float
    log_bytes: int
    added_bytes: int
    free_bytes: int


class Growth:
    """Looks of the window: one per five minutes, and the newest. Owner: whoever looks."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._newest: Sample | None = None

    def look(self, now_seconds: float, log_bytes: int, free_bytes: int) -> None:
        """Take one look into account."""
        before = self._newest
        added = 0 if before is None else before.added_bytes + max(0, log_bytes - before.log_bytes)
        newest = self._newest = Sample(now_seconds, log_bytes, added, free_bytes)
        if not self._samples or now_seconds - self._samples[-1].at_seconds >= SAMPLE_SECONDS:
            self._samples.append(newest)
        while len(self._samples) > 1 and now_seconds - self._samples[1].at_seconds >= WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def window_seconds(self) -> float:
        """How long the time is that the pace was measured over."""
        if self._newest is None:
            return 0.0
        return self._newest.at_seconds - self._samples[0].at_seconds

    @property
    def bytes_per_day(self) -> float | None:
        """Growth of the log; `None` = too early to say."""
        newest, window = self._newest, self.window_seconds
        if newest is None or window < MIN_GROWTH_SECONDS:
            return None
        return (newest.added_bytes - self._samples[0].added_bytes) * _DAY_SECONDS / window

    def days_to_full(self, reserve_bytes: int) -> float | None:
        """Days until only the reserve is left; 0 when it is so, `None` when nothing grows or it is too
        early to say."""
        newest, growth = self._newest, self.bytes_per_day
        if newest is None:
            return None
        room = newest.free_bytes - reserve_bytes
        if room <= 0:
            return 0.0
        if growth is None or self.window_seconds < MIN_FORECAST_SECONDS:
            return None
        loss = (self._samples[0].free_bytes - newest.free_bytes) * _DAY_SECONDS / self.window_seconds
        pace = max(growth, loss)
        return room / pace if pace > 0 else None
