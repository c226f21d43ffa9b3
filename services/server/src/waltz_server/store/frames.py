"""Append frames of a store session: built once, shared by all replicas, kept only as long as somebody needs
them.

A frame is numbered by its place in the session (`seq`). The queue holds a window of consecutive frames:
everything that is not committed, and committed ones that a slow or catching-up replica still wants, as far as
the bound allows (D3).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from waltz_server.store.api import AppendEntry

_PACK_TXID = struct.Struct(">q").pack
_RECORD_HEAD_BYTES = 24


class Frame:
    """Consecutive wire records first..last, and the entries they came from."""

    __slots__ = ("count", "entries", "first", "last", "seq", "wire_records")

    def __init__(self, seq: int, entries: list[AppendEntry], wire_records: bytes) -> None:
        self.seq = seq
        self.entries = entries
        self.count = len(entries)
        self.first = entries[0].transaction_id
        self.last = entries[-1].transaction_id
        self.wire_records = wire_records


class FrameQueue:
    """Entries waiting to be framed, then frames. Owner: the store session."""

    def __init__(self, *, next_txid: int, max_frame_bytes: int, max_frame_records: int) -> None:
        self.next_txid = next_txid
        self.frames: deque[Frame] = deque()
        self.base_seq = 0
        self.retained_bytes = 0
        self.waiting: list[AppendEntry] = []
        """Entries that have an id and no frame yet."""
        self._max_frame_bytes = max_frame_bytes
        self._max_frame_records = max_frame_records

    @property
    def end_seq(self) -> int:
        """Number of the next frame to be built."""
        return self.base_seq + len(self.frames)

    @property
    def end_txid(self) -> int:
        """First transaction id of the next frame to be built."""
        return self.waiting[0].transaction_id if self.waiting else self.next_txid

    def add(self, entries: Sequence[AppendEntry]) -> int:
        """Number the entries; returns the bytes of their wire records."""
        txid = self.next_txid
        size_bytes = _RECORD_HEAD_BYTES * len(entries)
        for entry in entries:
            entry.transaction_id = txid
            txid += 1
            size_bytes += len(entry.tail)
        self.next_txid = txid
        self.waiting += entries
        return size_bytes

    def build(self) -> Frame:
        """Make the next frame of what waits: up to the limits, at least one record (which may be larger)."""
        waiting = self.waiting
        parts: list[bytes] = []
        add = parts.append
        room = self._max_frame_bytes
        count = 0
        for entry in waiting:
            tail = entry.tail
            room -= _RECORD_HEAD_BYTES + len(tail)
            if room < 0 and count:
                break
            add(_PACK_TXID(entry.transaction_id))
            add(entry.req_id)
            add(tail)
            count += 1
            if count == self._max_frame_records:
                break
        if count == len(waiting):
            taken, self.waiting = waiting, []
        else:
            taken, self.waiting = waiting[:count], waiting[count:]
        frame = Frame(self.end_seq, taken, b"".join(parts))
        self.frames.append(frame)
        self.retained_bytes += len(frame.wire_records)
        return frame

    def get(self, seq: int) -> Frame:
        return self.frames[seq - self.base_seq]

    def find(self, txid: int) -> Frame | None:
        """The kept frame that holds `txid`."""
        if not self.frames or not self.frames[0].first <= txid <= self.frames[-1].last:
            return None
        return self.frames[bisect_right(self.frames, txid, key=lambda frame: frame.first) - 1]

    def drop_first(self) -> None:
        frame = self.frames.popleft()
        self.base_seq += 1
        self.retained_bytes -= len(frame.wire_records)
