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

from waltz_protocol.frames.blocks import stored_of_entry
from waltz_server.store.api import AppendEntry
from waltz_server.store.record_run import RecordRun

_PACK_TXID = struct.Struct(">q").pack
_RECORD_HEAD_BYTES = 24


class Frame:
    """The records of consecutive entries, and the entries until they are committed.

    `size_bytes`: of the wire records, whatever their form. Where replicas take both forms, both are kept.
    """

    __slots__ = ("count", "entries", "first", "last", "records", "seq", "size_bytes")

    def __init__(self, seq: int, entries: list[AppendEntry], records: RecordRun, size_bytes: int) -> None:
        self.seq = seq
        self.entries = entries
        self.count = len(entries)
        self.first = entries[0].transaction_id
        self.last = entries[-1].transaction_id
        self.records = records
        self.size_bytes = size_bytes


class FrameQueue:
    """Entries waiting to be framed, then frames. Owner: the store session."""

    def __init__(self, *, next_txid: int, max_frame_bytes: int, max_frame_records: int) -> None:
        self.next_txid = next_txid
        self.frames: deque[Frame] = deque()
        self.base_seq = 0
        self.end_seq = 0
        """Number of the next frame to be built."""
        self.retained_bytes = 0
        self.waiting: list[AppendEntry] = []
        """Entries that have an id and no frame yet."""
        self._waiting_bytes = 0
        self.stored = False
        """Frames are built as stored records: a replica takes these. The other form is made from them where
        somebody needs it."""
        self._max_frame_bytes = max_frame_bytes
        self._max_frame_records = max_frame_records

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
            entry.stored = None  # one that was made under an earlier id is another record
            txid += 1
            size_bytes += len(entry.tail)
        self.next_txid = txid
        self.waiting += entries
        self._waiting_bytes += size_bytes
        return size_bytes

    def build(self) -> Frame:
        """Make the next frame of what waits: up to the limits, at least one record (which may be larger)."""
        taken, left, size_bytes = self.waiting, list[AppendEntry](), self._waiting_bytes
        if size_bytes > self._max_frame_bytes or len(taken) > self._max_frame_records:
            count, size_bytes = self._fitting()
            taken, left = taken[:count], taken[count:]
        records = self._stored_of(taken) if self.stored else _wire_of(taken)
        frame = Frame(self.end_seq, taken, records, size_bytes)
        self.frames.append(frame)
        self.waiting = left  # not before it is in a frame: no entry is in neither
        self._waiting_bytes -= size_bytes
        self.end_seq += 1
        self.retained_bytes += size_bytes
        return frame

    def _fitting(self) -> tuple[int, int]:
        """How many of those that wait fit into a frame, and the bytes of their wire records."""
        count = size_bytes = 0
        for entry in self.waiting:
            size = _RECORD_HEAD_BYTES + len(entry.tail)
            if size_bytes + size > self._max_frame_bytes and count:
                break
            size_bytes += size
            count += 1
            if count == self._max_frame_records:
                break
        return count, size_bytes

    @staticmethod
    def _stored_of(entries: Sequence[AppendEntry]) -> RecordRun:
        """Each entry keeps its record, for the cache of those who read it."""
        records: list[bytes] = []
        for entry in entries:
            entry.stored = stored_of_entry(entry.transaction_id, entry.req_id, entry.tail)
            records.append(entry.stored)
        return RecordRun.of_records(entries[0].transaction_id, records)

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
        self.retained_bytes -= frame.size_bytes


def _wire_of(entries: Sequence[AppendEntry]) -> RecordRun:
    parts: list[bytes] = []
    add = parts.append
    for entry in entries:
        add(_PACK_TXID(entry.transaction_id))
        add(entry.req_id)
        add(entry.tail)
    return RecordRun.of_joined_wire(entries[0].transaction_id, len(entries), b"".join(parts))
