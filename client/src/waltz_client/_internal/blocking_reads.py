"""Feeds and ranges of the blocking client."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from waltz_client._internal.loop_thread import LoopThread
from waltz_client._internal.rpc.block_feed import BlockCutter
from waltz_client.errors import ClientClosedError, UsageError
from waltz_client.feed import Feed
from waltz_client.range_batch import RangeBatch
from waltz_client.ranges import RangeRead
from waltz_client.transaction import DataTransaction, FeedTransaction

if TYPE_CHECKING:
    from waltz_client.with_data import DataRangeBatch

B = TypeVar("B")


class _Reader(Generic[B]):
    """What is read in batches. Any thread may take the next one; each batch goes to one of them.

    Invariant: after an interrupted read nothing more is read, because what it was to return is lost. A signal
    handler may raise anywhere, and any class: a read counts as interrupted until what it returns is kept.
    """

    def __init__(
        self,
        thread: LoopThread,
        source: Feed | RangeRead,
        next_batch: Callable[[], Coroutine[Any, Any, B | None]],
    ) -> None:
        self._thread = thread
        self._source = source
        self._next_batch = next_batch
        self._lock = threading.Lock()
        self._closed = False
        self._interrupted = False

    def _pull(self) -> B | None:
        """The next batch, None at the end. Under the lock; who calls it keeps the batch, and then clears
        `_interrupted`."""
        if self._interrupted:
            raise UsageError(
                "reading was interrupted: read again, after the last transaction that was returned"
            )
        if self._closed:
            return None
        self._interrupted = True
        try:
            read = self._thread.run(self._next_batch())
        except (ClientClosedError, UsageError):  # of the thread
            self._interrupted = False
            raise
        if read.exception() is not None:
            self._interrupted = False
        return read.result()

    def close(self) -> None:
        """Stop reading; what was not taken is dropped, and who waits for more gets the end. Idempotent."""
        if not self._closed and self._thread.running:
            with contextlib.suppress(ClientClosedError):
                self._thread.call(self._source.aclose())
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self._thread.post(_closing(self._source))


def _closing(source: Feed | RangeRead) -> Callable[[], object]:
    def close() -> None:
        try:
            source.aclose().send(None)  # it waits for nothing
        except StopIteration:
            return

    return close


class BlockingFeed(_Reader[list[FeedTransaction]], Iterator[FeedTransaction]):
    """`for transaction in feed`, or `for batch in feed.batches()` for lists; see `waltz_client.Feed`.

    Close it (`with`, `close`) when done early; one that is dropped closes itself. Several threads may read
    one feed: each transaction goes to one of them.
    """

    def __init__(self, thread: LoopThread, feed: Feed) -> None:
        batches = feed.batches()

        async def next_batch() -> list[FeedTransaction] | None:
            return await anext(batches, None)

        super().__init__(thread, feed, next_batch)
        self._rest: Iterator[FeedTransaction] = iter(())

    def __iter__(self) -> Iterator[FeedTransaction]:
        while True:
            rest = self._rest
            yield from rest
            if not self._refill(rest):
                return

    def _refill(self, empty: Iterator[FeedTransaction]) -> bool:
        """Put the next batch in place of this empty one, unless another thread has done it; False at the
        end."""
        self._thread.refuse_other_process()  # before the lock: a thread of the parent may hold it
        with self._lock:
            if self._rest is empty:
                batch = self._pull()
                if batch is not None:
                    self._rest = iter(batch)
                self._interrupted = False
                return batch is not None
            return True

    def __next__(self) -> FeedTransaction:
        for transaction in self:
            return transaction
        raise StopIteration

    def batches(self) -> Iterator[list[FeedTransaction]]:
        """The same transactions in non-empty lists."""
        while True:
            rest = self._rest
            if batch := [*rest]:  # no call, after which a signal handler could raise and the batch be lost
                yield batch
            if not self._refill(rest):
                return


if TYPE_CHECKING:

    class BlockingDataFeed(BlockingFeed):
        """As `DataFeed`: the payloads were asked for."""

        def __iter__(self) -> Iterator[DataTransaction]: ...
        def __next__(self) -> DataTransaction: ...
        def batches(self) -> Iterator[list[DataTransaction]]: ...  # type: ignore[override]

else:
    BlockingDataFeed = BlockingFeed


class BlockingRangeRead(_Reader[RangeBatch], Iterator[RangeBatch]):
    """`for batch in client.read_range(...)`; see `waltz_client.RangeRead`. Closing and threads as with
    `BlockingFeed`."""

    def __init__(self, thread: LoopThread, source: RangeRead) -> None:
        async def next_batch() -> RangeBatch | None:
            return await anext(source, None)

        super().__init__(thread, source, next_batch)
        self._range = source

    def cut_blocks_with(self, cut: BlockCutter) -> Self:
        """See `RangeRead.cut_blocks_with`; `cut` is called on the client's thread."""
        self._range.cut_blocks_with(cut)
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RangeBatch:
        batch = None
        self._thread.refuse_other_process()  # as in BlockingFeed
        try:
            with self._lock:
                batch = self._pull()
                self._interrupted = False
        except BaseException:
            if batch is not None:
                self._interrupted = True
            raise
        if batch is None:
            raise StopIteration
        return batch


if TYPE_CHECKING:

    class BlockingDataRangeRead(BlockingRangeRead):
        """As `DataRangeRead`: the payloads were asked for."""

        def __next__(self) -> DataRangeBatch: ...

else:
    BlockingDataRangeRead = BlockingRangeRead
