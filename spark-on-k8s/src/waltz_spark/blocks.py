"""Blocks of stored records as columns: cut, checked and taken apart by numpy and Arrow, without a Python
object for each transaction but its checksum.

What a block is, and what is wrong with one, is defined by `waltz_protocol.frames.blocks.parse_block`. Here is
a faster way for blocks in which nothing is wrong: whatever does not pass goes to `parse_block`, which
decides.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from waltz_protocol.checksum import crc32
from waltz_protocol.frames.blocks import (
    BLOCK_HEAD_BYTES,
    STORED_HEAD_BYTES,
    STORED_OVERHEAD_BYTES,
    Block,
    parse_block,
    parse_block_head,
)

Numbers = npt.NDArray[Any]

_HEAD = np.dtype(
    [
        ("transaction_id", ">i8"), ("client_id", ">i4"), ("generation", ">i4"), ("partition", ">i4"),
        ("sequence", ">i4"), ("header", ">i4"), ("length", ">i4"), ("checksum", ">i4"),
    ]
)  # fmt: skip
"""What a stored record has before its data."""
_COLUMNS = ("partition", "transaction_id", "header", "client_id", "generation", "sequence", "checksum")
_SEAL = np.dtype(">u4")
_LENGTH = Struct(">i").unpack_from
_LENGTH_OFFSET = 28
_MAX_BYTES = 2**31 - 1
"""Offsets of Arrow's binary arrays have 32 bits."""


def cut_block(body: memoryview) -> Block:
    """As `parse_block`: every check of it, for all records at once. The checksum is the only thing that is
    asked of each record."""
    partition_id, seq_num, first, last, count, flags = parse_block_head(body)
    data = bytes(body[BLOCK_HEAD_BYTES:])
    starts = _starts(data, count)
    if starts is None or not (count == 0 or _sound(data, starts, partition_id, first, last)):
        return parse_block(body)
    return Block(partition_id, seq_num, first, last, flags, data, starts)


def _starts(data: bytes, count: int) -> array[int] | None:
    """Where the records begin, and the end of the last one, by their lengths; None when they do not end where
    the data does. Records of one length are found at once."""
    size = len(data)
    starts = array("q", (0,))
    if not count:
        return None if size else starts
    if count * STORED_OVERHEAD_BYTES > size:
        return None
    each, rest = divmod(size, count)
    if not rest:
        lengths = np.ndarray((count,), ">i4", data, _LENGTH_OFFSET, (each,))
        if (lengths == each - STORED_OVERHEAD_BYTES).all():
            starts.frombytes(np.arange(each, size + 1, each, dtype=np.int64).tobytes())
            return starts
    at, most, unpack = 0, size - STORED_OVERHEAD_BYTES, _LENGTH
    ends = []
    for _ in range(count):
        if at > most:
            return None
        length = unpack(data, at + _LENGTH_OFFSET)[0]
        if length < 0:
            return None
        at += length + STORED_OVERHEAD_BYTES
        ends.append(at)
    starts.extend(ends)
    return starts if at == size else None


def _sound(data: bytes, starts: array[int], partition_id: int, first: int, last: int) -> bool:
    """Whether the checksums, the partition and the ids of all records are right."""
    view = memoryview(data)
    ends = starts[1:]
    found = array("I", map(crc32, [view[a : b - 4] for a, b in zip(starts, ends, strict=False)]))
    places = np.frombuffer(starts, np.int64)
    if (_items(data, _SEAL, places[1:] - 4) != np.frombuffer(found, np.uint32)).any():
        return False
    heads = _items(data, _HEAD, places[:-1])
    if (heads["partition"] != partition_id).any():
        return False
    ids = heads["transaction_id"].astype(np.int64)
    if len(ids) == last - first + 1:
        return bool(ids[0] == first and ids[-1] == last and (np.diff(ids) == 1).all())
    return bool(first <= ids[0] and ids[-1] <= last and (np.diff(ids) > 0).all())


def _items(data: bytes, kind: np.dtype[Any], places: Numbers) -> Numbers:
    """The items of this kind that begin at these places of the data."""
    plain = np.dtype((np.void, kind.itemsize))  # copied as bytes: much faster than field by field
    anywhere = np.ndarray((len(data) - kind.itemsize + 1,), plain, data, strides=(1,))
    return anywhere[places].view(kind)


def columns_of_blocks(blocks: Sequence[Block]) -> dict[str, pa.Array] | None:
    """The columns of the transactions of checked blocks, by name; `data` is binary. None when there are more
    bytes of records than a binary array has."""
    slices, places, before = [], [], 0
    for block in blocks:
        starts = np.asarray(block.starts, np.int64)
        begin, end = int(starts[0]), int(starts[-1])
        slices.append(memoryview(block.data)[begin:end])
        places.append(starts[:-1] + (before - begin))
        before += end - begin
    if before > _MAX_BYTES:
        return None
    data = b"".join(slices)
    starts = np.concatenate(places)
    heads = _items(data, _HEAD, starts)
    columns = {name: _column(heads[name]) for name in _COLUMNS}
    columns["data"] = _payloads(data, starts, heads["length"])
    return columns


def _payloads(data: bytes, starts: Numbers, lengths: Numbers) -> pa.Array:
    """The payloads out of records back to back: Arrow copies every second one of the pieces between."""
    count = len(starts)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0] = 0
    bounds[1::2] = starts + STORED_HEAD_BYTES
    bounds[2::2] = bounds[1::2] + lengths
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return pc.take(pieces, _column(np.arange(1, 2 * count, 2, dtype=np.int32)))


def _column(numbers: Numbers) -> pa.Array:
    """Whole numbers of 32 or 64 bits. Not by `pa.array`, which imports pandas to ask about their type."""
    native = numbers.astype(numbers.dtype.newbyteorder("="))
    kind = pa.int64() if native.itemsize == 8 else pa.int32()
    return pa.Array.from_buffers(kind, len(native), [None, pa.py_buffer(native)])
