"""What the event loop, the connections to storage nodes and the end of a client's connection call of a
partition's parts and of its store session, and the loop of a client's connection.

Whatever raises in a task ends its task group, and with it the session or the partition. A callback has nobody
to raise to: the loop writes a line, a connection is closed, and what the callback had begun stays half done
(entries that have an id and are in no frame, a round that waits for questions that were never asked). So each
of these callbacks is called through here, and what escapes from it (no memory, a mistake in the code) ends
the session or the partition, which begins again with a recovery, as after a crash; or the client's
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Callbacks:
    """The event loop, as the parts of one partition, session or connection use it. `on_fault` is called with
    what has escaped."""

    def __init__(self, on_fault: Callable[[Exception], None]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._on_fault = on_fault
        self.time = loop.time

    def run(self, callback: Callable[..., T], *args: Any) -> T | None:
        """Call it now; None when it has failed."""
        try:
            return callback(*args)
        except Exception as error:
            self._on_fault(error)
            return None

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Call it in the next turn. That it cannot be scheduled is a fault too: who asked for it waits."""
        self.run(self._loop.call_soon, self.run, callback, *args)

    def call_later(
        self, delay_seconds: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call it after this time."""
        return self._loop.call_later(delay_seconds, self.run, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Call it at this time of the loop."""
        return self._loop.call_at(when, self.run, callback, *args)
