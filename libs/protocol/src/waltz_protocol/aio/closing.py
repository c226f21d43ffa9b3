"""Connections that were closed and are not gone yet: TLS says good-bye first, and that takes a turn of the
peer.

A loop that is closed under them complains, or refuses (uvloop: "Device or resource busy"). Who runs a loop
for one piece of work waits for them at its end.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from typing import Protocol


class Closing(Protocol):
    """What is on its way out."""

    async def wait_closed(self) -> None: ...

    def abort(self, reason: str) -> None: ...


_leaving: weakref.WeakKeyDictionary[Closing, asyncio.AbstractEventLoop] = weakref.WeakKeyDictionary()


def leaving(channel: Closing, loop: asyncio.AbstractEventLoop) -> None:
    """It was closed."""
    _leaving[channel] = loop


def gone(channel: Closing) -> None:
    """Its transport has gone."""
    _leaving.pop(channel, None)


async def wait_gone(channels: Iterable[Closing] | None = None, *, timeout_seconds: float = 1.0) -> None:
    """Wait until these connections, which were closed, are gone (None: every one that was closed on this
    loop); those that take longer are cut."""
    loop = asyncio.get_running_loop()
    left = [channel for channel, of in _leaving.items() if of is loop] if channels is None else list(channels)
    try:
        async with asyncio.timeout(timeout_seconds):
            for channel in left:
                await channel.wait_closed()
    except TimeoutError:
        for channel in left:
            channel.abort("it did not close in time")
            await channel.wait_closed()
