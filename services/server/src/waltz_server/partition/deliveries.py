"""Who reads a partition, and how what a read from storage brought gets to both caches and to them. Owner: the
partition."""

from __future__ import annotations

import structlog

from waltz_protocol.frames.feed import frames_of_records
from waltz_server.partition.block_feeds import BlockFeeds
from waltz_server.partition.compressed_blocks import PartitionBlocks
from waltz_server.partition.data_reads import DataReads
from waltz_server.partition.feed import Feeds
from waltz_server.partition.feed_cache import PartitionFeedCache
from waltz_server.partition.metrics import PartitionMetrics
from waltz_server.partition.reads import Range, RangeReader
from waltz_server.partition.transaction_cache import PartitionTransactionCache
from waltz_server.store.api import PartitionStore, ReadFailedError
from waltz_server.store.callbacks import Callbacks
from waltz_server.store.committed_mark import ReadableMark
from waltz_server.store.record_run import RecordRun

log = structlog.get_logger(__name__)


class Deliveries:
    """See the module. Nothing above the mark is kept or handed on (safety D1); nothing after `close`."""

    def __init__(
        self,
        partition_id: int,
        store: PartitionStore,
        mark: ReadableMark,
        frames: PartitionFeedCache,
        transactions: PartitionTransactionCache,
        compressed: PartitionBlocks,
        metrics: PartitionMetrics,
        realtime_threshold: int,
        loop: Callbacks,
    ) -> None:
        self._partition_id = partition_id
        self._mark = mark
        self._frames = frames
        self._transactions = transactions
        self._compressed = compressed
        self._metrics = metrics
        self._closed = False
        self.reader = RangeReader(store, on_records=self.records, on_failure=self.failure)
        self.feeds = Feeds(
            mark=mark,
            cache=frames,
            reader=self.reader,
            metrics=metrics,
            realtime_threshold=realtime_threshold,
            loop=loop,
        )
        self.data = DataReads(
            partition_id, mark=mark, cache=transactions, reader=self.reader, metrics=metrics, loop=loop
        )
        self.block_feeds = BlockFeeds(mark, transactions, compressed, self.reader, metrics, loop)

    def records(self, wanted: Range, run: RecordRun) -> None:
        """Consecutive records from the start of a range on."""
        if not self._mark.known or self._closed:
            return
        first, end = wanted.first, wanted.end
        run = run.part(first, self._mark.txid)
        self._transactions.put_run(run)
        self.data.delivered(end, run)
        if self.feeds.waits_in(first, end):
            if frames := frames_of_records(run.records):
                self._frames.put(first, frames)
            self.feeds.delivered(first, end, frames)
        self.block_feeds.delivered(end, run)

    def failure(self, wanted: Range, failure: ReadFailedError) -> None:
        """A range could not be read."""
        failures = self._metrics.read_failures
        failures.inc()
        if failures.count in (1, 10, 100) or failures.count % 1000 == 0:
            log.warning("read failed", partition=self._partition_id, first=wanted.first, reason=str(failure))
        self.data.failed(wanted.first, wanted.end, str(failure))
        self.feeds.failed(wanted.first, wanted.end)
        self.block_feeds.failed(wanted.first, wanted.end)

    def close(self) -> None:
        """The partition leaves: who waits is informed, and the caches forget it."""
        self._closed = True
        for waiting in (self.feeds, self.block_feeds, self.data):
            waiting.close()
        self._frames.drop()
        self._transactions.drop()
        self._compressed.drop()
