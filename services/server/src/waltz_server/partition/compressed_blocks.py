"""Compressed blocks for the feeds that take them: each block is compressed once, for all of these.

Owner: the event loop. Compressing the largest block takes it half a millisecond to a millisecond, so it is
done in line: the order of a feed needs no care, and what a turn compresses is bounded by `block_feeds`.

Invariants
* A block is known by its partition object, its first and last transaction and the filter: committed
  transactions do not change while that object lives, and it forgets its blocks when it closes.
* `used_bytes` <= `RECENT_BYTES` and at most `RECENT_BLOCKS` are kept; the oldest gives way.
* Dropping a partition costs as much as it holds.
* Of a partition whose last block would not have become smaller the next `LEFT_AS_THEY_ARE` are not tried.
"""

from __future__ import annotations

from waltz_protocol.frames.compressed_blocks import BlockCompressor

RECENT_BYTES = 4 * 1024 * 1024
RECENT_BLOCKS = 1024
"""Of a server. Feeds at the end of a log, and feeds that catch up side by side, get the same bytes."""
LEFT_AS_THEY_ARE = 7

Filter = tuple[tuple[int, int], ...]
_Key = tuple["PartitionBlocks", int, int, Filter]


class PartitionBlocks:
    """The part of one partition."""

    __slots__ = ("_all", "_untried", "kept")

    def __init__(self, blocks: CompressedBlocks) -> None:
        self._all = blocks
        self._untried = 0
        self.kept: set[_Key] = set()
        """Keys of its blocks in `CompressedBlocks.recent`, which writes both."""

    def packed(self, first: int, last: int, headers: Filter, records: bytes) -> bytes | None:
        """What the block of these transactions has in place of its records; None: they are sent as they
        are."""
        compressor = self._all.compressor
        if compressor is None or not compressor.takes(records):
            return None
        key = (self, first, last, headers)
        recent = self._all.recent
        if key in recent:
            return recent[key]
        if self._untried:
            self._untried -= 1
            packed = None
        else:
            packed = compressor.packed(records)
            if packed is None:
                self._untried = LEFT_AS_THEY_ARE
        self._all.keep(key, packed)
        return packed

    def drop(self) -> None:
        """The partition leaves."""
        self._all.drop(self)


class CompressedBlocks:
    """Those of a server. Without a compressor every block is sent as it is."""

    __slots__ = ("compressor", "recent", "used_bytes")

    def __init__(self, compressor: BlockCompressor | None = None) -> None:
        self.compressor = compressor
        self.recent: dict[_Key, bytes | None] = {}
        self.used_bytes = 0

    def partition(self) -> PartitionBlocks:
        """A new, empty part."""
        return PartitionBlocks(self)

    def keep(self, key: _Key, packed: bytes | None) -> None:
        """Until newer ones need the space."""
        self.recent[key] = packed
        key[0].kept.add(key)
        self.used_bytes += len(packed or b"")
        while self.used_bytes > RECENT_BYTES or len(self.recent) > RECENT_BLOCKS:
            self._forget(next(iter(self.recent)))

    def drop(self, part: PartitionBlocks) -> None:
        """Forget those of a partition."""
        for key in tuple(part.kept):
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        key[0].kept.remove(key)
        self.used_bytes -= len(self.recent.pop(key) or b"")
