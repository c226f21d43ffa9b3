"""Opening the log of a partition (docs/storage-files.md; docs/safety.md, C2).

*Certain* is the highest TXID known to have been synced: the maximum of the local low-water mark, the synced
mark of the sidecar, the last index checkpoint, and everything before the newest segment. What is damaged or
missing at or below it refuses the partition and changes nothing on the disk. Above it a broken record is a
torn tail and is cut, unless a valid later record follows: then bytes in the middle have changed, and the
partition is refused too. One thing is let through: a broken record with a whole sector of zeros, followed by
valid ones, all above *certain*, is what a power loss leaves of a job that was never acknowledged, because
sectors reach the disk in any order.

Only the newest segment is scanned, from the last index entry that is known to be on the disk; if that entry
is not usable, from the one a checkpoint earlier, and so on down to the beginning. Older segments are checked
by their last record. What is found above *certain* is written again with the same bytes before the sync:
after a sync that failed, pages look clean that never reached the disk, and only a fresh write makes a sync
mean something.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from waltz_storage.engine import layout
from waltz_storage.engine.errors import PartitionDamagedError
from waltz_storage.engine.files import File, FileSystem, join, write_fully
from waltz_storage.engine.layout import CHECKPOINT_INTERVAL, HEADER_SIZE, INDEX_ENTRY_SIZE, SegmentHeader
from waltz_storage.engine.scan import (
    CHUNK_SIZE,
    Scan,
    SearchGivenUpError,
    find_later_record,
    record_end,
    scan,
    unwritten_sector,
)
from waltz_storage.engine.segment import Segment, file_size, read_index_entry, sync_or_fail


class LogIdentity(NamedTuple):
    """Whose log it is, for headers."""

    cluster_key: UUID
    partition_id: int
    now_ms: int

    def header(self, first_txid: int) -> SegmentHeader:
        """Header of a new segment."""
        return SegmentHeader(
            layout.FORMAT_VERSION, self.now_ms, self.cluster_key, self.partition_id, first_txid
        )


def open_log(
    fs: FileSystem, directory: str, identity: LogIdentity, certain: int, newest_txid: int
) -> list[Segment]:
    """All segments in order, the last one writable; what they hold is durable when this returns.

    `certain`: local low-water mark or synced mark, whichever is higher. `newest_txid`: a segment that
    begins there, or later, is known to exist; -1 when none is. Raises `PartitionDamagedError` without
    having changed record bytes; `OSError` from the disk.
    """
    segments = _list_segments(fs, directory, identity)
    if (segments[-1].first_txid if segments else -1) < newest_txid:
        raise _damaged(identity, f"the segment that begins with transaction {newest_txid} is missing")
    if not segments:
        if certain >= 0:
            raise _damaged(identity, f"no segment is left, but transaction {certain} was synced")
        return [Segment.create(fs, directory, identity.header(0))]
    if segments[0].first_txid != 0:
        raise _damaged(identity, f"transactions 0 to {segments[0].first_txid - 1} are missing")
    try:
        for older, newer in pairwise(segments):
            _check_older(fs, older, newer.first_txid, identity)
        newest = segments[-1]
        _recover_newest(fs, newest, identity, max(certain, newest.first_txid - 1))
        sync_or_fail(lambda: fs.sync_dir(directory), directory)
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    return segments


def _damaged(identity: LogIdentity, text: str) -> PartitionDamagedError:
    return PartitionDamagedError(f"partition {identity.partition_id} is damaged: {text}")


def _list_segments(fs: FileSystem, directory: str, identity: LogIdentity) -> list[Segment]:
    names = sorted(fs.listdir(directory))
    stems = [name[:-4] for name in names if name.endswith(layout.DATA_SUFFIXES)]
    orphans = [n for n in names if n.endswith(layout.INDEX_SUFFIX) and n[:-4] not in stems]
    for name in orphans:  # left when a node died between creating the two files of a segment
        path = join(directory, name)
        if file_size(fs, path) > HEADER_SIZE:
            raise _damaged(identity, f"{path} has entries, but its data file is missing")
        fs.unlink(path)
        fs.sync_dir(directory)
    segments: list[Segment] = []
    data_names = [name for name in names if name.endswith(layout.DATA_SUFFIXES)]
    for name in data_names:
        segment = _read_segment(fs, directory, name, identity, newest=name == data_names[-1])
        if segment is not None:
            segments.append(segment)
    segments.sort(key=lambda segment: segment.first_txid)
    for older, newer in pairwise(segments):
        if older.first_txid == newer.first_txid:
            raise _damaged(
                identity, f"{older.data_path} and {newer.data_path} start with the same transaction"
            )
    return segments


def _read_segment(
    fs: FileSystem, directory: str, name: str, identity: LogIdentity, *, newest: bool
) -> Segment | None:
    """The segment behind a data file; `None` for one whose creation was interrupted or failed.

    It is removed at the end of the log. Between others it is left alone: whether one is missing there, they
    say.
    """
    data_path, index_path = join(directory, name), join(directory, name[:-4] + layout.INDEX_SUFFIX)
    raw = _head(fs, data_path)
    if len(raw) < HEADER_SIZE or not any(raw):
        if file_size(fs, data_path) > HEADER_SIZE or file_size(fs, index_path) > HEADER_SIZE:
            raise _damaged(identity, f"{data_path} has no header")
        for path in (index_path, data_path):
            if newest and fs.exists(path):
                fs.unlink(path)
                fs.sync_dir(directory)
        return None
    header = SegmentHeader.from_bytes(raw)
    _check_header(header, identity, data_path)
    index_raw = _head(fs, index_path)
    if len(index_raw) == HEADER_SIZE and any(index_raw):
        _check_header(SegmentHeader.from_bytes(index_raw), identity, index_path)
    return Segment(fs, directory, data_path, index_path, header.first_txid, header.first_txid, HEADER_SIZE)


def _check_header(header: SegmentHeader, identity: LogIdentity, path: str) -> None:
    if header.version != layout.FORMAT_VERSION:
        raise _damaged(identity, f"{path} has format version {header.version}")
    if header.cluster_key != identity.cluster_key:
        raise _damaged(identity, f"{path} belongs to another cluster ({header.cluster_key})")
    if header.partition_id != identity.partition_id:
        raise _damaged(identity, f"{path} belongs to partition {header.partition_id}")
    if header.first_txid < 0:
        raise _damaged(identity, f"{path} claims to begin with transaction {header.first_txid}")


def _head(fs: FileSystem, path: str) -> bytes:
    if not fs.exists(path):
        return b""
    file = fs.open(path, read_only=True)
    try:
        return file.pread(HEADER_SIZE, 0)
    finally:
        file.close()


def _ready_index(fs: FileSystem, segment: Segment, identity: LogIdentity) -> tuple[File, File, int]:
    """Open both files; a missing or headless index becomes an empty one. Returns the number of entries
    too."""
    fresh = not fs.exists(segment.index_path)
    if fresh:
        fs.open(segment.index_path, create=True).close()
    data, index = segment.files()
    raw = index.pread(HEADER_SIZE, 0)
    if len(raw) < HEADER_SIZE or not any(raw):
        index.truncate(0)
        write_fully(index, identity.header(segment.first_txid).to_bytes(), 0)
        index.sync()
    if fresh:
        fs.sync_dir(segment.directory)
    return data, index, max(0, (index.size() - HEADER_SIZE) // INDEX_ENTRY_SIZE)


def _check_older(fs: FileSystem, segment: Segment, next_first: int, identity: LogIdentity) -> None:
    """A complete segment: its last record must be there, and the next one not. Only a broken index is
    repaired.

    `next_first` is what the header of the next segment says, which has no checksum: nothing is done in
    steps up to it.
    """
    data, index, entries = _ready_index(fs, segment, identity)
    last, size = next_first - 1, data.size()
    end = -1
    if last < segment.first_txid + entries:
        end = record_end(data, read_index_entry(index, segment.first_txid, last), last, size)
    if end < 0:
        last_entry = min(last, segment.first_txid + entries - 1)
        start_txid, offset = _start_point(data, index, segment.first_txid, last_entry, size)
        found = scan(data, offset, start_txid, size, stop_txid=next_first)
        if found.next_txid != next_first:
            raise _damaged(
                identity, f"{segment.data_path}: transaction {found.next_txid} is missing or damaged"
            )
        # By its last entry the index of an older segment counts as whole.
        _write_index(segment, index, start_txid, found.offsets[:-1], last_entry)
        _write_index(segment, index, last, found.offsets[-1:], last)
        end = found.end
    if end < size and record_end(data, end, next_first, size) >= 0:
        raise _damaged(
            identity,
            f"{segment.data_path} has transaction {next_first}, with which the next one claims to begin",
        )
    segment.next_txid, segment.size = next_first, end
    segment.close()


def _start_point(data: File, index: File, first_txid: int, last_entry: int, size: int) -> tuple[int, int]:
    """(TXID, offset) to scan from: a record whose index entry was synced, or the beginning of the file.

    Given the last entry the file shows: we sync the index after entry 1000k and before 1000k + 1, 0.13.2
    after 1000k - 1 and before 1000k. So with 1000k + 1 in the file, 1000k - 1 and all before it are on the
    disk.
    """
    for txid in range(_newest_start(last_entry), first_txid - 1, -CHECKPOINT_INTERVAL):
        offset = read_index_entry(index, first_txid, txid)
        if record_end(data, offset, txid, size) >= 0:
            return txid, offset
    return first_txid, HEADER_SIZE


def _newest_start(last_entry: int) -> int:
    return (last_entry - 1) // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL - 1


def _recover_newest(fs: FileSystem, segment: Segment, identity: LogIdentity, certain: int) -> None:
    data, index, entries = _ready_index(fs, segment, identity)
    first, size = segment.first_txid, data.size()
    last_entry = first + entries - 1
    # Entry 1000k is written only after the sync that covers record 1000k - 1 has returned, by 0.13.2 and by
    # us.
    checkpoint = last_entry // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL - 1
    if first <= checkpoint:
        certain = max(certain, checkpoint)
    start_txid, offset = _start_point(data, index, first, last_entry, size)
    found = scan(data, offset, start_txid, size)
    if found.next_txid <= certain:
        raise _damaged(
            identity,
            f"{segment.data_path}: transaction {found.next_txid} is missing or damaged, {certain} was synced",
        )
    if found.end < size:
        _refuse_damage_in_the_middle(segment, data, found, size, identity)
    _adopt(segment, data, index, found, start_txid, last_entry, certain)


def _refuse_damage_in_the_middle(
    segment: Segment, data: File, found: Scan, size: int, identity: LogIdentity
) -> None:
    if unwritten_sector(data, found.end, size, found.next_txid):
        return
    what = f"{segment.data_path}: transaction {found.next_txid} is damaged"
    try:
        later = find_later_record(data, found.end, size, found.next_txid)
    except SearchGivenUpError as error:
        raise _damaged(identity, f"{what}, and whether valid ones follow is not known: {error}") from error
    if later >= 0:
        raise _damaged(identity, f"{what}, but valid ones follow at {later}")


def _adopt(
    segment: Segment, data: File, index: File, found: Scan, start_txid: int, last_entry: int, certain: int
) -> None:
    """Cut the torn tail, make the found records durable, then their index entries."""
    if found.end < data.size():
        data.truncate(found.end)
    write_fully(data, data.pread(HEADER_SIZE, 0), 0)
    uncertain = max(certain + 1, start_txid) - start_txid
    position = found.offsets[uncertain] if uncertain < len(found.offsets) else found.end
    while position < found.end:
        piece = data.pread(min(CHUNK_SIZE, found.end - position), position)
        write_fully(data, piece, position)
        position += len(piece)
    sync_or_fail(data.sync, segment.data_path)
    write_fully(index, index.pread(HEADER_SIZE, 0), 0)
    end = _entry_offset(segment, found.next_txid)
    if index.size() > end:
        index.truncate(end)
    _write_index(segment, index, start_txid, found.offsets, last_entry)
    segment.next_txid, segment.size = found.next_txid, found.end


def _write_index(
    segment: Segment, index: File, start_txid: int, offsets: array[int], last_entry: int
) -> None:
    """Entries from `start_txid` on, durably, in an index that shows `last_entry` as its last.

    A crash in between may leave any of the sectors of what is not synced, so the checkpoints are those of an
    append: a file shows 1000k + 1 only when everything up to 1000k is on the disk.
    """
    on_disk, txid = _newest_start(last_entry) + 1, start_txid
    if start_txid < on_disk - 1:  # what it shows is wrong
        index.truncate(_entry_offset(segment, start_txid))
        sync_or_fail(index.sync, segment.index_path)
        on_disk = start_txid - 1
    end = start_txid + len(offsets)
    while txid < end:
        checkpoint = -(-max(txid, on_disk + 1) // CHECKPOINT_INTERVAL) * CHECKPOINT_INTERVAL
        stop = min(end, checkpoint + 1)
        some = offsets[txid - start_txid : stop - start_txid]
        write_fully(index, struct.pack(f">{len(some)}q", *some), _entry_offset(segment, txid))
        if stop < end:
            sync_or_fail(index.sync, segment.index_path)
        txid = stop
    sync_or_fail(index.sync, segment.index_path)


def _entry_offset(segment: Segment, txid: int) -> int:
    return HEADER_SIZE + INDEX_ENTRY_SIZE * (txid - segment.first_txid)
