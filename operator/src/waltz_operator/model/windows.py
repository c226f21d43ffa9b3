"""The window in which pods may be restarted. Pure; times are seconds (UNIX time), days and hours are UTC."""

from __future__ import annotations

from waltz_operator.api.cluster import Day, RestartWindow
from waltz_operator.model.times import timestamp

DAY_SECONDS = 86_400
_WEEK = tuple(Day)
_FIRST_DAY = 3
"""1 January 1970 was a Thursday."""


def closed(window: RestartWindow | None, now: float) -> str:
    """Which window it is and when it opens; empty while it is open, or there is none."""
    if window is None or is_open(window, now):
        return ""
    return f"restarts wait for the window {named(window)}; it opens at {timestamp(_opens(window, now))}"


def named(window: RestartWindow) -> str:
    """The window for a person."""
    days = ", ".join(day.value for day in _WEEK if day in window.days) or "every day"
    return f"{days} {window.start} UTC for {window.duration_minutes} minutes"


def is_open(window: RestartWindow, now: float) -> bool:
    """Also past midnight, and where one of the day before is longer than a day."""
    return any(begin <= now < begin + window.duration_minutes * 60 for begin in _begins(window, now, (-1, 0)))


def _opens(window: RestartWindow, now: float) -> float:
    return min(begin for begin in _begins(window, now, range(8)) if begin > now)


def _begins(window: RestartWindow, now: float, days: tuple[int, ...] | range) -> list[float]:
    """When it opens on the days that are so many from today."""
    hours, minutes = (int(part) for part in window.start.split(":"))
    today = int(now // DAY_SECONDS)
    return [
        day * DAY_SECONDS + hours * 3600.0 + minutes * 60.0
        for day in (today + offset for offset in days)
        if not window.days or _WEEK[(day + _FIRST_DAY) % 7] in window.days
    ]
