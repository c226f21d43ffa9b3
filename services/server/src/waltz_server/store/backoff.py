"""Waiting between tries, and waking those who wait for a change."""

from __future__ import annotations

import asyncio
import random

_JITTER = 0.2


class Backoff:
    """min(interval, limit), then the interval doubles; ±20 % so that many partitions do not move in step."""

    def __init__(self, initial_ms: float, limit_ms: float, rng: random.Random) -> None:
        self._initial_ms = initial_ms
        self._limit_ms = limit_ms
        self._interval_ms = initial_ms
        self._rng = rng

    def next_seconds(self) -> float:
        interval_ms = min(self._interval_ms, self._limit_ms)
        self._interval_ms = min(2 * interval_ms, self._limit_ms)
        return interval_ms * (1 + _JITTER * (2 * self._rng.random() - 1)) / 1000

    def reset(self) -> None:
        self._interval_ms = self._initial_ms


class Signal:
    """Wakes everybody who took a ticket before `notify`. Take the ticket, look at the state, then wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    def ticket(self) -> asyncio.Event:
        return self._event


_LEAST_SECONDS = 0.001


async def wait_for(ticket: asyncio.Event, timeout_seconds: float | None) -> bool:
    """Wait for a ticket; False when the time passed first.

    A wait is never shorter than the clock can show: of ``deadline - loop.time()`` a rounding error may be
    left, and whoever waits for that again and again keeps the loop busy while the clock stays where it is.
    """
    if timeout_seconds is not None and timeout_seconds <= 0:
        return ticket.is_set()
    try:
        async with asyncio.timeout(None if timeout_seconds is None else max(timeout_seconds, _LEAST_SECONDS)):
            await ticket.wait()
    except TimeoutError:
        return False
    return True
