"""Feeds and ranges whose payloads were asked for: the `data` of their transactions and batches is never None.

For type checkers. When a program runs, `DataFeed` is `Feed`, `DataTransaction` is `FeedTransaction`,
`DataRangeRead` is `RangeRead` and `DataRangeBatch` is `RangeBatch`: types of their own would cost something
for each transaction.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from waltz_client.feed import Feed
from waltz_client.range_batch import RangeBatch
from waltz_client.ranges import RangeRead
from waltz_client.transaction import DataTransaction

if TYPE_CHECKING:

    class DataFeed(Feed):
        """See `Feed`."""

        async def __anext__(self) -> DataTransaction: ...
        def batches(self) -> AsyncIterator[list[DataTransaction]]: ...  # type: ignore[override]

    class DataRangeBatch(RangeBatch):
        """See `RangeBatch`."""

        data: bytes
        offsets: array[int]
        checksums: array[int]

        def transactions(self) -> list[DataTransaction]: ...  # type: ignore[override]

    class DataRangeRead(RangeRead):
        """See `RangeRead`."""

        async def __anext__(self) -> DataRangeBatch: ...

else:
    DataFeed = Feed
    DataRangeBatch = RangeBatch
    DataRangeRead = RangeRead
