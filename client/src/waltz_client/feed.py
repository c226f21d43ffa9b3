"""Feeds: committed transactions as an asynchronous iterator, with their payload fetched ahead.

One feed may read several partitions; within a partition the order is that of the ids, between partitions it
is arbitrary. Transactions are handed over in lists, one wake-up for each; payload requests are pipelined and
bounded in number and bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from waltz_client._internal.block_reads import close_blocks, open_blocks, transactions_of
from waltz_client._internal.rpc.block_feed import BlockFeed
from waltz_client._internal.rpc.call import PartitionCall
from waltz_client._internal.rpc.client import RpcClient
from waltz_client._internal.stream.feed_cursor import FeedCursor
from waltz_client._internal.stream.readers import Readers
from waltz_client.errors import WaltzClientError
from waltz_client.settings import ClientSettings
from waltz_client.transaction import FeedTransaction

BATCH_TRANSACTIONS = 1024
_GUESSED_PAYLOAD_BYTES = 1024
_LEFT_OUT: Final = b"left out"
"""In place of a payload that is not asked for, while those before it are on their way; known by identity."""

HeaderTest = Callable[[int], bool]
"""A question about a transaction by its header, such as `HeaderNamespace.owns`. It runs on the client's loop
for every transaction, and must be quick."""


class _Partition:
    """One partition of a feed: its blocks, while its server sends such; else its cursor, and the transactions
    whose payload is being fetched, in order."""

    __slots__ = ("blocks", "cursor", "fetching", "readers", "until")

    def __init__(self, readers: Readers, cursor: FeedCursor, until: int | None) -> None:
        self.readers = readers
        self.cursor = cursor
        self.until = until
        self.blocks: BlockFeed | None = None
        self.fetching: deque[FeedTransaction] = deque()


class _Batches(AsyncIterator[list[FeedTransaction]]):
    """See `Feed.batches`. No generator: that would be over with the first wait that is cancelled."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def __anext__(self) -> list[FeedTransaction]:
        batch = await self._feed._rest_or_next_batch()
        if not batch:
            raise StopAsyncIteration
        return batch


class Feed(AsyncIterator[FeedTransaction]):
    """`async for transaction in feed`; or `async for batch in feed.batches()` for lists.

    Close it (`async with`, `aclose`, or closing the client) when done early. Not for use by two tasks
    at once. Errors: ClientAheadError when a place is beyond the log, ClientClosedError,
    PartitionInactiveError, and what `where` or `with_data` raises; each ends it. Memory:
    `client.feedBufferTransactions` headers per partition and `client.prefetchBytes` of payload.
    """

    def __init__(
        self,
        places: Sequence[tuple[Readers, int | None]],
        rpc: RpcClient,
        settings: ClientSettings,
        *,
        with_data: bool | HeaderTest,
        where: HeaderTest | None,
        until: Mapping[int, int] | None,
    ) -> None:
        self._rpc = rpc
        self._settings = settings
        self._with_data = bool(with_data)
        self._wants_data = with_data if callable(with_data) else None
        self._where = where
        self._wake = asyncio.Event()
        self._ready: deque[FeedTransaction] = deque()
        self._current: list[FeedTransaction] = []
        self._next = 0
        self._closed = False
        self._error: WaltzClientError | None = None
        self._bytes_ahead = 0
        self._count_ahead = 0
        self._mean_bytes = float(_GUESSED_PAYLOAD_BYTES)
        self._calls: dict[PartitionCall, None] = {}
        self._partitions: list[_Partition] = []
        for readers, after in places:
            end = None if until is None else until[readers.partition_id]
            if end is not None and after is not None and after >= end:
                continue
            capacity = settings.feed_buffer_transactions
            cursor = FeedCursor(readers.partition_id, after, capacity, self._wake.set)
            self._partitions.append(_Partition(readers, cursor, end))
        self._bounded = until is not None
        for partition in self._partitions:
            if self._with_data:
                self._open_blocks(partition)
            else:
                if partition.cursor.tail is None:
                    partition.cursor.tail = partition.readers.end
                partition.readers.add(partition.cursor)

    # -- blocks ----------------------------------------------------------------------------------------------

    def _open_blocks(self, partition: _Partition) -> None:
        settings, after = self._settings, partition.cursor.tail
        partition.blocks = open_blocks(
            self._rpc,
            partition.readers,
            partition.readers.end if after is None else after,  # the server hears of it later
            partition.until,
            window_transactions=settings.feed_buffer_transactions,
            window_bytes=max(1, settings.prefetch_bytes // len(self._partitions)),
            where=self._where,
            on_ready=lambda: self._blocks_ready(partition),
        )
        self._rpc.start(partition.blocks)

    def _blocks_ready(self, partition: _Partition) -> None:
        """Something came. An older server needs to be asked in another way before anybody iterates."""
        blocks = partition.blocks
        if blocks is not None and blocks.old_server and blocks.over:
            asyncio.get_running_loop().call_soon(self._leave_blocks, partition, blocks)
        self._wake.set()

    def _leave_blocks(self, partition: _Partition, blocks: BlockFeed) -> None:
        if partition.blocks is blocks and not self._closed:
            self._blocks_are_over(partition, blocks)

    def _take_blocks(self) -> list[FeedTransaction]:
        """What is there, a block of each partition in turn, until a batch is full: at the end of the log a
        block may have one transaction."""
        batch: list[FeedTransaction] = []
        took = True
        while took and len(batch) < BATCH_TRANSACTIONS:
            took = False
            for partition in list(self._partitions):
                blocks = partition.blocks
                if blocks is None or len(batch) >= BATCH_TRANSACTIONS:
                    continue
                block = blocks.take()
                if block is not None:
                    took = True
                    self._partitions.remove(partition)
                    self._partitions.append(partition)
                    batch += transactions_of(block, self._where, self._wants_data)
                elif blocks.over:
                    self._blocks_are_over(partition, blocks)
        return batch

    def _blocks_are_over(self, partition: _Partition, blocks: BlockFeed) -> None:
        """The end was reached, or something went wrong; or the partition's server is an older one, and what
        follows is read as before there were blocks."""
        partition.blocks = None
        close_blocks(self._rpc, partition.readers, blocks)
        if blocks.old_server:
            partition.cursor.tail = blocks.position
            partition.readers.add(partition.cursor)
        else:
            self._partitions.remove(partition)
            self._error = self._error or blocks.error

    # -- iteration -------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FeedTransaction:
        index = self._next
        current = self._current
        if index == len(current):
            current = await self._next_batch()
            if not current:
                raise StopAsyncIteration
            self._current = current
            index = 0
        self._next = index + 1
        return current[index]

    def batches(self) -> AsyncIterator[list[FeedTransaction]]:
        """The same transactions in non-empty lists: the fastest way to read. Cancelling a wait for the next
        one loses nothing; ask again."""
        return _Batches(self)

    async def _rest_or_next_batch(self) -> list[FeedTransaction]:
        rest, self._current = self._current[self._next :], []
        self._next = 0
        return rest or await self._next_batch()

    async def _next_batch(self) -> list[FeedTransaction]:
        """The next list, in order per partition; empty at the end of a bounded or closed feed. Takes nothing
        before its last wait, so cancelling it loses nothing."""
        await asyncio.sleep(0)  # a reader that never runs dry must not starve the loop
        while True:
            if self._closed:
                return []
            if self._error is None:
                self._find_error()
            if self._error is not None and not self._ready:
                error = self._error
                await self.aclose()
                raise error
            try:
                batch = self._collect_data() if self._with_data else self._collect_headers()
            except BaseException:  # of a header test: what was taken is gone, to continue would leave it out
                await self.aclose()
                raise
            if batch:
                return batch
            if self._error is not None:
                continue
            if self._bounded:
                self._drop_finished()
            if self._bounded and not self._partitions and not self._count_ahead:
                await self.aclose()
                return []
            if self._ready or (not self._count_ahead and any(p.cursor.count for p in self._partitions)):
                await asyncio.sleep(0)  # left out or passed over, at once: nothing else would wake us
                continue
            await self._wait()

    def _drop_finished(self) -> None:
        """Partitions that were to be read from now on, until a transaction that was there already."""
        for partition in list(self._partitions):
            until, cursor = partition.until, partition.cursor
            if until is not None and cursor.tail is not None and cursor.tail >= until and not cursor.count:
                if partition.blocks is not None:
                    close_blocks(self._rpc, partition.readers, partition.blocks)
                partition.readers.remove(cursor)
                self._partitions.remove(partition)

    async def _wait(self) -> None:
        self._wake.clear()
        self._find_error()
        if self._error is not None:
            return
        starving = [p for p in self._partitions if not p.cursor.count and not p.fetching and p.blocks is None]
        for partition in starving:
            partition.readers.starves(partition.cursor)
        try:
            await self._wake.wait()
        finally:
            for partition in starving:
                partition.cursor.starving = False

    def _find_error(self) -> None:
        """What has ended the reading of a partition, once everything before it was handed over, ends the
        feed, whatever the others bring."""
        for partition in self._partitions:
            error = partition.cursor.error
            if error is not None and not partition.cursor.count and not partition.fetching:
                self._error = error if isinstance(error, WaltzClientError) else WaltzClientError(str(error))
                return

    def _take(self, partition: _Partition, limit: int) -> list[FeedTransaction]:
        cursor = partition.cursor
        fields = cursor.take_at_most(limit)
        if not fields:
            return []
        if cursor.drained:
            partition.readers.drained(cursor)
        until = partition.until
        if until is not None and fields[-1][4] >= until:
            fields = fields[: max(0, until - fields[0][4] + 1)]
            partition.readers.remove(cursor)
            self._partitions.remove(partition)
        where = self._where
        if where is None:
            return [FeedTransaction(one) for one in fields]
        return [FeedTransaction(one) for one in fields if where(one[5])]

    def _collect_headers(self) -> list[FeedTransaction]:
        batch: list[FeedTransaction] = []
        for partition in list(self._partitions):
            batch += self._take(partition, BATCH_TRANSACTIONS)
        return batch

    # -- payload ---------------------------------------------------------------------------------------------

    def _collect_data(self) -> list[FeedTransaction]:
        if self._error is None and (batch := self._take_blocks()):
            return batch
        ready = self._ready
        batch = []
        while ready and len(batch) < BATCH_TRANSACTIONS:
            transaction = ready.popleft()
            self._count_ahead -= 1
            self._bytes_ahead -= len(transaction.data or b"")
            batch.append(transaction)
        if self._error is None:
            self._request_ahead()
        return batch

    def _room(self) -> int:
        settings = self._settings
        by_bytes = (settings.prefetch_bytes - self._bytes_ahead) / self._mean_bytes - len(self._calls)
        room = min(settings.prefetch_transactions - self._count_ahead, int(by_bytes))
        return max(room, 1 if self._count_ahead == 0 else 0)

    def _request_ahead(self) -> None:
        """Ask for payloads as far as the window allows, the partitions in turn: the next call begins with
        the partition after the one that was served last."""
        room = self._room()
        wants_data = self._wants_data
        waiting = [p for p in self._partitions if p.cursor.count]
        while room > 0 and waiting:
            share = max(1, room // len(waiting))
            for partition in waiting:
                place = self._partitions.index(partition) + 1
                for transaction in self._take(partition, min(share, room)):
                    room -= 1
                    if wants_data is None or wants_data(transaction.header):
                        self._request(partition, transaction)
                    else:
                        self._leave_out(partition, transaction)
                if room <= 0:
                    if partition in self._partitions:
                        self._partitions = self._partitions[place:] + self._partitions[:place]
                    break
            waiting = [p for p in waiting if p.cursor.count and p in self._partitions]

    def _leave_out(self, partition: _Partition, transaction: FeedTransaction) -> None:
        """In its place among those whose payload is fetched, and itself without one."""
        self._count_ahead += 1
        transaction.data = _LEFT_OUT
        partition.fetching.append(transaction)
        self._make_ready(partition.fetching)

    def _make_ready(self, fetching: deque[FeedTransaction]) -> None:
        """Hand over the first ones, as far as they are complete."""
        ready = self._ready
        while fetching and fetching[0].data is not None:
            transaction = fetching.popleft()
            if transaction.data is _LEFT_OUT:
                transaction.data = None
            ready.append(transaction)
        self._wake.set()

    def _request(self, partition: _Partition, transaction: FeedTransaction) -> None:
        self._count_ahead += 1
        partition.fetching.append(transaction)

        def on_result(value: bytes | int | None, error: WaltzClientError | None) -> None:
            self._calls.pop(call, None)
            if self._closed:
                return
            if not isinstance(value, bytes):
                self._error = self._error or error or WaltzClientError("a data request was given up")
                self._wake.set()
                return
            transaction.data = value
            size = len(value)
            self._bytes_ahead += size
            self._mean_bytes += (max(size, 64) - self._mean_bytes) / 16
            fetching = partition.fetching
            if fetching[0] is transaction:
                self._make_ready(fetching)

        call = self._rpc.new_call(transaction.partition_id, transaction.transaction_id, None, on_result)
        self._calls[call] = None
        self._rpc.start(call)

    # -- end -------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Stop reading; what was not taken is dropped. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        for partition in self._partitions:
            if partition.blocks is not None:
                close_blocks(self._rpc, partition.readers, partition.blocks)
            partition.readers.remove(partition.cursor)
        self._partitions.clear()
        for call in list(self._calls):
            self._rpc.give_up(call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
