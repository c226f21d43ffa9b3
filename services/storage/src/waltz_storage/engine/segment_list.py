"""The segments of one partition, oldest first: which one holds a transaction, and whose files stay open.

Owner: the partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from waltz_storage.engine.segment import Segment


class SegmentList(list[Segment]):
    """The last one takes appends, and its files are always open; of the others those of the `capacity` that
    were used last."""

    def __init__(self, segments: Iterable[Segment], capacity: int) -> None:
        super().__init__(segments)
        self._capacity = capacity
        self._open: OrderedDict[int, Segment] = OrderedDict()

    def find(self, txid: int) -> Segment:
        """The segment of a stored transaction: the newest first, then binary search."""
        low, high = 0, len(self) - 1
        if txid >= self[high].first_txid:
            return self[high]
        while low < high:
            middle = (low + high + 1) // 2
            if self[middle].first_txid <= txid:
                low = middle
            else:
                high = middle - 1
        return self[low]

    def keep_open(self, segment: Segment) -> None:
        """A segment was used: its files stay open, and those of another one may be closed."""
        if segment is self[-1] or not segment.is_open:
            return
        self._open[segment.first_txid] = segment
        self._open.move_to_end(segment.first_txid)
        while len(self._open) > self._capacity:
            _, oldest = self._open.popitem(last=False)
            if oldest is not self[-1]:
                oldest.close()

    def drop_newest(self) -> Segment:
        """The last one is gone; the one before takes appends, and is not counted as open any longer."""
        gone = self.pop()
        if self:
            self._open.pop(self[-1].first_txid, None)
        return gone

    @property
    def log_bytes(self) -> int:
        """Bytes of all segments, data and index."""
        return sum(segment.log_bytes for segment in list(self))
