"""How long appends spend in each stage of a server, for `waltz_server_append_stage_seconds`.

Of the whole server, not of each partition: a histogram is twenty series, and four of them per partition would
be most of what a server with a thousand partitions publishes. Which partition is slow is said by
`response-latency`, which each has; why, by these.

The hot path makes nothing per message for it: a time is read once per batch, and appends of one batch that
arrived in one turn are counted together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from waltz_runtime.metrics import MetricsRegistry
from waltz_server.partition.queued_append import QueuedAppend, item_of
from waltz_server.store.api import AppendEntry


class AppendStages:
    """The timers of the four stages; the registry gives all partitions the same ones.

    * `queue`: from the arrival to the hand-over to the store: locks, admission, free space in flight
    * `storage`: from there to the reply that makes a majority
    * `commit`: from that reply to the risen committed mark: locks, caches, the frames of the feed
    * `feed`: from there to the end of the turn's writes to the clients whose feeds are at the end of the log
    """

    __slots__ = ("commit", "feed", "queue", "storage")

    def __init__(self, registry: MetricsRegistry, group: str) -> None:
        prefix = f"{group}.append-stage-"
        self.queue = registry.timer(prefix + "queue")
        self.storage = registry.timer(prefix + "storage")
        self.commit = registry.timer(prefix + "commit")
        self.feed = registry.timer(prefix + "feed")

    def handed_over(self, taken: Iterable[AppendEntry], now: float) -> Sequence[QueuedAppend]:
        """The store has taken these entries, at least one. What they were made of remembers when; returns
        that."""
        items = list(map(item_of, taken))
        arrived_at, same = items[0].arrived_at, 0
        for item in items:
            item.handed_at = now
            if item.arrived_at != arrived_at:
                self.queue.update_many(now - arrived_at, same)
                arrived_at, same = item.arrived_at, 0
            same += 1
        self.queue.update_many(now - arrived_at, same)
        return items

    def fed_later(self, loop: asyncio.AbstractEventLoop, risen: float, count: int) -> None:
        """What was written to followers in this turn leaves at its end: behind the connections' writes."""
        loop.call_soon(self._fed, loop, risen, count)

    def _fed(self, loop: asyncio.AbstractEventLoop, risen: float, count: int) -> None:
        self.feed.update_many(loop.time() - risen, count)
