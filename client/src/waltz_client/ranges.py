"""Ranges: committed transactions of one partition in bulk, as columns instead of objects.

For programs that read a known piece of the log as fast as it comes (exports, queries). A feed follows the log
and hands out transactions; a range has two ends, and its batches are arrays and one block of bytes that can
be handed on as they are.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from waltz_client._internal.arguments import time_limit, whole_number
from waltz_client._internal.block_reads import close_blocks, open_blocks
from waltz_client._internal.raised import is_exit
from waltz_client._internal.range_pieces import Piece, StoredPiece
from waltz_client._internal.rpc.block_feed import BlockCutter, BlockFeed
from waltz_client._internal.rpc.client import RpcClient
from waltz_client._internal.rpc.range_call import RangeCall
from waltz_client._internal.stream.feed_cursor import FeedCursor
from waltz_client._internal.stream.readers import Readers
from waltz_client.errors import (
    RequestDeadlineError,
    TransactionNotFoundError,
    UsageError,
    WaltzClientError,
)
from waltz_client.range_batch import RangeBatch
from waltz_client.transaction import FeedFields
from waltz_protocol.frames.blocks import Block, parse_block

BATCH_TRANSACTIONS = 16_384
BATCH_BYTES = 8 * 1024 * 1024
_MAX_BATCH_BYTES = 1024 * 1024 * 1024
_CALL_TRANSACTIONS = 128
_FIRST_OUTSTANDING = 8
_MAX_OUTSTANDING = 1024
_GUESSED_PAYLOAD_BYTES = 16_384.0
_MARK_PAUSE_SECONDS = 0.2


class RangeSource(Protocol):
    """What a range needs of the client's partitions."""

    async def server_high_water_mark(self, partition_id: int, deadline_seconds: float | None = None) -> int:
        """RequestDeadlineError."""
        ...

    def readers(self, partition_id: int) -> Readers:
        """Those of a partition; PartitionInactiveError, ClientClosedError."""
        ...

    def why_unavailable(self, partition_id: int) -> str:
        """For messages."""
        ...


class RangeRead(AsyncIterator[RangeBatch]):
    """`async for batch in client.read_range(...)`; see there. Close it (`async with`, `aclose`)
    when done early.

    Reading continues while a batch is being worked on, up to two batches ahead. Invariants: pieces are in
    order and cover everything taken from the cursor; `_ahead` transactions are in them, `_outstanding` of
    them in incomplete pieces, and `_loaded_bytes` of payload in the complete ones; a batch is made of
    complete pieces.
    """

    def __init__(
        self,
        source: RangeSource,
        rpc: RpcClient,
        partition_id: int,
        first: int,
        last: int,
        *,
        with_data: bool,
        where: Callable[[int], bool] | None,
        batch_transactions: int,
        batch_bytes: int,
        buffer_transactions: int,
        timeout_seconds: float,
    ) -> None:
        first, last = whole_number("first", first), whole_number("last", last)
        if first < 0:
            raise UsageError(f"{first} is not a transaction id")
        batch_transactions = whole_number("batch_transactions", batch_transactions)
        batch_bytes = whole_number("batch_bytes", batch_bytes)
        if batch_transactions < 1 or not 1 <= batch_bytes <= _MAX_BATCH_BYTES:
            raise UsageError("a batch has at least 1 transaction and between 1 byte and 1 GiB")
        self._source = source
        self._rpc = rpc
        self._partition_id = partition_id
        self._first = first
        self._last = last
        self._with_data = with_data
        self._where = where
        self._batch_transactions = batch_transactions
        self._batch_bytes = batch_bytes
        self._timeout_seconds = time_limit("timeout_seconds", timeout_seconds)
        self._buffer_transactions = buffer_transactions
        self._readers: Readers | None = None
        self._cursor: FeedCursor | None = None
        self._cut_block: BlockCutter = parse_block
        self._blocks: BlockFeed | None = None
        """While the partition's server sends such; then there is no cursor."""
        self._pieces: deque[Piece | StoredPiece] = deque()
        self._ahead = 0
        self._outstanding = 0
        self._loaded_bytes = 0
        self._outstanding_limit = _FIRST_OUTSTANDING
        self._mean_bytes = _GUESSED_PAYLOAD_BYTES
        self._wake = asyncio.Event()
        self._pumping = False
        self._progress = 0
        self._covered: int | None = None  # by blocks
        self._headers_done = last < first
        self._closed = False
        self._error: BaseException | None = None
        """With it nothing more is taken: what was taken when a header test raised is gone."""

    def cut_blocks_with(self, cut: BlockCutter) -> Self:
        """Before the first batch: how a block that arrives is cut and checked, in place of `parse_block`. It
        has to refuse whatever that one refuses, by ProtocolError."""
        self._cut_block = cut
        return self

    # -- iteration -------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RangeBatch:
        if self._readers is None and not self._headers_done and not self._closed:
            await self._start()
        while True:
            if self._closed:
                raise StopAsyncIteration
            self._pump()
            if (batch := self._batch()) is not None:
                self._pump_soon()
                return batch
            if self._error is not None:
                error = self._error
                await self.aclose()
                raise error
            if self._headers_done and not self._pieces:
                await self.aclose()
                raise StopAsyncIteration
            await self._wait()

    async def _start(self) -> None:
        """Make sure that the range is committed, and ask for its headers."""
        source, partition_id = self._source, self._partition_id
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_seconds
        while (
            mark := await source.server_high_water_mark(partition_id, max(deadline - loop.time(), 0.001))
        ) < self._last and not self._closed:
            # An owner that does not know yet that it is replaced may be behind for a moment.
            if loop.time() + _MARK_PAUSE_SECONDS > deadline:
                raise TransactionNotFoundError(
                    f"partition {partition_id} ends at transaction {mark}, the range at {self._last}"
                )
            await asyncio.sleep(_MARK_PAUSE_SECONDS)
        if self._closed:  # by somebody else, meanwhile
            return
        readers = self._readers = source.readers(partition_id)
        if self._with_data:
            self._blocks = open_blocks(
                self._rpc,
                readers,
                self._first - 1,
                self._last,
                window_transactions=self._batch_transactions,
                window_bytes=self._batch_bytes,
                where=self._where,
                on_ready=self._pump_soon,
                cut=self._cut_block,
            )
            self._rpc.start(self._blocks)
        else:
            self._follow(readers, self._first - 1)

    def _follow(self, readers: Readers, after: int) -> None:
        """Read headers, and payloads one by one."""
        self._cursor = FeedCursor(self._partition_id, after, self._buffer_transactions, self._pump_soon)
        readers.add(self._cursor)

    async def _wait(self) -> None:
        cursor, readers = self._cursor, self._readers
        # Also with less than a batch in hand: nobody else may need the connection, which is paused then.
        starving = (
            cursor is not None and not cursor.count and not self._outstanding and not self._headers_done
        )
        if cursor is not None and readers is not None and starving:
            readers.starves(cursor)
        before = self._progress
        self._wake.clear()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._wake.wait()
        except TimeoutError:
            if self._progress == before:
                why = self._source.why_unavailable(self._partition_id)
                self._error = RequestDeadlineError(
                    f"partition {self._partition_id}: nothing of its transactions {self._first} to {self._last} was read for "
                    f"{self._timeout_seconds:g} s: {why}"
                )
        finally:
            if cursor is not None and starving:
                cursor.starving = False

    # -- reading ---------------------------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        """Something came, or there is room: look once, when this turn of the loop is over."""
        if not self._pumping and not self._closed:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump_and_wake)

    def _pump_and_wake(self) -> None:
        self._pumping = False
        self._pump()
        if self._error is not None or self._headers_done or self._may_have_batch:
            self._wake.set()

    @property
    def _may_have_batch(self) -> bool:
        """Whether it is worth waking the reader: blocks are complete, so a batch is there when it is full.
        Also when everything was left out: the cursor has to say again that it waits."""
        if self._blocks is not None:
            return self._full
        return not self._pieces or self._pieces[0].complete

    def _pump(self) -> None:
        """Take what came while there is room, until something is wrong."""
        if self._error is None and not self._closed:
            try:
                self._take_what_came()
            except BaseException as error:  # of a header test, too
                if is_exit(error):
                    raise
                self._error = error

    def _take_what_came(self) -> None:
        """Blocks; or headers, and ask for their payloads."""
        cursor, readers = self._cursor, self._readers
        if readers is None:
            return
        if self._blocks is not None:
            self._take_blocks(readers, self._blocks)
            return
        if cursor is None:
            return
        if cursor.error is not None and not cursor.count and not self._headers_done:
            error = cursor.error
            self._error = error if isinstance(error, WaltzClientError) else WaltzClientError(str(error))
            return
        while not self._headers_done and (room := self._room()) > 0:
            taken = cursor.take_at_most(min(room, _CALL_TRANSACTIONS if self._with_data else room))
            if not taken:
                return
            self._take(readers, cursor, taken)

    def _take_blocks(self, readers: Readers, blocks: BlockFeed) -> None:
        """Blocks until there is a batch; what is not taken, another batch at most, limits what the server
        sends."""
        if blocks.position != self._covered:  # also by what the server left out, of which no block is kept
            self._covered = blocks.position
            self._progress += 1
        while not self._full:
            block = blocks.take()
            if block is None:
                break
            self._progress += 1
            if self._where is not None:
                block = block.only(self._where)
            if block.count:
                piece = StoredPiece(block)
                self._pieces.append(piece)
                self._ahead += piece.left
                self._loaded_bytes += piece.left_bytes
        if blocks.over:
            self._blocks = None
            close_blocks(self._rpc, readers, blocks)
            if blocks.old_server and blocks.position is not None:
                self._follow(readers, blocks.position)
            else:
                self._error = blocks.error
                self._headers_done = blocks.error is None

    def _take(self, readers: Readers, cursor: FeedCursor, taken: Sequence[FeedFields]) -> None:
        self._progress += 1
        fields = list(taken)
        if fields[-1][4] >= self._last:
            del fields[self._last - fields[0][4] + 1 :]
            self._headers_done = True
            readers.remove(cursor)
        elif cursor.drained:
            readers.drained(cursor)
        if self._where is not None:
            where = self._where
            fields = [one for one in fields if where(one[5])]
        if not fields:
            return
        self._ahead += len(fields)
        piece = Piece(fields)
        self._pieces.append(piece)
        if self._with_data:
            self._outstanding += len(fields)
            answered = functools.partial(self._answered, piece)
            piece.call = RangeCall(self._rpc, self._partition_id, fields, answered)
            self._rpc.start(piece.call)

    @property
    def _full(self) -> bool:
        """A batch has been taken, whether or not its payloads are there."""
        return self._ahead >= self._batch_transactions or self._loaded_bytes >= self._batch_bytes

    def _room(self) -> int:
        """Transactions that may be taken now: two batches, by count and by bytes, and a window that grows
        with success."""
        room = 2 * self._batch_transactions - self._ahead
        if self._with_data:
            bytes_left = 2 * self._batch_bytes - self._loaded_bytes
            room = min(room, int(bytes_left / self._mean_bytes) - self._outstanding)
            room = min(room, self._outstanding_limit - self._outstanding)
        return max(room, 1 if not self._full and not self._outstanding else 0)

    def _answered(self, piece: Piece, value: bytes | int | None, error: WaltzClientError | None) -> None:
        """A piece is complete, or the client was closed."""
        self._progress += 1
        self._outstanding -= len(piece.fields)
        if error is not None:
            self._error = self._error or error
        elif piece.call is not None:
            self._outstanding_limit = min(2 * self._outstanding_limit, _MAX_OUTSTANDING)
            self._loaded_bytes += piece.call.size_bytes
            mean = max(piece.call.size_bytes / len(piece.fields), 64.0)
            self._mean_bytes = max(mean, self._mean_bytes * 0.75)
        self._pump_soon()

    def _batch(self) -> RangeBatch | None:
        """The next batch, if there is enough for one or nothing more will come. Blocks and single payloads
        (of a server of an older version, after a move) are never in one batch."""
        count = size = 0
        kind = type(self._pieces[0]) if self._pieces else None
        for piece in self._pieces:
            if type(piece) is not kind:
                return self._cut()
            if not piece.complete:
                break
            count += piece.left
            size += piece.left_bytes
            if count >= self._batch_transactions or size >= self._batch_bytes:
                return self._cut()
        else:
            if self._headers_done and self._pieces:
                return self._cut()
        return None

    def _cut(self) -> RangeBatch:
        """As many transactions as fit from the complete pieces; at least one, however large."""
        batch = self._cut_blocks() if isinstance(self._pieces[0], StoredPiece) else self._cut_payloads()
        self._ahead -= len(batch)
        return batch

    def _cut_blocks(self) -> RangeBatch:
        parts: list[Block] = []
        count, size = self._batch_transactions, self._batch_bytes
        while self._pieces and count > 0 and isinstance(piece := self._pieces[0], StoredPiece):
            part = piece.take(count, size)
            if not part.count:
                if parts:
                    break
                part = piece.take(1, sys.maxsize)
            parts.append(part)
            part_bytes = part.payload_bytes(0, part.count)
            count -= part.count
            size -= part_bytes
            self._loaded_bytes -= part_bytes
            if not piece.left:
                self._pieces.popleft()
            if size <= 0:
                break
        return RangeBatch.of_blocks(self._partition_id, tuple(parts))

    def _cut_payloads(self) -> RangeBatch:
        fields: list[FeedFields] = []
        payloads: list[bytes] = []
        checksums: list[int] = []
        count, size = self._batch_transactions, self._batch_bytes
        while self._pieces and count > 0 and isinstance(piece := self._pieces[0], Piece) and piece.complete:
            taken = piece.take(count, size)
            if not taken[0]:
                if fields:
                    break
                taken = piece.take(1, sys.maxsize)
            fields += taken[0]
            payloads += taken[1]
            checksums += taken[2]
            count -= len(taken[0])
            size -= sum(map(len, taken[1]))
            if not piece.left:
                self._pieces.popleft()
                self._loaded_bytes -= piece.left_bytes
            if size <= 0:
                break
        if self._with_data:
            return RangeBatch(self._partition_id, fields, payloads, checksums)
        return RangeBatch(self._partition_id, fields, None, None)

    # -- end -------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Stop reading; what was not taken is dropped. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        if self._blocks is not None and self._readers is not None:
            close_blocks(self._rpc, self._readers, self._blocks)
        if self._cursor is not None and self._readers is not None:
            self._readers.remove(self._cursor)
        for piece in self._pieces:
            if isinstance(piece, Piece) and piece.call is not None:
                self._rpc.give_up(piece.call)
        self._pieces.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
