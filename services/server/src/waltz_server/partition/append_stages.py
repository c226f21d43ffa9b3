"""How long appends spend in each stage of a server, for `waltz_server_append_stage_seconds`.

Of the whole server, not of each partition: a histogram is twenty series, and four of them per partition would
be most of what a server with a thousand partitions publishes. Which partition is slow is said by
`response-latency`, which each has; why, by these.

The hot path makes nothing per message for it: a time is read once per batch, and what took the same time in
one turn of the loop is counted together, whichever partition it is of. (uvloop's clock has steps of a
millisecond: that is most of a turn.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from waltz_runtime.metrics import MetricsRegistry, Timer
from waltz_server.partition.queued_append import QueuedAppend, item_of
from waltz_server.store.api import AppendEntry


class Stage:
    """One stage: what took equally long is counted when something took another time, and by `flush`."""

    __slots__ = ("_count", "_seconds", "timer")

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self._seconds = 0.0
        self._count = 0

    def add(self, seconds: float, count: int) -> None:
        """So many appends took so long."""
        if seconds != self._seconds:
            self.flush()
            self._seconds = seconds
        self._count += count

    def flush(self) -> None:
        """Into the timer."""
        self.timer.update_many(self._seconds, self._count)
        self._count = 0


class AppendStages:
    """The timers of the four stages, for all partitions of a server.

    * `queue`: from the arrival to the hand-over to the store: locks, admission, free space in flight
    * `storage`: from there to the reply that makes a majority
    * `commit`: from that reply to the risen committed mark: locks, caches, the frames of the feed
    * `feed`: from there to the end of the turn's writes to the clients whose feeds are at the end of the log

    The timers have all of a turn soon after its end.
    """

    __slots__ = ("_fed", "_scheduled", "commit", "feed", "queue", "storage")

    def __init__(self, registry: MetricsRegistry, group: str) -> None:
        prefix = f"{group}.append-stage-"
        self.queue = Stage(registry.timer(prefix + "queue"))
        self.storage = Stage(registry.timer(prefix + "storage"))
        self.commit = Stage(registry.timer(prefix + "commit"))
        self.feed = registry.timer(prefix + "feed")
        self._fed: dict[float, int] = {}
        """When the mark had risen, and over how many appends that were written to followers in this turn."""
        self._scheduled = False

    def handed_over(self, taken: Iterable[AppendEntry], now: float) -> Sequence[QueuedAppend]:
        """The store has taken these entries, at least one. What they were made of remembers when; returns
        that."""
        items = list(map(item_of, taken))
        arrived_at, same = items[0].arrived_at, 0
        for item in items:
            item.handed_at = now
            if item.arrived_at != arrived_at:
                self.queue.add(now - arrived_at, same)
                arrived_at, same = item.arrived_at, 0
            same += 1
        self.queue.add(now - arrived_at, same)
        if not self._scheduled:
            self._schedule()
        return items

    def committed(self, began: float, risen: float, count: int, *, fed: bool) -> None:
        """The mark has risen, at `risen`, over `count` appends whose majority was known at `began`. `fed`:
        they were written to followers, whose connections write at the end of the turn."""
        self.commit.add(risen - began, count)
        if fed:
            self._fed[risen] = self._fed.get(risen, 0) + count
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._turn_ends)

    def _turn_ends(self) -> None:
        self._scheduled = False
        for stage in (self.queue, self.storage, self.commit):
            stage.flush()
        fed, self._fed = self._fed, {}
        if fed:  # behind the writes of the turn, whichever were scheduled before this
            loop = asyncio.get_running_loop()
            loop.call_soon(self._written, loop, fed)

    def _written(self, loop: asyncio.AbstractEventLoop, fed: dict[float, int]) -> None:
        now = loop.time()
        for risen, count in fed.items():
            self.feed.update_many(now - risen, count)
