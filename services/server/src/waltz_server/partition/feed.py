"""Feeds: every committed transaction to every client that asked for it, in order, as far as its credit goes.

Client-server protocol, feed, suspend/resume, back pressure. Owner: the partition, on the event loop.

Model. A feed is always in exactly one place:

* `tip`: it has everything committed; the next commit is written to it directly (encoded once for all),
* near-realtime or catch-up queue: it has something to get and its client can take it; every loop turn the
  near ones get a slice each, then a few of the far ones, one after another,
* `parked`: its client's write buffer is full; it comes back when that has drained,
* `reading`: the cache has not got its next transaction; the range reader has been asked (`awaited_reads`).

Invariants
* A feed sends `position` + 1, + 2, ... without gap or repetition, never above the committed mark (safety D1).
* Credit is a Python integer (13.22: the reference cuts it to 32 bits). Exactly `credit` transactions are
  sent, then FEED_SUSPENDED (a feed request) or MOUNT_RESPONSE READY (the catch-up of a mount).
* What waits for a slow client is its channel's buffer (bounded by the high mark plus one slice), nothing
  else.
* A client has at most `MAX_FEEDS_PER_CLIENT` feeds at a time; one that asks for more is closed.
* A client has one open feed per ReqId: the same FEED_REQUEST again moves that feed (and its credit) to the
  new place, without a FEED_SUSPENDED for the old one. So a client ends a feed early by asking from the end of
  the log. Clients of 0.13.2 repeat a ReqId only after its FEED_SUSPENDED. The catch-up of a mount is never
  moved.
* What is committed is written once to a client, whatever number of its feeds wait for it at the tip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from waltz_protocol.frames.feed import FRAME_BYTES, feed_frames_for_version
from waltz_server.partition.awaited_reads import AwaitedReads
from waltz_server.partition.client import Client
from waltz_server.partition.feed_cache import BLOCK_FRAMES, Frames, PartitionFeedCache
from waltz_server.partition.metrics import PartitionMetrics
from waltz_server.partition.reads import RangeReader
from waltz_server.store.callbacks import Callbacks
from waltz_server.store.committed_mark import ReadableMark

READ_AHEAD_RECORDS = 4096
CATCH_UP_SLICES_PER_TURN = 8
MAX_FEEDS_PER_CLIENT = 100
_NATIVE_VERSION = 4


@dataclass(slots=True, eq=False)
class Feed:
    """One feed request, or the catch-up of one mount. `position`: last transaction sent; `done` ends it."""

    client: Client
    req_id: bytes
    position: int
    credit: int
    done: Callable[[Client, bytes], None]
    movable: bool = False
    realtime: bool = True


class Feeds:
    """All feeds of one partition."""

    def __init__(
        self,
        *,
        mark: ReadableMark,
        cache: PartitionFeedCache,
        reader: RangeReader,
        metrics: PartitionMetrics,
        realtime_threshold: int,
        loop: Callbacks,
    ) -> None:
        self._mark = mark
        self._cache = cache
        self._reader = reader
        self._metrics = metrics
        self._realtime_threshold = realtime_threshold
        self._loop = loop
        self._tip: dict[Feed, None] = {}
        self._near: deque[Feed] = deque()
        self._far: deque[Feed] = deque()
        self._parked: dict[Client, list[Feed]] = {}
        self._reading = AwaitedReads[Feed](reader, loop, self._place)
        self._of_client: dict[Client, list[Feed]] = {}
        self._ended: dict[Client, int] = {}
        """The last transaction of the feed that ended last, of clients that have not gone."""
        self._scheduled = False
        self._closed = False

    def open(
        self,
        client: Client,
        req_id: bytes,
        position: int,
        credit: int,
        done: Callable[[Client, bytes], None],
        *,
        movable: bool = False,
    ) -> None:
        """Feed `credit` > 0 transactions from `position` + 1 on, then call `done(client, req_id)`. `movable`:
        instead of an open movable feed of the same client with the same `req_id`, if there is one."""
        feeds = self._of_client.setdefault(client, [])
        for feed in feeds:
            if movable and feed.movable and feed.req_id == req_id:
                self._move(feed, position, credit)
                return
        if len(feeds) >= MAX_FEEDS_PER_CLIENT:
            client.close(f"more than {MAX_FEEDS_PER_CLIENT} feeds of one partition at the same time")
            return
        feed = Feed(client, req_id, position, credit, done, movable)
        feed.realtime = self._mark.txid - position < self._realtime_threshold
        feeds.append(feed)
        self._count_added(feed)
        self._place(feed)

    def _move(self, feed: Feed, position: int, credit: int) -> None:
        """Continue from `position` instead. A feed in a queue or parked is placed anew when its turn
        comes."""
        in_place = feed in self._tip or self._reading.discard(feed.position + 1, feed)
        self._tip.pop(feed, None)
        self._reader.forget(feed)
        feed.position, feed.credit = position, credit
        if in_place:
            self._place(feed)

    # -- commits -------------------------------------------------------------------------------------------

    def publish(self, first: int, count: int, frames: bytes) -> bool:
        """Committed just now, up to the mark: `count` version 4 frames from `first` on. Cached, and written
        to every feed at the tip; whether there is one."""
        self._cache.put(first, frames)
        if not self._tip:
            return False
        tip, self._tip = self._tip, {}
        stamped: dict[int, Frames] = {_NATIVE_VERSION: frames}
        written: dict[Client, int] = {}
        for feed in tip:
            client = feed.client
            if client.closed:
                self._remove(feed)
            elif feed.position != first - 1 or not (client.writable or client in written):
                self._place(feed)
            else:
                version = client.version
                if version not in stamped:
                    stamped[version] = feed_frames_for_version(frames, version)
                sent = written.get(client, 0)
                if len(self._of_client[client]) > 1:
                    written[client] = max(sent, min(count, feed.credit))
                self._send(feed, stamped[version], count, sent)
        return True

    def advanced(self) -> None:
        """Recovery has found (or settled) transactions up to the mark that were never published one by
        one."""
        tip, self._tip = self._tip, {}
        for feed in tip:
            self._place(feed)

    # -- the pump ------------------------------------------------------------------------------------------

    def _place(self, feed: Feed) -> None:
        """Put a feed where it belongs now."""
        client = feed.client
        if client.closed:
            self._remove(feed)
        elif feed.position >= self._mark.txid:
            self._tip[feed] = None
        elif not client.writable:
            parked = self._parked.get(client)
            if parked is None:
                self._parked[client] = [feed]
                client.park(self)
            else:
                parked.append(feed)
        else:
            self._reclassify(feed)
            (self._near if feed.realtime else self._far).append(feed)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        near, self._near = self._near, deque()
        for feed in near:
            self._serve(feed)
        for _ in range(min(CATCH_UP_SLICES_PER_TURN, len(self._far))):
            self._serve(self._far.popleft())
        if self._near or self._far:
            self._schedule()

    def _serve(self, feed: Feed) -> None:
        """One slice from the cache, or a read from storage."""
        client = feed.client
        first = feed.position + 1
        wanted = min(feed.credit, self._mark.txid - feed.position, BLOCK_FRAMES)
        if client.closed or not client.writable or wanted <= 0:
            self._place(feed)
            return
        frames = self._cache.slice(first, wanted)
        if frames is None:
            self._metrics.feed_cache_miss.mark()
            self._reading.add(first, feed)
            self._read(first, feed)
            return
        self._send_slice(feed, frames)

    def _send_slice(self, feed: Feed, frames: Frames) -> None:
        version = feed.client.version
        if version != _NATIVE_VERSION:
            frames = feed_frames_for_version(frames, version)
        self._send(feed, frames, len(frames) // FRAME_BYTES)

    def _send(self, feed: Feed, frames: Frames, count: int, sent: int = 0) -> None:
        """Write up to `credit` frames, then the end of the feed or its next place. The first `sent` have been
        written to the client for another of its feeds."""
        client = feed.client
        last = min(count, feed.credit)
        if last > sent:
            self._metrics.fed.count += last - sent
            whole = sent == 0 and last == count
            client.send(frames if whole else frames[sent * FRAME_BYTES : last * FRAME_BYTES])
        feed.position += last
        feed.credit -= last
        if not feed.credit:
            self._remove(feed)
            feed.done(client, feed.req_id)
        elif feed.position == self._mark.txid:
            self._tip[feed] = None
        else:
            self._place(feed)

    def client_writable(self, client: Client) -> None:
        """The client's buffer has drained."""
        for feed in self._parked.pop(client, ()):
            self._place(feed)

    # -- storage -------------------------------------------------------------------------------------------

    def _read(self, first: int, feed: Feed) -> None:
        count = min(READ_AHEAD_RECORDS, self._mark.txid - first + 1)
        self._reader.request(first, count, feed.client, feed)

    def delivered(self, first: int, end: int, frames: bytes) -> None:
        """A range has been read (and cached): serve who waited inside it from the result itself, so that
        feeds get on even if the cache is too small to keep it. `end` is the end asked for, which may lie
        beyond."""
        view = memoryview(frames)
        for position, feed in self._reading.delivered(first, end):
            part = view[(position - first) * FRAME_BYTES :]
            if part and feed.client.writable and not feed.client.closed:
                self._send_slice(feed, part)
            else:
                self._place(feed)

    def waits_in(self, first: int, end: int) -> bool:
        """Whether a feed waits for what is in a range that is being read."""
        return self._reading.waits_in(first, end)

    def failed(self, first: int, end: int) -> None:
        """A range could not be read: the feeds waiting in it try again after a pause that doubles."""
        self._reading.failed(first, end)

    # -- bookkeeping ---------------------------------------------------------------------------------------

    def _reclassify(self, feed: Feed) -> None:
        realtime = self._mark.txid - feed.position < self._realtime_threshold
        if realtime != feed.realtime:
            self._count_removed(feed)
            feed.realtime = realtime
            self._count_added(feed)

    def _remove(self, feed: Feed) -> None:
        """The feed is over."""
        self._ended[feed.client] = feed.position
        self._reader.forget(feed)
        feeds = self._of_client[feed.client]
        feeds.remove(feed)
        if not feeds:
            del self._of_client[feed.client]
        self._count_removed(feed)

    def _count_added(self, feed: Feed) -> None:
        (self._metrics.realtime_added if feed.realtime else self._metrics.catch_up_added).inc()

    def _count_removed(self, feed: Feed) -> None:
        (self._metrics.realtime_removed if feed.realtime else self._metrics.catch_up_removed).inc()

    def _all(self) -> list[Feed]:
        return [feed for feeds in self._of_client.values() for feed in feeds]

    def followers(self) -> Iterator[tuple[Client, int, bool]]:
        """Each client with the last transaction that it was sent (the furthest of its feeds), and whether it
        has asked for more."""
        for client, feeds in self._of_client.items():
            yield client, max(feed.position for feed in feeds), True
        for client, position in self._ended.items():
            if client not in self._of_client:
                yield client, position, False

    def __len__(self) -> int:
        return sum(map(len, self._of_client.values()))

    def forget(self, client: Client) -> None:
        """The connection has gone: its feeds end now, wherever they are."""
        self._ended.pop(client, None)
        gone = self._of_client.pop(client, ())
        if not gone:
            return
        for feed in gone:
            self._count_removed(feed)
        self._parked.pop(client, None)
        self._tip = {feed: None for feed in self._tip if feed.client is not client}
        self._near = deque(feed for feed in self._near if feed.client is not client)
        self._far = deque(feed for feed in self._far if feed.client is not client)
        for feed in gone:
            self._reading.discard(feed.position + 1, feed)
            self._reader.forget(feed)

    def close(self) -> None:
        """The partition leaves: feeds end in silence (clients learn it from discovery)."""
        for feed in self._all():
            self._count_removed(feed)
        self._of_client.clear()
        self._ended.clear()
        self._closed = True
        self._reading.close()
        self._tip, self._near, self._far, self._parked = {}, deque(), deque(), {}
