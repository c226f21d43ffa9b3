"""The feeds of blocks of one partition, as a server sends them: in order, within their credit and their
filter.

Owner: the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from waltz_client.testing.values import ClientConnection, LoggedTransaction
from waltz_protocol.frames.blocks import LAST_BLOCK, stored_of_entry
from waltz_protocol.messages import client as m
from waltz_protocol.types import ReqId, data_checksum

MAX_TRANSACTIONS = 1000
"""In a block."""


@dataclass(slots=True, eq=False)
class _BlockFeed:
    connection: ClientConnection
    req_id: ReqId
    position: int
    until: int
    credit: int
    credit_bytes: int
    headers: tuple[tuple[int, int], ...]
    announced: bool = False

    def wants(self, header: int) -> bool:
        return not self.headers or any(first <= header <= last for first, last in self.headers)


class BlockFeeds:
    """See the module. Invariant: a feed's `position` is the last transaction that it has covered."""

    def __init__(self, fails: Callable[[], bool]) -> None:
        """`fails`: whether the next read is to fail."""
        self.paused = False
        self._fails = fails
        self._feeds: list[_BlockFeed] = []

    def open(self, connection: ClientConnection, request: m.BlockFeedRequest, mark: int) -> None:
        """Instead of an open feed with the same request id, if there is one."""
        self.end(connection, request.req_id)
        self._feeds.append(
            _BlockFeed(
                connection,
                request.req_id,
                mark if request.after == m.FROM_THE_END else request.after,
                request.until,
                request.credit_transactions,
                request.credit_bytes,
                request.headers,
            )
        )

    def credit(self, connection: ClientConnection, credit: m.BlockCredit) -> None:
        """More of it, for a feed that is open."""
        for feed in self._feeds:
            if feed.connection is connection and feed.req_id == credit.req_id:
                feed.credit += credit.transactions
                feed.credit_bytes += credit.size_bytes

    def end(self, connection: ClientConnection, req_id: ReqId) -> None:
        """The client has no use for it any longer."""
        self._feeds = [
            feed for feed in self._feeds if feed.connection is not connection or feed.req_id != req_id
        ]

    def pump(self, log: Sequence[LoggedTransaction], first_id: int) -> None:
        """Send what can be sent. `first_id`: id of the first transaction of `log`."""
        if self.paused:
            return
        for feed in list(self._feeds):
            while self._send(feed, log, first_id):
                pass

    def _send(self, feed: _BlockFeed, log: Sequence[LoggedTransaction], first_id: int) -> bool:
        """One block; False when there is none to send."""
        start = feed.position + 1 - first_id
        end = len(log) if feed.until == m.WITHOUT_END else min(len(log), feed.until + 1 - first_id)
        over = feed.until != m.WITHOUT_END and feed.position >= feed.until
        chosen: list[bytes] = []
        looked = size = 0
        for entry in log[max(start, 0) : min(end, start + MAX_TRANSACTIONS)]:
            if feed.wants(entry.header):
                if feed.credit <= len(chosen) or feed.credit_bytes <= size:
                    break
                chosen.append(_stored(entry))
                size += len(chosen[-1])
            looked += 1
        if not looked and feed.announced and not over:
            return False
        if chosen and self._fails():
            self._feeds.remove(feed)
            code, text = m.BlockFailureCode.READ_FAILED, "the read was made to fail"
            feed.connection.send(m.BlockFailure(feed.req_id, code, text))
            return False
        last = feed.position + looked
        over = feed.until != m.WITHOUT_END and last >= feed.until
        feed.connection.send(
            m.FeedBlock(
                feed.req_id,
                feed.position + 1,
                last,
                len(chosen),
                LAST_BLOCK if over else 0,
                b"".join(chosen),
            )
        )
        feed.announced = True
        feed.position = last
        feed.credit -= len(chosen)
        feed.credit_bytes -= size
        if over:
            self._feeds.remove(feed)
        return not over and looked > 0

    def forget(self, connection: ClientConnection) -> None:
        """The connection is gone."""
        self._feeds = [feed for feed in self._feeds if feed.connection is not connection]

    def clear(self) -> None:
        """The partition is closed: the clients are informed."""
        feeds, self._feeds = self._feeds, []
        for feed in feeds:
            feed.connection.send(not_served(feed.req_id))


def not_served(req_id: ReqId) -> m.BlockFailure:
    """The answer for a partition that is not there."""
    return m.BlockFailure(req_id, m.BlockFailureCode.NOT_SERVED, "the partition is not served")


def _stored(entry: LoggedTransaction) -> bytes:
    header, size = entry.header.to_bytes(4, "big", signed=True), len(entry.data).to_bytes(4, "big")
    checksum = data_checksum(entry.data).to_bytes(4, "big", signed=True)
    tail = b"".join((header, size, entry.data, checksum))
    return stored_of_entry(entry.transaction_id, entry.req_id.pack(), tail)
