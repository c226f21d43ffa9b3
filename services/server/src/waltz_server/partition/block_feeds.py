"""Feeds of blocks: committed transactions with their data, as far as each one's credit goes (version 5).

docs/protocol.md, version 5. Owner: the partition, on the event loop. A feed of blocks needs no mount: it is a
read, and decides no append.

Model. A feed is always in exactly one place, as the feeds of headers are (`feed`):

* `tip`: it has everything committed; the next commit is written to it directly,
* the queue: it has something to get and its client can take it; the feeds get a block each, in turn,
* `parked`: its client's write buffer is full; it comes back when that has drained,
* `reading`: the cache has not got its next transaction; the range reader has been asked (`awaited_reads`),
* `dry`: its credit is used up; it comes back with more.

Invariants
* A feed covers `position` + 1, + 2, ... without gap or repetition, never above the committed mark (safety
  D1). What its filter leaves out is covered only after it has been looked at.
* Records go out as they are in the cache: encoded once for all clients. Compressed are whole blocks, for the
  feeds that take them (`compressed_blocks`); credit and position know nothing of it.
* A block holds at most `MAX_BLOCK_BYTES` and `MAX_BLOCK_TRANSACTIONS`, or one transaction; it exceeds the
  credit in bytes by less than one transaction, the credit in transactions never.
* What waits for a slow client is its channel's buffer (bounded by the high mark plus one block), whatever
  credit it grants.
* A client has at most `MAX_BLOCK_FEEDS_PER_CLIENT` feeds of a partition; one more is refused.
* A turn of the loop looks at `TRANSACTIONS_PER_TURN` transactions and one feed more at most, or sends
  `BYTES_PER_TRANSACTION` for each of them, of feeds that take compressed blocks a quarter of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from waltz_protocol.codec import CLIENT
from waltz_protocol.frames.blocks import (
    LAST_BLOCK,
    MAX_BLOCK_BYTES,
    block_head,
    header_of_stored,
    stored_of_entry,
    total_bytes,
)
from waltz_protocol.frames.compressed_blocks import TAKES_ZSTD, ZSTD_BLOCK
from waltz_protocol.messages.client import (
    FROM_THE_END,
    WITHOUT_END,
    BlockFailure,
    BlockFailureCode,
    BlockFeedRequest,
)
from waltz_protocol.types import ReqId
from waltz_server.partition.awaited_reads import AwaitedReads
from waltz_server.partition.client import Client
from waltz_server.partition.compressed_blocks import PartitionBlocks
from waltz_server.partition.metrics import PartitionMetrics
from waltz_server.partition.reads import RangeReader
from waltz_server.partition.transaction_cache import SLICE_RECORDS, PartitionTransactionCache
from waltz_server.store.api import AppendEntry
from waltz_server.store.callbacks import Callbacks
from waltz_server.store.committed_mark import ReadableMark
from waltz_server.store.record_run import RecordRun

MAX_BLOCK_TRANSACTIONS = 2048
TRANSACTIONS_PER_TURN = 4096
BYTES_PER_TRANSACTION = 512
"""So many bytes of a block count as a transaction looked at: 2 MiB in a turn."""
COST_OF_COMPRESSION = 4
"""Each byte of a feed that takes compressed blocks counts as so many: 512 KiB in a turn."""
MAX_BLOCK_FEEDS_PER_CLIENT = 100
READ_AHEAD_RANGES = 4
FIRST_RANGE_TRANSACTIONS = 256
"""Of one read from a storage node, before anything is known about the size of records."""
RANGE_BYTES = MAX_BLOCK_BYTES * 7 // 8
"""Of one read, by the mean size of the records of the last one: a block, with space for those that are a
little larger."""
FAILURES_PER_TURN = 1000
_MOST_CREDIT = 2**62


def block_failure(version: int, req_id: bytes, code: BlockFailureCode, text: str) -> bytes:
    """BLOCK_FAILURE."""
    return CLIENT.encode(BlockFailure(ReqId.unpack(req_id), code, text), version)


@dataclass(slots=True, eq=False)
class BlockFeed:
    """One open feed. `position`: the last transaction covered, FROM_THE_END while the mark is not known;
    `until`: the last one wanted, None without end."""

    client: Client
    req_id: bytes
    position: int
    until: int | None
    credit: int
    credit_bytes: int
    headers: tuple[tuple[int, int], ...]
    takes_zstd: bool
    announced: bool = False
    """Something was sent, so the client knows that it is open."""

    def wants(self, header: int) -> bool:
        """Whether the filter lets a transaction through."""
        return any(first <= header <= last for first, last in self.headers)


class BlockFeeds:
    """All feeds of blocks of one partition."""

    def __init__(
        self,
        mark: ReadableMark,
        cache: PartitionTransactionCache,
        compressed: PartitionBlocks,
        reader: RangeReader,
        metrics: PartitionMetrics,
        loop: Callbacks,
    ) -> None:
        self._mark = mark
        self._cache = cache
        self._compressed = compressed
        self._reader = reader
        self._metrics = metrics
        self._loop = loop
        self._of_client: dict[Client, dict[bytes, BlockFeed]] = {}
        self._tip: dict[BlockFeed, None] = {}
        self._queue: deque[BlockFeed] = deque()
        self._parked: dict[Client, list[BlockFeed]] = {}
        self._reading = AwaitedReads[BlockFeed](reader, loop, self._place)
        self._dry: set[BlockFeed] = set()
        self._range_transactions = FIRST_RANGE_TRANSACTIONS
        """Asked for in one read; learnt from what the last one brought."""
        self._scheduled = False
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._of_client.values()))

    def followers(self) -> Iterator[tuple[Client, int, bool]]:
        """Each client with the last transaction that was covered for it (by the furthest of its feeds), and
        whether there is credit for more."""
        for client, feeds in self._of_client.items():
            furthest = max(feeds.values(), key=lambda feed: feed.position)
            yield client, furthest.position, furthest not in self._dry

    # -- requests ------------------------------------------------------------------------------------------

    def open(self, client: Client, request: BlockFeedRequest) -> None:
        """BLOCK_FEED_REQUEST; instead of an open feed with the same ReqId, if there is one."""
        req_id = request.req_id.pack()
        if self._closed:
            client.send(
                block_failure(client.version, req_id, BlockFailureCode.NOT_SERVED, "the partition has left")
            )
            return
        if (
            not FROM_THE_END <= request.after <= _MOST_CREDIT
            or request.until < WITHOUT_END
            or request.flags & ~TAKES_ZSTD
        ):
            client.send(
                block_failure(client.version, req_id, BlockFailureCode.WRONG_REQUEST, "there is no such feed")
            )
            return
        self.end(client, req_id)
        feeds = self._of_client.setdefault(client, {})
        if len(feeds) >= MAX_BLOCK_FEEDS_PER_CLIENT:
            text = f"more than {MAX_BLOCK_FEEDS_PER_CLIENT} feeds of blocks of one partition at the same time"
            client.send(block_failure(client.version, req_id, BlockFailureCode.TOO_MANY_FEEDS, text))
            return
        feed = BlockFeed(
            client,
            req_id,
            request.after,
            None if request.until == WITHOUT_END else request.until,
            max(request.credit_transactions, 0),
            min(max(request.credit_bytes, 0), _MOST_CREDIT),
            request.headers,
            takes_zstd=bool(request.flags & TAKES_ZSTD),
        )
        feeds[req_id] = feed
        self._place(feed)

    def credit(self, client: Client, req_id: bytes, transactions: int, size_bytes: int) -> None:
        """BLOCK_CREDIT; of a feed that is over it means nothing."""
        feed = self._of_client.get(client, {}).get(req_id)
        if feed is None:
            return
        feed.credit = min(feed.credit + max(transactions, 0), _MOST_CREDIT)
        feed.credit_bytes = min(feed.credit_bytes + max(size_bytes, 0), _MOST_CREDIT)
        if feed in self._dry:
            self._dry.discard(feed)
            self._place(feed)

    def end(self, client: Client, req_id: bytes) -> None:
        """BLOCK_FEED_END; of a feed that is over it means nothing."""
        feed = self._of_client.get(client, {}).pop(req_id, None)
        if feed is None:
            return
        if not self._of_client[client]:
            del self._of_client[client]
        self._take_out(feed)

    def _take_out(self, feed: BlockFeed) -> None:
        self._tip.pop(feed, None)
        self._dry.discard(feed)
        if feed in self._queue:
            self._queue.remove(feed)
        parked = self._parked.get(feed.client, [])
        if feed in parked:
            parked.remove(feed)
        self._reading.discard(feed.position + 1, feed)
        self._reader.forget(feed)

    # -- commits -------------------------------------------------------------------------------------------

    def publish(self, first: int, entries: Sequence[AppendEntry]) -> bool:
        """Committed just now, up to the mark, and cached: written to the feeds at the tip; whether there is
        one."""
        if not self._tip:
            return False
        tip, self._tip = self._tip, {}
        get, count = self._cache.get, len(entries)
        records = [
            entry.stored
            or get(entry.transaction_id)
            or stored_of_entry(entry.transaction_id, entry.req_id, entry.tail)
            for entry in entries
        ]
        size = total_bytes(records)
        small = size <= MAX_BLOCK_BYTES and count <= MAX_BLOCK_TRANSACTIONS
        joined = b"".join(records) if small else b""
        for feed in tip:
            fits = feed.credit >= count and feed.credit_bytes >= size and feed.until is None
            if small and fits and not feed.headers and feed.position == first - 1 and self._takes(feed):
                self._write(feed, first + count - 1, count, joined)
            else:
                self._place(feed)
        return True

    def advanced(self) -> None:
        """Recovery has found (or settled) transactions up to the mark."""
        tip, self._tip = self._tip, {}
        for feed in tip:
            self._place(feed)

    @staticmethod
    def _takes(feed: BlockFeed) -> bool:
        return feed.client.writable and not feed.client.closed

    # -- the pump ------------------------------------------------------------------------------------------

    def _place(self, feed: BlockFeed) -> None:
        """Put a feed where it belongs now."""
        client, mark = feed.client, self._mark
        if client.closed:
            return  # `forget` follows
        if mark.known and feed.position == FROM_THE_END:
            feed.position = mark.txid
        if not client.writable:
            self._park(feed)
        elif not mark.known:
            self._tip[feed] = None
        elif feed.until is not None and feed.position >= feed.until:
            self._write(feed, feed.position, 0, b"")
        elif feed.position >= mark.txid:
            self._rest(feed, at_the_tip=True)
        elif feed.credit <= 0 or feed.credit_bytes <= 0:
            self._rest(feed, at_the_tip=False)
        else:
            self._queue.append(feed)
            self._schedule()

    def _rest(self, feed: BlockFeed, *, at_the_tip: bool) -> None:
        """There is nothing to send; the first time an empty block says that the feed is open."""
        if not feed.announced:
            self._write(feed, feed.position, 0, b"")
        elif at_the_tip:
            self._tip[feed] = None
        else:
            self._dry.add(feed)

    def _park(self, feed: BlockFeed) -> None:
        parked = self._parked.get(feed.client)
        if parked is None:
            self._parked[feed.client] = [feed]
            feed.client.park(self)
        else:
            parked.append(feed)

    def client_writable(self, client: Client) -> None:
        """The client's buffer has drained."""
        for feed in self._parked.pop(client, ()):
            self._place(feed)

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        spent, turns = 0, len(self._queue)
        while self._queue and turns and spent < TRANSACTIONS_PER_TURN:
            spent += self._serve(self._queue.popleft())
            turns -= 1
        if self._queue:
            self._schedule()

    def _serve(self, feed: BlockFeed) -> int:
        """One block from the cache, or a read from storage. How many transactions were looked at."""
        if not self._takes(feed):
            self._place(feed)
            return 1
        first = feed.position + 1
        if self._cache.get(first) is None:
            self._metrics.transaction_cache_miss.mark()
            self._reading.add(first, feed)
            self._read(first, feed)
            return 1
        return self._send_run(feed) or self._send(feed, self._cached(first, self._end_of_slice(feed)))

    def _send_run(self, feed: BlockFeed) -> int:
        """One block of what the cache has back to back; as for `_send`, 0 if it has nothing, or a filter has
        to look at each record."""
        if feed.headers:
            return 0
        first = feed.position + 1
        most = min(self._end_of_slice(feed) - feed.position, feed.credit)
        found = self._cache.joined(first, most, min(MAX_BLOCK_BYTES, feed.credit_bytes))
        if found is None:
            return 0
        count, records = found
        self._write(feed, feed.position + count, count, records)
        return self._looked_at(feed, count, len(records))

    def _cached(self, first: int, last: int) -> Iterator[Sequence[bytes]]:
        """What the cache has of these without a gap, in pieces; each is looked up when it is asked for."""
        while first <= last and (piece := self._cache.slice(first, last - first + 1)):
            yield piece
            first += len(piece)

    def _end_of_slice(self, feed: BlockFeed) -> int:
        """The last transaction that one turn of a feed looks at."""
        last = min(self._mark.txid, feed.position + MAX_BLOCK_TRANSACTIONS)
        return last if feed.until is None else min(last, feed.until)

    def _send(self, feed: BlockFeed, pieces: Iterable[Sequence[bytes]]) -> int:
        """One block of the records after the feed's position. How many were looked at, at least one; of large
        ones as many as cost the same."""
        most_bytes = min(MAX_BLOCK_BYTES, feed.credit_bytes)
        chosen: list[bytes] = []
        size = looked = 0
        for piece in pieces:
            more = total_bytes(piece)
            if not feed.headers and len(chosen) + len(piece) <= feed.credit and size + more <= most_bytes:
                chosen += piece
                size += more
                looked += len(piece)
                continue
            before = looked
            for record in piece:
                if not feed.headers or feed.wants(header_of_stored(record)):
                    if len(chosen) == feed.credit or (chosen and size + len(record) > most_bytes):
                        break
                    chosen.append(record)
                    size += len(record)
                looked += 1
            if looked - before < len(piece):
                break
        self._write(feed, feed.position + looked, len(chosen), b"".join(chosen))
        return self._looked_at(feed, looked, size)

    @staticmethod
    def _looked_at(feed: BlockFeed, looked: int, size: int) -> int:
        """What a block of so many bytes cost: in transactions looked at."""
        if feed.takes_zstd:
            size *= COST_OF_COMPRESSION
        return max(looked, size // BYTES_PER_TRANSACTION)

    def _write(self, feed: BlockFeed, last: int, count: int, joined: bytes) -> None:
        """One block up to `last`, then the feed's end or its next place."""
        client = feed.client
        over = feed.until is not None and last >= feed.until
        flags = LAST_BLOCK if over else 0
        first, size = feed.position + 1, len(joined)
        sent = joined
        if feed.takes_zstd:
            packed = self._compressed.packed(first, last, feed.headers, joined)
            if packed is not None:
                flags |= ZSTD_BLOCK
                sent = packed
            self._metrics.before_compression.mark(size)
            self._metrics.after_compression.mark(len(sent))
        client.send(block_head(client.version, feed.req_id, first, last, count, flags, len(sent)), sent)
        self._metrics.fed.mark(count)
        feed.announced = True
        feed.position = last
        feed.credit -= count
        feed.credit_bytes -= size
        if over:
            self.end(client, feed.req_id)
        else:
            self._place(feed)

    # -- storage -------------------------------------------------------------------------------------------

    def _read(self, first: int, feed: BlockFeed) -> None:
        """Ask for what comes next, in ranges of which each is one answer of a storage node."""
        mark, count = self._mark.txid, self._range_transactions
        for start in range(first, min(first + READ_AHEAD_RANGES * count, mark + 1), count):
            self._reader.request(start, min(count, mark - start + 1), feed.client, feed)

    def delivered(self, end: int, run: RecordRun) -> None:
        """The range that ends before `end` has been read (and cached): serve who waited inside it from the
        result itself, so that feeds get on even if the cache is too small to keep it."""
        self._learn_range(end - run.first, run)
        for position, feed in self._reading.delivered(run.first, end):
            last = min(self._end_of_slice(feed), run.last)
            if position <= last and self._takes(feed) and feed.credit > 0 and feed.credit_bytes > 0:
                if not self._send_run(feed):
                    part = run.records[position - run.first : last - run.first + 1]
                    pieces = (part[at : at + SLICE_RECORDS] for at in range(0, len(part), SLICE_RECORDS))
                    self._send(feed, pieces)
            else:
                self._place(feed)

    def _learn_range(self, asked: int, run: RecordRun) -> None:
        """How many records to ask for, so that one read brings about a block. Where fewer came than were
        asked for no more than that, for what lacks of a range is not read ahead; else twice as many at
        most."""
        if run:
            count = run.count
            most = count if count < asked else max(2 * asked, self._range_transactions)
            fitting = RANGE_BYTES * count // len(run.stored)
            self._range_transactions = max(1, min(fitting, most, MAX_BLOCK_TRANSACTIONS))

    def failed(self, first: int, end: int) -> None:
        """A range could not be read: the feeds waiting in it try again after a pause that doubles."""
        self._reading.failed(first, end)

    # -- the end -------------------------------------------------------------------------------------------

    def forget(self, client: Client) -> None:
        """The connection has gone: its feeds end now, wherever they are."""
        for feed in self._of_client.pop(client, {}).values():
            self._take_out(feed)
        self._parked.pop(client, None)

    def close(self) -> None:
        """The partition leaves: the clients are informed, `FAILURES_PER_TURN` feeds in each turn."""
        self._closed = True
        self._reading.close()
        left = [feed for feeds in self._of_client.values() for feed in feeds.values()]
        self._of_client.clear()
        self._tip, self._queue, self._parked = {}, deque(), {}
        self._dry.clear()
        self._inform(left)

    def _inform(self, left: list[BlockFeed]) -> None:
        for feed in left[:FAILURES_PER_TURN]:
            client = feed.client
            client.send(
                block_failure(
                    client.version,
                    feed.req_id,
                    BlockFailureCode.NOT_SERVED,
                    "the partition leaves its server",
                )
            )
        if len(left) > FAILURES_PER_TURN:
            self._loop.call_soon(self._inform, left[FAILURES_PER_TURN:])
