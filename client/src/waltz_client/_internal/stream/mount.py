"""What there is while a partition is mounted, and ends with the mount."""

from __future__ import annotations

from waltz_client._internal.req_ids import ReqIdSource
from waltz_client._internal.stream.feed_cursor import FeedCursor
from waltz_client._internal.stream.session import StreamSession
from waltz_protocol.types import ReqId

LEAST_CREDIT = 100  # of a feed request at the end of the log (the default of server.minFetchSize)


class Mount:
    """A mount that was answered READY, and the feeds asked for on it. Owner: the partition.

    Invariant: no feed request names a mark above what the partition has received.
    """

    __slots__ = ("_req_ids", "_spare_feeds", "feed_req_id", "held_back", "seq_nums", "session")

    def __init__(
        self, session: StreamSession, req_ids: ReqIdSource, seq_num: int, seq_nums: set[int]
    ) -> None:
        self.session = session
        self.feed_req_id = ReqId(req_ids.client_id, req_ids.generation, req_ids.partition_id, seq_num)
        """Of the mount, and of the stream."""
        self.seq_nums = seq_nums
        """Of the mount request that was answered, and of those sent after it."""
        self.held_back = False
        """The credit of the stream is used up, and no more was asked for."""
        self._req_ids = req_ids
        self._spare_feeds: list[int] = []  # numbers of readers' feeds that have ended

    def ask(self, received: int) -> None:
        """Ask for more of the stream."""
        self.held_back = False
        self.session.send_feed_request(self.feed_req_id, received)

    def ask_backfill(self, cursor: FeedCursor, received: int) -> bool:
        """Ask for a feed of a reader's own, from its place."""
        if cursor.tail is None:
            return False
        if cursor.feed_seq_num is None:
            spare = self._spare_feeds
            cursor.feed_seq_num = spare.pop() if spare else self._req_ids.next_seq_num()
        cursor.expected = cursor.tail + 1
        cursor.feed_at_least_to = received
        req_id = self.feed_req_id._replace(seq_num=cursor.feed_seq_num)
        return self.session.send_feed_request(req_id, cursor.tail)

    def end_backfill(self, cursor: FeedCursor, received: int) -> None:
        """A reader has no use for a feed of its own any longer: cut short what is left of it (see
        `readers`)."""
        seq_num = cursor.feed_seq_num
        if seq_num is None:
            return
        self._spare_feeds.append(seq_num)
        if cursor.feed_at_least_to - cursor.expected >= LEAST_CREDIT:
            self.session.send_feed_request(self.feed_req_id._replace(seq_num=seq_num), received)
