"""One segment file as a tool sees it: opened for reading only, never locked, never cut.

Nothing here depends on a running or a stopped node, nor on which segment of a partition the file is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from waltz_protocol.records import unpack_record
from waltz_protocol.types import Record
from waltz_storage.engine import layout
from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.files import File, FileSystem, OsFileSystem
from waltz_storage.engine.layout import SegmentHeader, disk_to_wire
from waltz_storage.engine.scan import record_end, scan


@dataclass(frozen=True, slots=True)
class SegmentView:
    """What a data file and its index hold. `offsets`: byte positions of the valid records, in order."""

    path: str
    header: SegmentHeader
    offsets: list[int]
    end: int  # byte after the last valid record
    file_bytes: int
    index: list[int] | None  # positions according to the index file; None without one

    @property
    def next_txid(self) -> int:
        """The transaction after the last valid one."""
        return self.header.first_txid + len(self.offsets)


def view_segment(path: str, *, fs: FileSystem | None = None) -> SegmentView:
    """Follow the valid records of a `.seg` file. `StorageStartError` when it is no segment; OSError
    passes."""
    disk = fs if fs is not None else OsFileSystem()
    if not path.endswith(layout.DATA_SUFFIXES):
        raise StorageStartError(f"{path} is no data file of a segment: its name must end with .seg")
    file = disk.open(path, read_only=True)
    try:
        raw, size = file.pread(layout.HEADER_SIZE, 0), file.size()
        if len(raw) < layout.HEADER_SIZE:
            raise StorageStartError(f"{path}: {size} bytes are too few for the header of a segment")
        header = SegmentHeader.from_bytes(raw)
        if header.version != layout.FORMAT_VERSION or header.first_txid < 0:
            raise StorageStartError(f"{path}: this is not the header of a segment")
        found = scan(file, layout.HEADER_SIZE, header.first_txid, size)
    finally:
        file.close()
    return SegmentView(
        path, header, list(found.offsets), found.end, size, index_entries(disk, index_path(path))
    )


def index_path(path: str) -> str:
    """The index file of a data file."""
    return path[:-4] + layout.INDEX_SUFFIX


def index_entries(fs: FileSystem, path: str) -> list[int] | None:
    """The positions an index file holds; `None` when there is no such file."""
    if not fs.exists(path):
        return None
    file = fs.open(path, read_only=True)
    try:
        raw = file.pread(max(0, file.size() - layout.HEADER_SIZE), layout.HEADER_SIZE)
    finally:
        file.close()
    count = len(raw) // layout.INDEX_ENTRY_SIZE
    return list(struct.unpack(f">{count}q", raw[: count * layout.INDEX_ENTRY_SIZE]))


def segment_records(
    view: SegmentView, first_txid: int, count: int | None = None, *, fs: FileSystem | None = None
) -> Iterator[Record]:
    """Valid records from `first_txid` on, at most `count`. Both checksums have been verified."""
    disk = fs if fs is not None else OsFileSystem()
    start = max(0, first_txid - view.header.first_txid)
    stop = len(view.offsets) if count is None else min(len(view.offsets), start + count)
    ends = [*view.offsets[1:], view.end]
    file = disk.open(view.path, read_only=True)
    try:
        for place in range(start, stop):
            raw = file.pread(ends[place] - view.offsets[place], view.offsets[place])
            yield unpack_record(disk_to_wire(raw, view.header.first_txid + place)[0])[0]
    finally:
        file.close()


def data_lengths(view: SegmentView) -> list[int]:
    """Bytes of data of each valid record."""
    ends = [*view.offsets[1:], view.end]
    return [end - offset - layout.RECORD_FIXED_SIZE for offset, end in zip(view.offsets, ends, strict=False)]


def verify_segment(
    view: SegmentView, first_txid: int | None = None, *, fs: FileSystem | None = None
) -> list[str]:
    """What is wrong in a segment, one line each: broken bytes, and places where the index leads elsewhere.

    `first_txid` limits it to the transactions from there on. Every place the index knows is looked at, also
    behind a broken record.
    """
    disk = fs if fs is not None else OsFileSystem()
    problems: list[str] = []
    start = view.header.first_txid
    low = start if first_txid is None else max(start, first_txid)
    index = view.index
    if view.end < view.file_bytes and low <= view.next_txid:
        problems.append(
            f"transaction {view.next_txid} is broken or torn at byte {view.end} of {view.file_bytes}"
        )
    if index is None:
        return [*problems, f"{index_path(view.path)} is missing"]
    file = disk.open(view.path, read_only=True)
    try:
        for txid in range(low, start + len(index)):
            problem = _index_problem(view, file, txid, index[txid - start])
            if problem is not None:
                problems.append(problem)
    finally:
        file.close()
    return problems


def _index_problem(view: SegmentView, file: File, txid: int, place: int) -> str | None:
    number = txid - view.header.first_txid
    if number < len(view.offsets):
        if place == view.offsets[number]:
            return None
        return f"transaction {txid} is at byte {view.offsets[number]}, the index says {place}"
    if txid == view.next_txid:  # the break itself, reported already
        return None
    if record_end(file, place, txid, view.file_bytes) >= 0:
        return None
    return f"transaction {txid} is not, or not whole, at byte {place} where the index says"
