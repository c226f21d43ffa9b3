"""Waiting between tries, and waking those who wait for a change."""

from __future__ import annotations

import asyncio
import random

from waltz_protocol.backoff import Backoff

_SPREAD = (0.8, 1.2)


def retry_backoff(initial_ms: float, limit_ms: float, rng: random.Random) -> Backoff:
    """Pauses around the doubled interval, so that many partitions do not move in step."""
    return Backoff(min(initial_ms, limit_ms) / 1000, limit_ms / 1000, rng, spread=_SPREAD)


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

    A wait is never shorter than the clock can show: of `deadline - loop.time()` a rounding error may be
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
