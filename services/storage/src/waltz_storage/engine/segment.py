"""One segment: a data file and its index (docs/storage-files.md).

Invariants:

* Only the newest segment of a partition is written, always at its end, never in place (C4: bytes that were
  cut cannot return under a new record).
* An index entry is written only after the record it points at has been synced. So whatever the index says was
  durable, and release 0.13.2, which starts its scan from the index, never starts from a record that was lost.
* The index is synced after the entry of every TXID divisible by 1000 and before any entry after it: that is
  where 0.13.2 starts its scan. (It syncs after ...999 itself and may so meet an entry that is not on the
  disk.)
* `next_txid` and `size` speak of synced records only.

Crash order of `append`: data written, data synced, index written (synced at a checkpoint). Of
`create`: index file with header synced, data file with header synced, directory synced. Of `cut`:
index cut and synced, data cut and synced. Of `delete`: index unlinked, directory synced, data unlinked,
directory synced; so an index without its data file never comes from us.

A process without file descriptors (`OutOfResourcesError`) has failed at nothing: `create` takes
its files back, `append` and `cut` have not begun, `delete` continues where it was when it is
called again.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate

from waltz_storage.engine import layout
from waltz_storage.engine.errors import (
    DiskWriteError,
    OutOfResourcesError,
    PartitionDamagedError,
    PartitionFailedError,
    RecordDamagedError,
)
from waltz_storage.engine.files import (
    OUT_OF_RESOURCES,
    File,
    FileSystem,
    join,
    write_fully,
    write_parts_fully,
)
from waltz_storage.engine.layout import SegmentHeader
from waltz_storage.engine.scan import record_end, scan

_I64 = struct.Struct(">q")


class Segment:
    """Data file plus index. `first_txid .. next_txid - 1` are stored and synced."""

    __slots__ = (
        "_data",
        "_data_synced",
        "_fs",
        "_index",
        "_index_synced",
        "_unindexed",
        "data_path",
        "directory",
        "first_txid",
        "index_path",
        "next_txid",
        "size",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        data_path: str,
        index_path: str,
        first_txid: int,
        next_txid: int,
        size: int,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.data_path = data_path
        self.index_path = index_path
        self.first_txid = first_txid
        self.next_txid = next_txid
        self.size = size
        self._data: File | None = None
        self._index: File | None = None
        self._unindexed: list[int] = []
        """Offsets of the newest records, whose index entries have not been written yet."""
        self._data_synced = self._index_synced = False
        """Nothing was written to the file since its last sync here; whoever opens the log may have."""

    @classmethod
    def create(cls, fs: FileSystem, directory: str, header: SegmentHeader) -> Segment:
        """Make an empty segment whose files and names are durable.

        `DiskWriteError` when a write failed (a later try starts over), `OutOfResourcesError`
        when a file or the directory could not be opened (the same, but the directory is to be synced before
        anything else is done with the log: the names of what was taken back may still be there),
        `PartitionFailedError` when a sync failed, `PartitionDamagedError` when a file of that
        name already holds something.
        """
        stem = join(directory, layout.segment_name(header.first_txid))
        segment = cls(
            fs,
            directory,
            stem + layout.DATA_SUFFIXES[0],
            stem + layout.INDEX_SUFFIX,
            header.first_txid,
            header.first_txid,
            layout.HEADER_SIZE,
        )
        try:
            segment._index = _create_with_header(fs, segment.index_path, header)
            segment._data = _create_with_header(fs, segment.data_path, header)
            sync_or_fail(lambda: fs.sync_dir(directory), directory)
        except OSError as error:
            segment.discard()
            if error.errno in OUT_OF_RESOURCES:
                raise OutOfResourcesError(f"{segment.data_path}: {error.strerror}") from error
            raise DiskWriteError(f"{segment.data_path}: {error.strerror}") from error
        except OutOfResourcesError:
            segment.discard()
            raise
        except BaseException:
            segment.close()
            raise
        return segment

    def discard(self) -> None:
        """Best effort: the names of a failed creation, which would lie between others once the log rolls
        elsewhere."""
        files = ((self.data_path, self._data), (self.index_path, self._index))
        ours = [path for path, file in files if file is not None]  # known to be empty without another look
        self.close()
        try:
            for path, _ in files:
                if path in ours or (
                    self._fs.exists(path) and file_size(self._fs, path) <= layout.HEADER_SIZE
                ):
                    self._fs.unlink(path)
            self._fs.sync_dir(self.directory)
        except (OSError, OutOfResourcesError):
            pass  # opening the partition copes with them too

    @property
    def is_open(self) -> bool:
        """True while the two files are open."""
        return self._data is not None

    def files(self) -> tuple[File, File]:
        """Data and index file, opened when needed. `OutOfResourcesError` when they cannot be opened
        now."""
        data, index = self._data, self._index
        if data is None or index is None:
            try:
                data = self._data = self._fs.open(self.data_path)
                index = self._index = self._fs.open(self.index_path)
            except OSError as error:
                self.close()
                if error.errno in OUT_OF_RESOURCES:
                    raise OutOfResourcesError(f"{self.data_path}: {error.strerror}") from error
                raise
            except BaseException:
                self.close()
                raise
        return data, index

    def close(self) -> None:
        """Close both files without syncing."""
        data, self._data = self._data, None
        index, self._index = self._index, None
        for file in (data, index):
            if file is not None:
                file.close()

    def sync(self) -> None:
        """Sync the index, then the data, each if there is anything to sync. `OSError` when it failed."""
        self.write_index()
        if self._index_synced and self._data_synced:
            return
        data, index = self.files()
        if not self._index_synced:
            index.sync()
            self._index_synced = True
        if not self._data_synced:
            data.sync()
            self._data_synced = True

    def append(self, parts: Sequence[bytes], sizes: Sequence[int], *, index_later: bool = False) -> None:
        """Write disk records and make them durable. `index_later`: their index entries stay in memory until
        `write_index`, which the caller sees to, or the next checkpoint.

        `DiskWriteError`: nothing was added and everything written was taken back.
        `PartitionFailedError`: a sync failed; what is on the disk is not known beyond `size`.
        """
        data, index = self._data, self._index
        if data is None or index is None:
            data, index = self.files()
        start = self.size
        self._data_synced = self._index_synced = False
        try:
            write_parts_fully(data, parts, start)
        except OSError as error:
            raise self._taken_back(error) from error
        try:
            data.sync()
        except OSError as error:
            raise self._sync_failed(error) from error
        offsets = list(accumulate(sizes, initial=start))
        end = offsets.pop()
        next_txid = self.next_txid + len(offsets)
        # Entries wait at most until the next checkpoint.
        if index_later and (next_txid - 1) % layout.CHECKPOINT_INTERVAL >= len(offsets):
            self._unindexed += offsets
        else:
            try:
                self._write_index(index, self._unindexed + offsets)
            except OSError as error:
                raise self._taken_back(error) from error
            self._unindexed.clear()
        self._data_synced = True
        self.next_txid = next_txid
        self.size = end

    def write_index(self) -> None:
        """Write the index entries that are kept in memory. `OSError`: they still are."""
        if self._unindexed:
            _, index = self.files()
            self._index_synced = False
            self._write_index(index, self._unindexed)
            self._unindexed.clear()

    @property
    def _index_end(self) -> int:
        """The first record without an entry in the file."""
        return self.next_txid - len(self._unindexed)

    def _write_index(self, index: File, offsets: list[int]) -> None:
        """Entries for the records from `_index_end` on, synced after each TXID divisible by 1000."""
        first = self._index_end
        start = 0
        while start < len(offsets):
            checkpoint = -(-(first + start) // layout.CHECKPOINT_INTERVAL) * layout.CHECKPOINT_INTERVAL
            stop = min(len(offsets), checkpoint - first + 1)
            raw = struct.pack(f">{stop - start}q", *offsets[start:stop])
            write_fully(index, raw, self._index_offset(first + start))
            if first + stop - 1 == checkpoint:
                try:
                    index.sync()
                except OSError as error:
                    raise self._sync_failed(error) from error
            start = stop

    def _taken_back(self, cause: OSError) -> DiskWriteError | PartitionFailedError:
        """Cut both files back to what is synced; the error says whether that worked."""
        try:
            self._cut_files(self.next_txid, self.size)
        except OSError as error:
            return self._sync_failed(error)
        return DiskWriteError(f"{self.data_path}: {cause.strerror}")

    def _sync_failed(self, cause: OSError) -> PartitionFailedError:
        """After a failed sync: best effort to drop what it left in memory, so that no restart takes it for
        real."""
        try:
            self._cut_files(self.next_txid, self.size, sync=False)
        except OSError:
            pass  # the first error is the one to report
        return PartitionFailedError(f"{self.data_path}: sync failed: {cause.strerror}")

    def cut(self, next_txid: int) -> None:
        """Keep only the records below `next_txid`.

        `PartitionDamagedError`, `OutOfResourcesError`: nothing was cut. `OSError`: how far it
        got is not known.
        """
        self.write_index()
        offset = self._end_before(next_txid)
        self._cut_files(next_txid, offset)
        self.next_txid = next_txid
        self.size = offset

    def _end_before(self, next_txid: int) -> int:
        """Where record `next_txid - 1` ends. The index is not believed: a wrong entry would cut at a wrong
        byte."""
        if next_txid == self.first_txid:
            return layout.HEADER_SIZE
        data, index = self.files()
        last = next_txid - 1
        end = record_end(data, read_index_entry(index, self.first_txid, last), last, self.size)
        if end < 0:
            found = scan(data, layout.HEADER_SIZE, self.first_txid, self.size, stop_txid=next_txid)
            if found.next_txid != next_txid:
                raise PartitionDamagedError(f"{self.data_path}: transaction {found.next_txid} is damaged")
            end = found.end
        return end

    def _cut_files(self, next_txid: int, size: int, *, sync: bool = True) -> None:
        data, index = self.files()
        self._data_synced = self._index_synced = False
        index.truncate(self._index_offset(min(next_txid, self._index_end)))
        if sync:
            index.sync()
        data.truncate(size)
        if sync:
            data.sync()

    def delete(self) -> None:
        """Delete both files durably, index first. `OSError` when it failed.

        After an `OutOfResourcesError` this is to be called again, before anything else is done with
        the log.
        """
        self.close()
        self._unindexed.clear()
        for path in (self.index_path, self.data_path):
            with suppress(FileNotFoundError):  # the attempt before this one took it away
                self._fs.unlink(path)
            self._fs.sync_dir(self.directory)

    @property
    def log_bytes(self) -> int:
        """Bytes of both files, as far as they hold synced records."""
        return self.size + self._index_offset(self.next_txid)

    def _index_offset(self, txid: int) -> int:
        return layout.HEADER_SIZE + layout.INDEX_ENTRY_SIZE * (txid - self.first_txid)

    def offsets(self, txid: int, count: int) -> list[int]:
        """Data offsets of `count` consecutive records and of the byte after the last.

        All of them must be stored here. `RecordDamagedError` when the index makes no sense.
        """
        _, index = self.files()
        last = txid + count
        wanted = count if last == self.next_txid else count + 1
        from_file = min(wanted, max(0, self._index_end - txid))
        raw = index.pread(layout.INDEX_ENTRY_SIZE * from_file, self._index_offset(txid)) if from_file else b""
        if len(raw) < layout.INDEX_ENTRY_SIZE * from_file:
            raise RecordDamagedError(f"{self.index_path}: ends before transaction {last - 1}")
        found = list(struct.unpack(f">{from_file}q", raw))
        if from_file < wanted:
            start = txid + from_file - self._index_end
            found += self._unindexed[start : start + wanted - from_file]
        if wanted == count:
            found.append(self.size)
        previous = layout.HEADER_SIZE - layout.RECORD_FIXED_SIZE
        for offset in found:
            if offset < previous + layout.RECORD_FIXED_SIZE or offset > self.size:
                raise RecordDamagedError(f"{self.index_path}: wrong offset near transaction {txid}")
            previous = offset
        return found

    def read_raw(self, txid: int, max_count: int, max_bytes: int) -> tuple[bytes, int]:
        """Whole disk records from `txid` on, and how many: at least one, at most `max_count`, and one or no
        more than fit into `max_bytes`. Their bytes are not looked at."""
        data, _ = self.files()
        # Whatever was asked for, no more of the index is read than the bytes allow.
        most = max_bytes // layout.RECORD_FIXED_SIZE + 1
        offsets = self.offsets(txid, min(max_count, self.next_txid - txid, most))
        start = offsets[0]
        fitting = max(1, bisect_right(offsets, start + max_bytes) - 1)
        size = offsets[fitting] - start
        raw = data.pread(size, start)
        if len(raw) < size:
            raise RecordDamagedError(f"{self.data_path}: ends inside transaction {txid} or one after it")
        return raw, fitting


def file_size(fs: FileSystem, path: str) -> int:
    """Size of a file, 0 when there is none."""
    if not fs.exists(path):
        return 0
    file = fs.open(path, read_only=True)
    try:
        return file.size()
    finally:
        file.close()


def _create_with_header(fs: FileSystem, path: str, header: SegmentHeader) -> File:
    file = fs.open(path, create=True)
    try:
        if file.size() > layout.HEADER_SIZE:
            raise PartitionDamagedError(f"{path} exists already and is not empty")
        file.truncate(0)
        write_fully(file, header.to_bytes(), 0)
        sync_or_fail(file.sync, path)
    except BaseException:
        file.close()
        raise
    return file


def sync_or_fail(sync: Callable[[], None], what: str) -> None:
    """Run a sync; its failure is a `PartitionFailedError`, never something to try again."""
    try:
        sync()
    except OSError as error:
        raise PartitionFailedError(f"{what}: sync failed: {error.strerror}") from error


def read_index_entry(index: File, first_txid: int, txid: int) -> int:
    """Raw index entry, -1 when it is not there."""
    raw = index.pread(8, layout.HEADER_SIZE + layout.INDEX_ENTRY_SIZE * (txid - first_txid))
    if len(raw) < layout.INDEX_ENTRY_SIZE:
        return -1
    offset: int = _I64.unpack(raw)[0]
    return offset
