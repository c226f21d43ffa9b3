"""Compressed blocks: a FEED_BLOCK whose records travel as one zstd frame (docs/protocol.md, version 5).

Pure. Only the way between server and client is compressed: a server makes the frame of the records of a
block, a client makes the same block out of it, and cuts and checks that as any other (`frames.blocks`).
Nothing else changes: ids, count, credit and checksums are of the records.

    head of the block with flag 2 | i32 bytes of the records | one zstd frame

The package zstandard is needed by whoever asks for it only (extra `zstd`).
"""

from __future__ import annotations

import struct
from types import ModuleType

from waltz_protocol.errors import MissingPackageError, ProtocolError
from waltz_protocol.frames.blocks import BLOCK_HEAD_BYTES, MAX_BLOCK_BYTES

TAKES_ZSTD = 1
"""Flag of a request for a feed of blocks: they may be compressed. For servers with `ZSTD_BLOCKS` only."""
ZSTD_BLOCK = 2
"""Flag of a block: its records are compressed."""
LEVEL = 1
"""Of zstd: 3 takes up to twice as long for the same size (docs/adr/0044-compressed-blocks.md)."""
LEAST_BYTES = 1024
"""Of records: fewer fit into one packet of the network in either form."""
LEAST_SAVED = 8
"""A block is sent compressed if that saves one part in this many."""

_SIZE_BYTES = 4
_FLAGS_AT = BLOCK_HEAD_BYTES - 4
_SIZE = struct.Struct(">i")


def _zstandard(wanted_by: str, remedy: str) -> ModuleType:
    try:
        import zstandard  # only here: most clients do without it
    except ImportError:
        raise MissingPackageError(
            f"{wanted_by} needs the package zstandard, which is not installed: {remedy}"
        ) from None
    return zstandard


class BlockCompressor:
    """Compresses the records of blocks, with one context for all. Owner: one thread."""

    def __init__(self, wanted_by: str, remedy: str = "install it") -> None:
        """MissingPackageError, which names what it is `wanted_by`, and what to do."""
        zstandard = _zstandard(wanted_by, remedy)
        compressor = zstandard.ZstdCompressor(
            level=LEVEL, write_checksum=False, write_content_size=True, write_dict_id=False
        )
        self._compress = compressor.compress

    @staticmethod
    def takes(records: bytes) -> bool:
        """Whether so many bytes are compressed at all."""
        return LEAST_BYTES <= len(records) <= MAX_BLOCK_BYTES

    def packed(self, records: bytes) -> bytes | None:
        """What a block has in place of these records; None when they are sent as they are: too few or too
        many bytes, or too little is saved."""
        if not self.takes(records):
            return None
        size = len(records)
        frame: bytes = self._compress(records)
        saved = size - len(frame) - _SIZE_BYTES
        return _SIZE.pack(size) + frame if saved * LEAST_SAVED >= size else None


class BlockExpander:
    """Makes a block out of a compressed one, with one context for all. Owner: one thread.

    Before a frame is looked at, and before memory is taken for what is in it, the size in front of it is held
    against the bound; the frame must be smaller than that, so the work on it is bounded too.
    """

    def __init__(self, wanted_by: str, remedy: str = "install it") -> None:
        """MissingPackageError, which names what it is `wanted_by`, and what to do."""
        zstandard = _zstandard(wanted_by, remedy)
        self._decompress = zstandard.ZstdDecompressor().decompress
        self._content_size = zstandard.frame_content_size
        self._error: type[Exception] = zstandard.ZstdError

    def expanded(self, body: memoryview) -> memoryview:
        """A FEED_BLOCK body as it is without compression: the same one if it has none. ProtocolError when the
        frame is damaged, is not of the size that it is said to have, or is followed by anything. The records
        are not checked: `parse_block` does that."""
        if len(body) < BLOCK_HEAD_BYTES:
            raise ProtocolError("a block is cut short")
        flags = _SIZE.unpack_from(body, _FLAGS_AT)[0]
        if not flags & ZSTD_BLOCK:
            return body
        head = b"".join((body[:_FLAGS_AT], _SIZE.pack(flags & ~ZSTD_BLOCK)))
        return memoryview(head + self._records(body[BLOCK_HEAD_BYTES:]))

    def _records(self, packed: memoryview) -> bytes:
        if len(packed) < _SIZE_BYTES:
            raise ProtocolError("a compressed block is cut short")
        size = _SIZE.unpack_from(packed)[0]
        frame = packed[_SIZE_BYTES:]
        if not len(frame) < size <= MAX_BLOCK_BYTES:
            raise ProtocolError(f"a compressed block of {size} bytes in {len(frame)}")
        try:
            if self._content_size(frame) != size:
                raise ProtocolError(f"a compressed block of {size} bytes whose frame names another size")
            records: bytes = self._decompress(frame, max_output_size=size, allow_extra_data=False)
        except self._error as error:
            raise ProtocolError(f"a compressed block is damaged: {error}") from None
        if len(records) != size:
            raise ProtocolError(f"a compressed block of {size} bytes has {len(records)}")
        return records
