"""Compressed blocks: whatever the bytes are, a ProtocolError, or the body of a block of the size that was
named before, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.target import Target
from tests.fuzz.targets import blocks
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.blocks import BLOCK_HEAD_BYTES, MAX_BLOCK_BYTES
from waltz_protocol.frames.compressed_blocks import ZSTD_BLOCK, BlockCompressor, BlockExpander

EXPANDER = BlockExpander("the fuzz target")
_FLAGS_AT = BLOCK_HEAD_BYTES - 4


def check(data: bytes) -> None:
    try:
        found = bytes(EXPANDER.expanded(memoryview(data)))
    except ProtocolError:
        return
    flags, kept = _number(data, _FLAGS_AT), _number(found, _FLAGS_AT)
    assert found[:_FLAGS_AT] == data[:_FLAGS_AT]
    if flags & ZSTD_BLOCK:
        assert kept == flags ^ ZSTD_BLOCK
        assert len(found) - BLOCK_HEAD_BYTES == _number(data, BLOCK_HEAD_BYTES) <= MAX_BLOCK_BYTES
        assert len(found) > len(data) - 4
    else:
        assert found == data
    blocks.check(found)


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def seeds() -> Iterator[bytes]:
    compressor = BlockCompressor("the fuzz target")
    for body in blocks.seeds(data=b"of an account" * 30):
        packed = compressor.packed(body[BLOCK_HEAD_BYTES:])
        if packed is not None:
            yield body[:_FLAGS_AT] + bytes((0, 0, 0, ZSTD_BLOCK)) + packed
        else:
            yield body


TARGET = Target(check, seeds, memory_bytes=4 << 20)
