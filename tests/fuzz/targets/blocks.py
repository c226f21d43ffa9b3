"""Blocks of stored records: whatever the bytes are, a ProtocolError, or a block whose parts agree with one
another."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.target import Target
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.blocks import (
    BLOCK_HEAD_BYTES,
    STORED_OVERHEAD_BYTES,
    block_head,
    parse_block,
    stored_of_entry,
)
from waltz_protocol.types import ReqId, data_checksum

PARTITION = 3


def check(data: bytes) -> None:
    try:
        block = parse_block(memoryview(data))
    except ProtocolError:
        return
    fields, payloads = block.fields(), block.payloads()
    assert len(fields) == len(payloads) == block.count == len(block.checksums())
    assert sum(map(len, payloads)) + STORED_OVERHEAD_BYTES * block.count == len(data) - BLOCK_HEAD_BYTES
    ids = [one[4] for one in fields]
    assert ids == sorted(set(ids))
    assert all(block.first <= one <= block.last for one in ids)
    assert all(one[2] == block.partition_id for one in fields)
    assert block.count == block.last - block.first + 1 or block.count < block.last - block.first + 1


def seeds(data: bytes = b"x" * 7) -> Iterator[bytes]:
    for count, last in ((0, 9), (1, 10), (3, 12), (3, 20)):
        records = b"".join(_record(10 + number, data * number) for number in range(count))
        head = block_head(5, ReqId(1, 2, PARTITION, 4).pack(), 10, last, count, 0, len(records))
        yield (head + records)[FRAME_HEADER_SIZE:]


def _record(transaction_id: int, data: bytes) -> bytes:
    checksum = data_checksum(data).to_bytes(4, "big", signed=True)
    tail = b"".join((bytes(4), len(data).to_bytes(4, "big"), data, checksum))
    return stored_of_entry(transaction_id, ReqId(7, 1, PARTITION, transaction_id).pack(), tail)


TARGET = Target(check, seeds)
