"""Pieces of a range on their way to a batch."""

from __future__ import annotations

from bisect import bisect_right

from waltz_client._internal.rpc.range_call import RangeCall
from waltz_client.transaction import FeedFields
from waltz_protocol.frames.blocks import Block


class StoredPiece:
    """A checked block. `start`: how many of its transactions have gone into batches; `left` and `left_bytes`:
    the others, and their payloads together."""

    __slots__ = ("block", "start")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.start = 0

    @property
    def complete(self) -> bool:
        """It has its payloads."""
        return True

    @property
    def left(self) -> int:
        """Transactions that have gone into no batch yet."""
        return self.block.count - self.start

    @property
    def left_bytes(self) -> int:
        """Of their payloads."""
        return self.block.payload_bytes(self.start, self.block.count)

    def take(self, max_count: int, max_bytes: int) -> Block:
        """The next transactions, as many as fit."""
        start, block = self.start, self.block
        end = min(start + max_count, block.count)
        if block.payload_bytes(start, end) > max_bytes:
            ends = range(start, end + 1)
            end = start + bisect_right(ends, max_bytes, key=lambda at: block.payload_bytes(start, at)) - 1
        self.start = end
        return block.part(start, end)


class Piece:
    """Transactions in order on their way to a batch: complete, or waiting for the payloads of `call`.
    `start`: how many of them have gone into batches."""

    __slots__ = ("call", "fields", "start")

    def __init__(self, fields: list[FeedFields]) -> None:
        self.fields = fields
        self.call: RangeCall | None = None
        self.start = 0

    @property
    def complete(self) -> bool:
        """Whether it has its payloads."""
        return self.call is None or not self.call.missing

    @property
    def left(self) -> int:
        """Transactions that have gone into no batch yet."""
        return len(self.fields) - self.start

    @property
    def left_bytes(self) -> int:
        """Of the payloads of the whole piece."""
        return 0 if self.call is None else self.call.size_bytes

    def take(self, max_count: int, max_bytes: int) -> tuple[list[FeedFields], list[bytes], list[int]]:
        """The next transactions, their payloads and checksums (none without data), as many as fit, in
        `max_count` > 0."""
        start, end = self.start, min(self.start + max_count, len(self.fields))
        if self.call is None:
            self.start = end
            return self.fields[start:end], [], []
        payloads: list[bytes] = []
        for part in self.call.parts[start:end]:
            if part is None or len(part) > max_bytes:
                break
            max_bytes -= len(part)
            payloads.append(part)
        self.start = end = start + len(payloads)
        return self.fields[start:end], payloads, self.call.checksums[start:end]
