"""Feeds whose payloads were asked for: their transactions' `data` is never None.

For type checkers. When a program runs, `DataFeed` is `Feed` and `DataTransaction` is `FeedTransaction`: types
of their own would cost something for each transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from waltz_client.feed import Feed
from waltz_client.transaction import DataTransaction

if TYPE_CHECKING:

    class DataFeed(Feed):
        """See `Feed`."""

        async def __anext__(self) -> DataTransaction: ...
        def batches(self) -> AsyncIterator[list[DataTransaction]]: ...  # type: ignore[override]

else:
    DataFeed = Feed
