"""A feed cursor: one reader's place in one partition, with a bounded buffer.

All readers of a partition share its mount. A cursor is in one of these states:

* LIVE      its place is the end of the partition's stream: it gets what the stream brings;
* BACKFILL  it is behind the stream and a feed request of its own is being answered;
* PARKED its buffer is full, or there is no mount: nothing is asked for until it has drained and a mount is
  there;
* CLOSED    closed by its reader, or failed with `error`.

The buffer is a queue of lists, one list per loop turn, so that handing over costs per turn and not per
transaction. A full cursor never stops the partition: what does not fit is dropped and asked for again later
from `tail`. Owner: the partition.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence

from waltz_client.transaction import FeedFields


class CursorState(enum.Enum):
    """See the module."""

    LIVE = "live"
    BACKFILL = "backfill"
    PARKED = "parked"
    CLOSED = "closed"


class FeedCursor:
    """Place, buffer and state of one reader in one partition.

    Invariants: what was buffered is consecutive; `tail` is the last transaction accepted (None until the
    end of the log is known, for a reader that starts from the latest); `count` never exceeds `capacity`.
    """

    __slots__ = (
        "_buffer", "_on_ready", "capacity", "count", "error", "expected", "feed_at_least_to", "feed_seq_num",
        "low_mark", "partition_id", "starving", "state", "tail", "turn",
    )  # fmt: skip

    def __init__(
        self, partition_id: int, after: int | None, capacity: int, on_ready: Callable[[], None]
    ) -> None:
        self.partition_id = partition_id
        self.tail = after
        self.capacity = capacity
        self.low_mark = capacity // 4
        self.count = 0
        self.state = CursorState.PARKED
        self.error: Exception | None = None
        self.feed_seq_num: int | None = None
        self.expected = 0  # BACKFILL: the next transaction of the cursor's own feed
        self.feed_at_least_to = 0  # BACKFILL: that feed is not over before this transaction
        self.turn: list[FeedFields] = []
        self.starving = False
        self._buffer: deque[Sequence[FeedFields]] = deque()
        self._on_ready = on_ready

    @property
    def full(self) -> bool:
        """At half its capacity: reading ahead any further is not urgent."""
        return self.count * 2 >= self.capacity

    @property
    def drained(self) -> bool:
        """Low enough to ask for more."""
        return self.count <= self.low_mark

    def place(self, tail: int) -> int:
        """The end of the log is known: a reader that starts from the latest starts after `tail`."""
        self.tail = tail
        self._on_ready()
        return tail

    def accept_turn(self, fields: Sequence[FeedFields]) -> None:
        """LIVE: take what the stream brought this turn (consecutive). Parks the cursor when it does not
        fit, or does not continue at its place: the rest is asked for again from there."""
        tail = self.tail
        if tail is None:
            tail = fields[0][4] - 1
        skip = tail + 1 - fields[0][4]
        if skip > 0:  # a reader whose place is ahead of the stream, waiting for the stream to come by
            fields = fields[skip:]
            if not fields:
                return
        elif skip < 0:
            self.state = CursorState.PARKED
            return
        self._accept(fields)

    def end_own_turn(self) -> None:
        """BACKFILL: take what the cursor's own feed brought this turn."""
        fields, self.turn = self.turn, []
        if fields:
            self._accept(fields)

    def _accept(self, fields: Sequence[FeedFields]) -> None:
        if self.count + len(fields) > self.capacity:
            self.state = CursorState.PARKED
            room = self.capacity - self.count
            if room == 0:
                return
            fields = fields[:room]
        self.tail = fields[-1][4]
        self.count += len(fields)
        self._buffer.append(fields)
        self.starving = False
        self._on_ready()

    def take(self) -> Sequence[FeedFields]:
        """The next buffered list; empty when there is none. The caller reports the draining to the
        partition."""
        if not self._buffer:
            return ()
        fields = self._buffer.popleft()
        self.count -= len(fields)
        return fields

    def take_at_most(self, limit: int) -> Sequence[FeedFields]:
        """Like `take`, but no more than `limit` transactions."""
        if not self._buffer:
            return ()
        fields = self._buffer[0]
        if len(fields) <= limit:
            return self.take()
        self._buffer[0] = fields[limit:]
        self.count -= limit
        return fields[:limit]

    def fail(self, error: Exception) -> None:
        """End the reader with an error, after what is buffered."""
        self.error = error
        self.state = CursorState.CLOSED
        self._on_ready()
