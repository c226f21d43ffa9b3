"""The records of one copy, read from its files behind the storage node's back."""

from __future__ import annotations

from collections.abc import Iterator

from waltz_storage.engine import layout
from waltz_storage.engine.files import FileSystem, join
from waltz_storage.engine.layout import SegmentHeader, disk_to_wire
from waltz_storage.engine.scan import scan


def iterate_records(
    directory: str, partition_id: int, first_txid: int = 0, *, fs: FileSystem
) -> Iterator[bytes]:
    """Wire records of a partition from `first_txid` up to the first one that is not there or not valid."""
    path = join(directory, str(partition_id))
    names = [name for name in fs.listdir(path) if name.endswith(layout.DATA_SUFFIXES)]
    expected = 0
    for name in sorted(names):
        file = fs.open(join(path, name), read_only=True)
        try:
            raw = file.pread(layout.HEADER_SIZE, 0)
            if len(raw) < layout.HEADER_SIZE or SegmentHeader.from_bytes(raw).first_txid != expected:
                return
            found = scan(file, layout.HEADER_SIZE, expected, file.size())
            ends = [*found.offsets[1:], found.end]
            for txid, (start, end) in enumerate(zip(found.offsets, ends, strict=False), expected):
                if txid >= first_txid:
                    yield disk_to_wire(file.pread(end - start, start), txid)[0]
            expected = found.next_txid
        finally:
            file.close()
