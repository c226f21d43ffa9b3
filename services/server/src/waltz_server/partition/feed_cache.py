"""Encoded FEED_DATA frames of committed transactions: a turn of a feed is one slice.

Blocks of `BLOCK_FRAMES` consecutive transactions, aligned, each frame 36 bytes of protocol version 4; other
versions differ in two bytes per frame and are re-stamped on the way out. One budget of bytes for all
partitions (`server.feedCacheSize`), least recently used block first.

Invariants
* Only committed transactions are put in (safety D1).
* A block is one gapless run that may start or end inside its 1024 places; what does not touch the run it
  holds is not merged: a younger run replaces it, an older one is left out (the reader serves feeds from its
  result anyway, so a cache of any size only changes speed).
* Bytes handed out never change: full blocks are immutable, slices of growing ones are copies.
* Dropping a partition costs as much as it holds: a server may lose thousands of them in one turn of the loop.
"""

from __future__ import annotations

from collections import OrderedDict

from waltz_protocol.frames.feed import FRAME_BYTES

BLOCK_FRAMES = 1024
_BLOCK_BYTES = FRAME_BYTES * BLOCK_FRAMES
_BLOCK_OVERHEAD_BYTES = 300

Frames = bytes | memoryview


class _Block:
    __slots__ = ("counted_bytes", "end", "first", "frames")

    def __init__(self, first: int, end: int, frames: Frames) -> None:
        self.first = first
        self.end = end
        self.frames: bytes | bytearray = bytearray(frames)
        self.counted_bytes = 0
        """Of the budget."""

    def prepend(self, first: int, frames: Frames) -> None:
        self.frames = bytearray(frames) + self.frames
        self.first = first


class FeedCache:
    """The shared budget and the order of use. Owner: the event loop."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = max(capacity_bytes, 2 * (_BLOCK_BYTES + _BLOCK_OVERHEAD_BYTES))
        self.used_bytes = 0
        self._blocks: OrderedDict[tuple[int, int], _Block] = OrderedDict()
        self._numbers: dict[int, set[int]] = {}
        """Those of `_blocks`, by partition."""

    def partition(self, partition_id: int) -> PartitionFeedCache:
        """The part of one partition (one at a time per id)."""
        return PartitionFeedCache(self, partition_id)

    def get(self, key: tuple[int, int]) -> _Block | None:
        block = self._blocks.get(key)
        if block is not None:
            self._blocks.move_to_end(key)
        return block

    def store(self, key: tuple[int, int], block: _Block) -> None:
        """Account for a block that was made, perhaps in the place of another one, or has grown since `get`;
        evict others until the budget holds."""
        size = len(block.frames)
        if size == _BLOCK_BYTES and not isinstance(block.frames, bytes):
            block.frames = bytes(block.frames)
        size += _BLOCK_OVERHEAD_BYTES
        if not block.counted_bytes:
            self._numbers.setdefault(key[0], set()).add(key[1])
        self.used_bytes += size - block.counted_bytes
        block.counted_bytes = size
        self._blocks[key] = block
        while self.used_bytes > self.capacity_bytes and len(self._blocks) > 1:
            (partition_id, number), evicted = self._blocks.popitem(last=False)
            self.used_bytes -= evicted.counted_bytes
            numbers = self._numbers[partition_id]
            numbers.remove(number)
            if not numbers:
                del self._numbers[partition_id]

    def drop(self, partition_id: int) -> None:
        """Forget all blocks of a partition."""
        for number in self._numbers.pop(partition_id, ()):
            self.used_bytes -= self._blocks.pop((partition_id, number)).counted_bytes


class PartitionFeedCache:
    """Frames of one partition."""

    def __init__(self, cache: FeedCache, partition_id: int) -> None:
        self._cache = cache
        self._partition_id = partition_id

    def put(self, first: int, frames: bytes) -> None:
        """Add consecutive version 4 frames of committed transactions `first`, `first` + 1, ..."""
        end = first + len(frames) // FRAME_BYTES
        number = first // BLOCK_FRAMES
        if end <= (number + 1) * BLOCK_FRAMES:
            if end > first:
                self._put_run(number, first, end, frames)
            return
        position = first
        while position < end:
            number = position // BLOCK_FRAMES
            stop = min(end, (number + 1) * BLOCK_FRAMES)
            run = memoryview(frames)[(position - first) * FRAME_BYTES : (stop - first) * FRAME_BYTES]
            self._put_run(number, position, stop, run)
            position = stop

    def _put_run(self, number: int, first: int, end: int, frames: Frames) -> None:
        key = (self._partition_id, number)
        block = self._cache.get(key)
        if block is None:
            block = _Block(first, end, frames)
        elif first > block.end:
            younger = _Block(first, end, frames)
            younger.counted_bytes = block.counted_bytes
            block = younger
        elif end < block.first:
            return
        else:
            if first < block.first:
                block.prepend(first, frames[: (block.first - first) * FRAME_BYTES])
            if end > block.end:  # so it is not full: nothing lies beyond the end of a full block
                block.frames += frames[(block.end - first) * FRAME_BYTES :]
                block.end = end
        self._cache.store(key, block)

    def slice(self, first: int, max_count: int) -> Frames | None:
        """Frames from `first` on: at least one, at most `max_count`, up to the end of the block; None if
        absent."""
        block = self._cache.get((self._partition_id, first // BLOCK_FRAMES))
        if block is None or not block.first <= first < block.end:
            return None
        start = (first - block.first) * FRAME_BYTES
        stop = min(start + max_count * FRAME_BYTES, len(block.frames))
        if isinstance(block.frames, bytes):
            return memoryview(block.frames)[start:stop]
        return bytes(memoryview(block.frames)[start:stop])

    def drop(self) -> None:
        """Forget everything of this partition."""
        self._cache.drop(self._partition_id)
