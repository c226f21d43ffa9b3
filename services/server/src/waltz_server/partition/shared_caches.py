"""The caches all partitions of a server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from waltz_server.partition.compressed_blocks import CompressedBlocks
from waltz_server.partition.feed_cache import FeedCache
from waltz_server.partition.transaction_cache import TransactionCache


@dataclass(frozen=True, slots=True)
class SharedCaches:
    """See the module."""

    feed: FeedCache
    transactions: TransactionCache
    blocks: CompressedBlocks = field(default_factory=CompressedBlocks)
