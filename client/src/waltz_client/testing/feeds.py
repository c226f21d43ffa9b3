"""The feeds of one partition, as a server sends them: in order, never beyond their credit, then the end of
each.

Owner: the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from waltz_client.testing.values import ClientConnection, LoggedTransaction
from waltz_protocol.frames.feed import pack_feed_frame
from waltz_protocol.types import ReqId

MIN_CREDIT = 100
"""A feed request is good for at least so many transactions (`server.minFetchSize`)."""


class _Feed:
    def __init__(
        self, connection: ClientConnection, position: int, credit: int, done: Callable[[], None]
    ) -> None:
        self.connection = connection
        self.position = position
        self.credit = credit
        self.done = done


class Feeds:
    """See the module. Invariant: a feed's `position` is the id of the last transaction it was sent."""

    def __init__(self) -> None:
        self.paused = False
        self._feeds: list[_Feed] = []

    def open(
        self, connection: ClientConnection, position: int, credit: int, done: Callable[[], None]
    ) -> None:
        """Send `credit` > 0 transactions after `position`, as they are committed; then call `done`."""
        self._feeds.append(_Feed(connection, position, credit, done))

    def pump(self, log: Sequence[LoggedTransaction], first_id: int) -> None:
        """Send what can be sent. `first_id`: id of the first transaction of `log`."""
        if self.paused:
            return
        for feed in list(self._feeds):
            start = feed.position + 1 - first_id
            entries = log[start : start + feed.credit]
            version = feed.connection.version
            for entry in entries:
                req_id = ReqId.pack(entry.req_id)
                feed.connection.send_frame(
                    pack_feed_frame(req_id, entry.transaction_id, entry.header, version)
                )
            feed.position += len(entries)
            feed.credit -= len(entries)
            if feed.credit == 0:
                self._feeds.remove(feed)
                feed.done()

    def forget(self, connection: ClientConnection) -> None:
        """The connection is gone."""
        self._feeds = [feed for feed in self._feeds if feed.connection is not connection]

    def clear(self) -> None:
        """The partition is closed: feeds end in silence."""
        self._feeds.clear()
