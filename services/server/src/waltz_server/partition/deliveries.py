"""What a read from storage brought goes to both caches and to whoever waits for it. Owner: the partition."""

from __future__ import annotations

import structlog

from waltz_protocol.frames.blocks import stored_of_record
from waltz_protocol.frames.feed import frames_of_records
from waltz_server.partition.block_feeds import BlockFeeds
from waltz_server.partition.data_reads import DataReads
from waltz_server.partition.feed import Feeds
from waltz_server.partition.feed_cache import PartitionFeedCache
from waltz_server.partition.metrics import PartitionMetrics
from waltz_server.partition.reads import Range
from waltz_server.partition.transaction_cache import PartitionTransactionCache
from waltz_server.store.api import ReadFailedError
from waltz_server.store.committed_mark import ReadableMark

log = structlog.get_logger(__name__)


class Deliveries:
    """See the module. Nothing above the mark is kept or handed on (safety D1); nothing after `close`."""

    def __init__(
        self,
        partition_id: int,
        mark: ReadableMark,
        frames: PartitionFeedCache,
        transactions: PartitionTransactionCache,
        metrics: PartitionMetrics,
    ) -> None:
        self._partition_id = partition_id
        self._mark = mark
        self._frames = frames
        self._transactions = transactions
        self._metrics = metrics
        self._closed = False

    def start(self, data: DataReads, feeds: Feeds, block_feeds: BlockFeeds) -> None:
        """Who waits for reads; called before anything is read."""
        self._data, self._feeds, self._block_feeds = data, feeds, block_feeds

    def records(self, wanted: Range, records: list[bytes]) -> None:
        """Consecutive wire records from the start of a range on."""
        if not self._mark.known or self._closed:
            return
        first, end = wanted.first, wanted.end
        records = records[: max(self._mark.txid - first + 1, 0)]
        stored = [stored_of_record(record) for record in records]
        for transaction_id, record in enumerate(stored, first):
            self._transactions.put(transaction_id, record)
        self._data.delivered(first, end, stored)
        if self._feeds.waits_in(first, end):
            if frames := frames_of_records(records):
                self._frames.put(first, frames)
            self._feeds.delivered(first, end, frames)
        self._block_feeds.delivered(first, end, stored)

    def failure(self, wanted: Range, failure: ReadFailedError) -> None:
        """A range could not be read."""
        failures = self._metrics.read_failures
        failures.inc()
        if failures.count in (1, 10, 100) or failures.count % 1000 == 0:
            log.warning("read failed", partition=self._partition_id, first=wanted.first, reason=str(failure))
        self._data.failed(wanted.first, wanted.end, str(failure))
        self._feeds.failed(wanted.first, wanted.end)
        self._block_feeds.failed(wanted.first, wanted.end)

    def close(self) -> None:
        """The partition leaves: who waits is informed, and the caches forget it."""
        self._closed = True
        for waiting in (self._feeds, self._block_feeds, self._data):
            waiting.close()
        self._frames.drop()
        self._transactions.drop()
