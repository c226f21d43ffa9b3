"""A batch of a range: transactions as columns.

They come either as fields and payloads, one by one, or as stored records, whole blocks of them. What wants
columns of another kind (Spark) takes the blocks; for everybody else arrays are made of them on first use.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

from waltz_client.transaction import FeedFields, FeedTransaction
from waltz_protocol.frames.blocks import Block


class RangeBatch:
    """Consecutive transactions of a range (without those a filter left out), one array per field.

    `data` is all payloads in one block: that of transaction i is `data[offsets[i]:offsets[i + 1]]`.
    `data`, `offsets` and `checksums` (CRC-32 of the payload as a signed number, compared with the
    payload on arrival) are None when the range is read without data.

    `blocks` are the same transactions as stored records, as they came from a server that sends such, else
    None: for readers that make columns of their own from them. The arrays are then made on first use.
    """

    __slots__ = (
        "_count", "blocks", "checksums", "client_ids", "data", "generations", "headers", "offsets", "partition_id", "seq_nums",
        "transaction_ids",
    )  # fmt: skip

    data: bytes | None
    offsets: array[int] | None
    checksums: array[int] | None
    headers: array[int]
    client_ids: array[int]
    generations: array[int]
    seq_nums: array[int]
    transaction_ids: array[int]
    blocks: tuple[Block, ...] | None

    def __init__(
        self,
        partition_id: int,
        fields: Sequence[FeedFields],
        payloads: Sequence[bytes] | None,
        checksums: Sequence[int] | None,
    ) -> None:
        self.partition_id = partition_id
        self.blocks = None
        self._count = len(fields)
        self._fill(fields, payloads, checksums)

    @classmethod
    def of_blocks(cls, partition_id: int, blocks: tuple[Block, ...]) -> Self:
        """A batch of the transactions of checked blocks."""
        batch = cls.__new__(cls)
        batch.partition_id = partition_id
        batch.blocks = blocks
        batch._count = sum(block.count for block in blocks)
        return batch

    def _fill(
        self, fields: Sequence[FeedFields], payloads: Sequence[bytes] | None, checksums: Sequence[int] | None
    ) -> None:
        client_ids, generations, _, seq_nums, transaction_ids, headers = zip(*fields, strict=True)
        self.transaction_ids = array("q", transaction_ids)
        self.headers = array("i", headers)
        self.client_ids = array("i", client_ids)
        self.generations = array("i", generations)
        self.seq_nums = array("i", seq_nums)
        self.data = None
        self.offsets = None
        self.checksums = None
        if payloads is not None and checksums is not None:
            self.data = b"".join(payloads)
            self.offsets = array("i", accumulate(map(len, payloads), initial=0))
            self.checksums = array("i", checksums)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An array that is not there yet: all are made from the blocks."""
            if name not in RangeBatch.__slots__ or self.blocks is None:
                raise AttributeError(f"a batch of a range has no {name}")
            blocks = self.blocks
            self._fill(
                [fields for block in blocks for fields in block.fields()],
                [payload for block in blocks for payload in block.payloads()],
                [checksum for block in blocks for checksum in block.checksums()],
            )
            return getattr(self, name)

    def __len__(self) -> int:
        return self._count

    def transactions(self) -> list[FeedTransaction]:
        """The same as objects, one for each transaction."""
        if self.blocks is not None:
            return [
                FeedTransaction(*one)
                for block in self.blocks
                for one in zip(block.fields(), block.payloads(), strict=True)
            ]
        found = []
        for i, transaction_id in enumerate(self.transaction_ids):
            fields = (
                self.client_ids[i], self.generations[i], self.partition_id, self.seq_nums[i], transaction_id, self.headers[i],
            )  # fmt: skip
            data = None
            if self.data is not None and self.offsets is not None:
                data = self.data[self.offsets[i] : self.offsets[i + 1]]
            found.append(FeedTransaction(fields, data))
        return found
