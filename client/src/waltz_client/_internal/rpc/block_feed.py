"""A feed of blocks: the committed transactions of a partition with their data, over an RPC connection of
version 5 or newer (docs/protocol.md, version 5).

It needs no mount. Where it is sent, and when again, is the RPC client's business, as for every call: on each
new connection it is opened anew from `position`, so what a lost connection still had on its way is never
taken. A server that speaks only older versions is no place for it: it is over then, and its reader continues
after `position` in another way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from waltz_client._internal.req_ids import ReqIdSource
from waltz_client._internal.rpc.call import AnswerSession, Calls, PartitionCall
from waltz_client.errors import ServerRequestError, WaltzClientError
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.blocks import LAST_BLOCK, Block, parse_block
from waltz_protocol.frames.compressed_blocks import TAKES_ZSTD
from waltz_protocol.messages.client import (
    FROM_THE_END,
    WITHOUT_END,
    BlockCredit,
    BlockFailureCode,
    BlockFeedEnd,
    BlockFeedRequest,
)
from waltz_protocol.types import ReqId

BLOCKS_SINCE = BlockFeedRequest.SINCE
BlockCutter = Callable[[memoryview], Block]
"""Makes a checked block of a FEED_BLOCK body; ProtocolError."""
_WORTH_ANOTHER_TRY = (BlockFailureCode.NOT_SERVED, BlockFailureCode.READ_FAILED)


class BlockFeed(PartitionCall):
    """See the module. Owner: its reader, on the loop.

    Invariants: `position` is the last transaction covered by what was accepted, None while a reader that
    starts from the end has not heard where that is; then it begins after `_begins_by` at the latest, if that
    is known; blocks are accepted only if they continue there, and are
    taken in this order. What is buffered and what is granted are at most the window together (in bytes: and
    one transaction).
    """

    __slots__ = (
        "_begins_by", "_granted", "_granted_bytes", "_headers", "_on_covered", "_on_ready", "_opened", "_req_id", "_until",
        "_window", "_window_bytes", "blocks", "buffered", "buffered_bytes", "cut", "error", "old_server", "position",
    )  # fmt: skip

    def __init__(
        self,
        calls: Calls,
        partition_id: int,
        after: int | None,
        until: int | None,
        *,
        window_transactions: int,
        window_bytes: int,
        headers: tuple[tuple[int, int], ...],
        on_ready: Callable[[], object],
        on_covered: Callable[[BlockFeed, bool], None],
    ) -> None:
        """`on_ready` is called when something came or the feed is over; `on_covered` with each block, and
        whether the feed has just begun at the end of the log."""
        super().__init__(calls, partition_id, None, None, self._ended)
        self.position = after
        self.blocks: deque[Block] = deque()
        self.buffered = 0
        self.buffered_bytes = 0
        self.error: WaltzClientError | None = None
        self.old_server = False
        self.cut: BlockCutter = parse_block
        self._begins_by: int | None = None
        self._until = until
        self._window = window_transactions
        self._window_bytes = window_bytes
        self._headers = headers
        self._on_ready = on_ready
        self._on_covered = on_covered
        self._granted = 0
        self._granted_bytes = 0
        self._opened = False
        self._req_id = ReqId(0, 0, partition_id, 0)

    def _ended(self, _value: object, error: WaltzClientError | None) -> None:
        self.error = error
        self._on_ready()

    @property
    def over(self) -> bool:
        """Nothing more will come, and everything that came has been taken."""
        return self.done and not self.blocks

    # -- what the RPC client and its sessions call ---------------------------------------------------------

    def takes(self, version: int) -> bool:
        """See `PartitionCall`."""
        if self.position is None:
            self.position = self._begins_by
        if version >= BLOCKS_SINCE:
            return True
        self.old_server = True
        self.finish(None, None)
        return False

    def request(self, session: AnswerSession, req_ids: ReqIdSource) -> bytes:
        """See `PartitionCall`."""
        seq_num = self.seq_num = req_ids.next_seq_num()
        session.calls[self.partition_id, seq_num] = self
        self._opened = False
        self._req_id = ReqId(req_ids.client_id, req_ids.generation, self.partition_id, seq_num)
        self._granted = max(self._window - self.buffered, 0)
        self._granted_bytes = max(self._window_bytes - self.buffered_bytes, 0)
        return CLIENT.encode(
            BlockFeedRequest(
                self._req_id,
                FROM_THE_END if self.position is None else self.position,
                WITHOUT_END if self._until is None else self._until,
                self._granted,
                self._granted_bytes,
                TAKES_ZSTD if session.takes_zstd else 0,
                self._headers,
            ),
            session.version,
        )

    def withdraw(self, session: AnswerSession) -> None:
        """See `PartitionCall`."""
        if session.calls.pop((self.partition_id, self.seq_num), None) is not None:
            session.send_frame(CLIENT.encode(BlockFeedEnd(self._req_id), session.version))

    def is_silent(self) -> bool:
        """An open feed may be silent for as long as nothing is committed."""
        return not self._opened

    def block_received(self, block: Block) -> None:
        """FEED_BLOCK. ProtocolError unless it continues where the last one ended, within the credit."""
        begins = not self._opened
        if self.position is None:
            if self._begins_by is not None and self._begins_by < block.first - 1:
                self._open_again()
                return
            self.position = block.first - 1
        if block.first != self.position + 1:
            raise ProtocolError(
                f"partition {self.partition_id}: a block from {block.first} on, where {self.position + 1} is expected"
            )
        if self._until is not None and block.last > max(self._until, self.position):
            raise ProtocolError(f"partition {self.partition_id}: a block beyond the end that was asked for")
        if block.flags & LAST_BLOCK and (self._until is None or block.last < self._until):
            raise ProtocolError(
                f"partition {self.partition_id}: the last block ends at transaction {block.last}, before the end"
            )
        if block.count > max(self._granted, 0) or (block.count and self._granted_bytes <= 0):
            raise ProtocolError(f"partition {self.partition_id}: a block beyond the credit")
        if begins:
            self._opened = True
            self.attempts = 0
        self.position = block.last
        size = len(block.data)
        self._granted -= block.count
        self._granted_bytes -= size
        if block.count:
            self.blocks.append(block)
            self.buffered += block.count
            self.buffered_bytes += size
        if block.flags & LAST_BLOCK:
            if self.session is not None:
                self.session.calls.pop((self.partition_id, self.seq_num), None)
            self.session = None
            self.finish(None, None)
        self._on_covered(self, begins and not block.count)
        self._on_ready()

    def _open_again(self) -> None:
        """Its server heard of it after the end was known here: from there on, not from its end by then."""
        session, self.session = self.session, None
        if session is not None:
            self.withdraw(session)
        self.attempts = 1
        self._calls.retry_later(self, "the log had more by then")

    def failed(self, code: int, text: str) -> None:
        """BLOCK_FAILURE: try again, or end with ServerRequestError."""
        self.session = None
        self._opened = False
        if code in _WORTH_ANOTHER_TRY:
            self._calls.retry_later(self, text)
        else:
            self.finish(None, ServerRequestError(f"partition {self.partition_id}: {text}"))

    # -- what the partition calls --------------------------------------------------------------------------

    def end_known(self, mark: int) -> None:
        """The log of the partition ends there: a feed from the end on, which has not heard where that is,
        begins there at the latest, however late a server hears of it."""
        if self._begins_by is None:
            self._begins_by = mark

    # -- what the reader calls -----------------------------------------------------------------------------

    def take(self) -> Block | None:
        """The next block; grants as much more as there is space now, when that is half a window."""
        if not self.blocks:
            return None
        block = self.blocks.popleft()
        self.buffered -= block.count
        self.buffered_bytes -= len(block.data)
        session = self.session
        if session is not None:
            more = self._window - self.buffered - self._granted
            more_bytes = self._window_bytes - self.buffered_bytes - self._granted_bytes
            if 2 * more >= self._window or 2 * more_bytes >= self._window_bytes:
                self._granted += max(more, 0)
                self._granted_bytes += max(more_bytes, 0)
                session.send_frame(
                    CLIENT.encode(
                        BlockCredit(self._req_id, max(more, 0), max(more_bytes, 0)),
                        session.version,
                    )
                )
        return block

    def fail(self, error: WaltzClientError) -> None:
        """End it with an error, after what is buffered."""
        if not self.done:
            session, self.session = self.session, None
            if session is not None:
                self.withdraw(session)
            self.finish(None, error)
