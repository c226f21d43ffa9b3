"""The readers of one partition: who follows the stream, who catches up, who is parked.

One mount serves all. A reader behind the stream gets a feed request of its own from its place; when its place
meets the stream's it follows the stream. A reader whose buffer is full is parked and asks again once it has
drained.

Feeds of readers' own are distinguished by request ids on the server, and by nothing here: FEED_DATA carries
none. So it does not matter which feed brings a transaction. A cursor takes `expected` and only that; its own
feed starts at or before it and leaves nothing out, whatever an earlier feed of the same id still has on its
way. Therefore ids are used again: a server of ours then feeds from the new place *instead*. A reader that
ends early has its feed cut short that way, by a request from the end of the stream; what is left is the least
credit, written together with the stream. A server of release 0.13.2 continues with both; there the least
credit comes on top of what is left.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from waltz_client._internal.stream.feed_cursor import CursorState, FeedCursor
from waltz_client._internal.stream.host import ReaderHost
from waltz_client.errors import ClientAheadError, WaltzClientError
from waltz_client.transaction import FeedFields

log = logging.getLogger(__name__)

AHEAD_RETRY_SECONDS = 5.0


class FeedSource(Protocol):
    """What readers need of the partition that they read."""

    @property
    def partition_id(self) -> int:
        """Its number."""
        ...

    @property
    def active(self) -> bool:
        """Whether the client takes part in it."""
        ...

    @property
    def mounted(self) -> bool:
        """Whether feeds can be asked for."""
        ...

    @property
    def received(self) -> int:
        """The last transaction of the stream."""
        ...

    def ask_if_pending(self) -> None:
        """Ask for more of the stream, if that was held back."""
        ...

    def send_backfill(self, cursor: FeedCursor) -> bool:
        """Ask for a feed of a reader's own, from its place. False when not mounted."""
        ...

    def end_backfill(self, cursor: FeedCursor) -> None:
        """A reader has no use for a feed of its own any longer."""
        ...

    def reconsider_reading(self) -> None:
        """A reader has become full, or is no longer: pause or resume the connection."""
        ...


class BlockReader(Protocol):
    """A reader that needs no mount: a feed of blocks."""

    @property
    def position(self) -> int | None:
        """The last transaction covered."""
        ...

    def end_known(self, mark: int) -> None:
        """A reader from the end on, which has not heard where that is, begins at `mark` at the latest."""
        ...

    def fail(self, error: WaltzClientError) -> None:
        """End it with an error, after what is buffered."""
        ...


class Readers:
    """The cursors of one partition. Owner: the partition, on the loop.

    Invariants: a cursor is in at most one of `live` and `backfills`; a live cursor's place is
    `received` at the end of each turn (or ahead of it, for a reader that started ahead); `turn` holds
    what the stream brought in this turn.
    """

    def __init__(self, source: FeedSource, host: ReaderHost) -> None:
        self.partition_id = source.partition_id
        self._about = {"partition": source.partition_id}
        self.live: list[FeedCursor] = []
        self.backfills: list[FeedCursor] = []
        self.turn: list[FeedFields] = []
        self.blocks: set[BlockReader] = set()
        """Readers that need no mount."""
        self.end_is_known = False
        """Whether the stream has come to the end of the log since the client takes part: that of a named
        producer starts further back."""
        self._all: list[FeedCursor] = []
        self._source = source
        self._host = host

    def __len__(self) -> int:
        return len(self._all)

    @property
    def end(self) -> int | None:
        """Where a reader of what is committed from now on begins; None while nobody here can say."""
        return self._source.received if self.end_is_known else None

    def add(self, cursor: FeedCursor) -> None:
        """A new reader; it starts when the partition is mounted."""
        self._all.append(cursor)
        if self._source.mounted:
            self._start(cursor)

    def remove(self, cursor: FeedCursor) -> None:
        """The reader is closed."""
        self._source.end_backfill(cursor)
        for cursors in (self._all, self.live, self.backfills):
            if cursor in cursors:
                cursors.remove(cursor)
        cursor.state = CursorState.CLOSED
        self._source.ask_if_pending()
        self._source.reconsider_reading()

    def fail_all(self, error: WaltzClientError) -> None:
        """End every reader with an error."""
        for cursor in list(self._all):
            self.remove(cursor)
            cursor.fail(error)
        for feed in list(self.blocks):
            self.blocks.discard(feed)
            feed.fail(error)

    def covered(self, feed: BlockReader, at_the_end: bool) -> None:
        """A block has come. `at_the_end`: the first one, with nothing in it: the feed may be ahead."""
        position = feed.position
        if position is None:
            return
        if at_the_end and position > self._source.received:
            where = f"place of a reader of partition {self.partition_id}"
            self._host.spawn(self._check_ahead(feed), where)
        else:
            self._host.mark_named(self.partition_id, position)

    def end_known(self, mark: int) -> None:
        """The log ends at `mark`; what the client appends comes behind it."""
        self.end_is_known = True
        for feed in self.blocks:
            feed.end_known(mark)

    def mounted(self) -> None:
        """The partition is mounted: whoever is behind asks."""
        for cursor in list(self._all):
            if cursor.state is CursorState.PARKED and (cursor.drained or cursor.tail is None):
                self._start(cursor)

    def unmounted(self) -> None:
        """Feeds of readers' own are over; those who follow the stream continue following it."""
        self.end_turn()
        for cursor in self.backfills:
            cursor.state = CursorState.PARKED
            cursor.feed_seq_num = None
        self.backfills.clear()

    def _start(self, cursor: FeedCursor) -> None:
        try:
            self._follow_or_ask(cursor)
        except Exception as error:  # the partition and its other readers continue
            log.exception("partition %d: a reader cannot be started", self.partition_id, extra=self._about)
            self.remove(cursor)
            cursor.fail(error)

    def _follow_or_ask(self, cursor: FeedCursor) -> None:
        received = self._source.received
        tail = cursor.place(received) if cursor.tail is None else cursor.tail
        if tail >= received:
            cursor.state = CursorState.LIVE
            self.live.append(cursor)
            if tail > received:
                where = f"place of a reader of partition {self.partition_id}"
                self._host.spawn(self._check_ahead(cursor), where)
            self._source.ask_if_pending()
        elif self._source.send_backfill(cursor):
            cursor.state = CursorState.BACKFILL
            self.backfills.append(cursor)

    async def _check_ahead(self, reader: FeedCursor | BlockReader) -> None:
        """A reader's place is beyond the stream: let it wait if the server has got there. Fail it if a second
        answer, `AHEAD_RETRY_SECONDS` later, says that it has not: the first one may be of an owner that does
        not know yet that it is replaced, and answers without asking its storage nodes."""
        source = self._source
        place = _place_of(reader)  # now: what comes meanwhile is beyond the answer
        again = False
        while place is not None:
            mark = await self._server_mark()
            if self._has_left(reader) or (mark is None and not source.active):
                return
            if mark is not None:
                if not _place_of(reader) == place > max(mark, source.received):
                    return
                if again:
                    error = ClientAheadError(self.partition_id, place, f"the server's log ends at {mark}")
                    self._end(reader, error)
                    return
                again = True
            await asyncio.sleep(AHEAD_RETRY_SECONDS)

    async def _server_mark(self) -> int | None:
        try:
            return await self._host.server_high_water_mark(self.partition_id)
        except WaltzClientError as error:
            log.warning(
                "partition %d: the position of a reader is not checked yet: %s",
                self.partition_id,
                error,
                extra={"partition": self.partition_id},
            )
            return None

    def _end(self, reader: FeedCursor | BlockReader, error: ClientAheadError) -> None:
        if isinstance(reader, FeedCursor):
            self.remove(reader)
        else:
            self.blocks.discard(reader)
        reader.fail(error)

    def _has_left(self, reader: FeedCursor | BlockReader) -> bool:
        if isinstance(reader, FeedCursor):
            return reader.state is CursorState.CLOSED
        return reader not in self.blocks

    def suspended(self, seq_num: int) -> None:
        """The credit of a reader's own feed is used up; or that of an earlier feed of the same number, which
        says nothing about this one. The own feed has brought everything up to `feed_at_least_to` by then."""
        for cursor in list(self.backfills):
            if cursor.feed_seq_num == seq_num and cursor.expected > cursor.feed_at_least_to:
                self._settle(cursor)
                if cursor.state is CursorState.BACKFILL:
                    if cursor.full:
                        self._park(cursor)
                    else:
                        self._source.send_backfill(cursor)
                return

    def end_turn(self) -> None:
        """Hand over what this turn brought."""
        turn = self.turn
        if turn:
            self.turn = []
            for cursor in list(self.live):
                cursor.accept_turn(turn)
                if cursor.state is CursorState.PARKED:
                    self.live.remove(cursor)
                    if cursor.drained and self._source.mounted:  # not full: the turn did not continue there
                        self._start(cursor)
        for cursor in list(self.backfills):
            self._settle(cursor)
        if self.any_full:
            self._source.reconsider_reading()

    def _settle(self, cursor: FeedCursor) -> None:
        cursor.end_own_turn()
        if cursor.state is CursorState.PARKED:
            self.backfills.remove(cursor)
            self._source.end_backfill(cursor)
        elif cursor.tail == self._source.received:  # what the turn holds already is trimmed by accept_turn
            self.backfills.remove(cursor)
            self._source.end_backfill(cursor)
            cursor.state = CursorState.LIVE
            self.live.append(cursor)

    def _park(self, cursor: FeedCursor) -> None:
        self.backfills.remove(cursor)
        cursor.state = CursorState.PARKED
        self._source.end_backfill(cursor)

    def drained(self, cursor: FeedCursor) -> None:
        """A reader has taken from its buffer and is low: ask for what was held back."""
        if cursor.state is CursorState.PARKED and self._source.mounted and cursor in self._all:
            self._start(cursor)
        self._source.ask_if_pending()
        self._source.reconsider_reading()

    def starves(self, cursor: FeedCursor) -> None:
        """A reader waits with an empty buffer."""
        cursor.starving = True
        self._source.reconsider_reading()

    @property
    def want_live(self) -> bool:
        """Whether the stream should continue without an append waiting: nobody reads, or somebody has
        room."""
        return not self._all or any(not cursor.full for cursor in self._all)

    @property
    def any_full(self) -> bool:
        """A reader that is being fed has its buffer at half or more."""
        for cursor in self.live:
            if cursor.full:
                return True
        return any(cursor.full for cursor in self.backfills)

    @property
    def any_starving(self) -> bool:
        """A reader that is being fed waits with nothing in its buffer."""
        return any(cursor.starving for cursor in self.live) or any(
            cursor.starving for cursor in self.backfills
        )


def _place_of(reader: FeedCursor | BlockReader) -> int | None:
    """The last transaction that it has got, or begins after; None while it has no place."""
    return reader.tail if isinstance(reader, FeedCursor) else reader.position
