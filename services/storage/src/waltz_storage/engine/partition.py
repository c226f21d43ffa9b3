"""The log of one partition on this node (docs/protocol.md, servers and storage nodes; docs/safety.md, C).

Owner: whoever runs the partition's current job, one at a time. Attributes that are plain integers may be read
from another thread for metrics.

Invariants:

* `max_txid` covers synced records only; nothing else is ever shown (C1). Behind a journal it, the fence and
  the control entry may be ahead of the last commit while a job runs: other threads look at `public`.
* An Append request is taken whole or not at all. All requests of one call share one data sync.
* A full disk changes nothing (`free_space`): what is refused for want of space leaves no trace, also in the
  marks, and the partition continues on its own when there is room. Only a *sync* that finds none counts as
  failed.
* After a failed sync the partition is `failed`: it keeps what earlier syncs covered for reading, refuses
  everything else, and only a restart with a fresh look at the disk ends that (C3).
* Without file descriptors (`OutOfResourcesError`) nothing has failed. What that leaves undone (a roll
  taken back, records above `max_txid`) is finished before anything else is asked of the log
  (`require_running`).
* Crash order of `truncate`: local low-water mark lowered if it lies above (a mark above the log would
  be a trap), synced mark lowered and synced, segments deleted newest first with a directory sync each, the
  remaining one cut and synced (C4).
* The directory's witness names the newest segment and the fence (`_bear_witness`): before the fence
  counts, before the control entry changes, before a new segment takes records, before one is deleted. An
  append into the open one costs nothing.
* Behind a journal index entries and the mark of appends are written when the journal is about to be made in
  the files (`_write_behind`): each waited in memory for that anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, ParamSpec, TypeAlias, TypeVar

from waltz_storage.engine import layout
from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import (
    DiskWriteError,
    OutOfResourcesError,
    PartitionDamagedError,
    PartitionFailedError,
    RecordDamagedError,
    RequestRefusedError,
    StorageError,
)
from waltz_storage.engine.files import OUT_OF_RESOURCES, FileSystem
from waltz_storage.engine.free_space import NO_SPACE, FreeSpace
from waltz_storage.engine.layout import RecordBatch, disk_to_wire
from waltz_storage.engine.partition_info import PartitionInfo, Shown
from waltz_storage.engine.recovery import LogIdentity, open_log
from waltz_storage.engine.segment import Segment, sync_or_fail
from waltz_storage.engine.segment_list import SegmentList
from waltz_storage.engine.sidecar import Sidecar, fence_past
from waltz_storage.engine.witness import Facts, check_files, refuse_unknown

P = ParamSpec("P")
T = TypeVar("T")
WriteLater: TypeAlias = Callable[[Callable[[], None], int], None]  # `JournaledFiles.write_later`


class EngineSettings(NamedTuple):
    """Bounds of the engine."""

    segment_threshold_bytes: int = 1_000_000_000
    segment_cache_capacity: int = 5  # read-only segments per partition whose files stay open


class Partition:
    """One open partition. See the module for owner, invariants and crash order."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        partition_id: int,
        control: ControlFile,
        settings: EngineSettings,
        now_ms: Callable[[], int],
        room: FreeSpace,
        write_later: WriteLater | None = None,
    ) -> None:
        """Open the log and make what it holds durable.

        `PartitionDamagedError`, `PartitionFailedError`, `OSError`; nothing stays open then.
        """
        self.partition_id = partition_id
        self._fs = fs
        self._directory = directory
        self._control = control
        self._witness = control.witness
        self._settings = settings
        self._now_ms = now_ms
        self._room = room
        self._write_later = write_later
        self._behind = self._write_behind  # one object, by which the journal knows it again
        self._mark_waits = self._closed = False
        self._info = info = control.info(partition_id)
        self.failed: str | None = None
        self._public: Shown | None = None
        self._fence_limit: int | None = None  # a journal has failed, and what it held above is not durable
        self.damaged_reads, self.unreadable = 0, ""  # the second: why a read failed, for the log
        self._committed = -1
        self.unfinished = False  # files or records that are not of the log any longer may still be there
        expected = self._witness.expected(partition_id, info)
        if expected is not None:
            check_files(fs, directory, partition_id, expected)
        # Without a witness: whoever completed a set low-water mark had opened the log, which makes the first
        # segment.
        newest_txid = expected.newest_txid if expected is not None else min(info.session_id, 0)
        self._sidecar = Sidecar.open(fs, directory, partition_id)
        try:
            if self._sidecar.witnessed and info.session_id >= 0 and not self._witness.knows(partition_id):
                refuse_unknown(partition_id)
            self._sidecar.raise_fence(self._witness.fence(partition_id))
            synced = self._sidecar.synced_txid(info.session_id, info.sequence)
            certain = max(info.local_low_water_mark, synced)
            found = open_log(fs, directory, self._identity(), certain, newest_txid)
            self._segments = SegmentList(found, settings.segment_cache_capacity)
            self.max_txid = self._segments[-1].next_txid - 1
            if expected is not None:
                self._bear_witness()
            self._note_mark()
        except BaseException:
            self.close()
            raise

    def _identity(self) -> LogIdentity:
        return LogIdentity(self._control.header.cluster_key, self.partition_id, self._now_ms())

    @property
    def info(self) -> PartitionInfo:
        """The persisted marks and flags."""
        return self._info

    @property
    def durable_fence(self) -> int:
        """The highest session id that is fenced on the disk."""
        fence, completed = self._sidecar.fence_session_id, self._info.session_id
        if completed > fence:
            fence = completed
        return fence if self._fence_limit is None else min(fence, self._fence_limit)

    @property
    def public(self) -> Shown | None:
        """What others may be shown of it, whatever runs; with a journal that of the last commit, None before
        the first one. Any thread may ask."""
        return self._shown() if self._write_later is None else self._public

    def _shown(self) -> Shown:
        return Shown(self.max_txid, self.durable_fence, self._info)

    def publish(self) -> None:
        """All of it is durable: a commit of the journal has ended, and no job runs. Not what was hidden."""
        if self._write_later is not None and self._fence_limit is None:
            self._public = self._shown()

    def hide(self) -> None:
        """After a commit of the journal that failed: nothing that is not public is known to be durable."""
        shown = self.public or Shown(-1, -1, self._info)
        self.max_txid = min(self.max_txid, shown.max_txid)
        self._fence_limit = shown.fence
        self._info = shown.info

    def raise_fence(self, session_id: int) -> None:
        """Make the fence durable. `PartitionFailedError` when its sync failed."""
        if session_id > self.durable_fence:
            self.require_running()
            self._guarded(self._bear_witness, fence=session_id)
            self._guarded(self._sidecar.raise_fence, session_id)

    def _bear_witness(self, newest_txid: int | None = None, fence: int = -1) -> None:
        """The witness names the newest segment (that of the log, if none is given) and the fence, for the
        control entry as it is. Nothing is written if it does so already. Errors of `Witness.write`."""
        info = self._info
        newest = self._segments[-1].first_txid if newest_txid is None else newest_txid
        facts = Facts(info.session_id, info.sequence, max(fence, self._sidecar.fence_session_id), newest)
        if facts != self._witness.facts(self.partition_id, info):
            self._witness.write(self.partition_id, info, facts)
        self._sidecar.note_witness()

    def append(self, batches: Sequence[RecordBatch]) -> list[StorageError | None]:
        """Append requests in order, with one data sync for all that are taken; one result each.

        A request whose first TXID is not the next one is refused and changes nothing.
        """
        results: list[StorageError | None] = [None] * len(batches)
        first = expected = self.max_txid + 1
        taken: list[int] = []
        parts: list[bytes] = []
        sizes: list[int] = []
        for number, (first_txid, count, data, of_records) in enumerate(batches):
            if count and first_txid != expected:
                results[number] = RequestRefusedError(
                    f"transaction {first_txid} where {expected} was expected"
                )
            elif count:
                taken.append(number)
                parts.append(data)
                sizes += of_records
                expected += count
        if taken:
            try:
                self.require_running()
                self._append(parts, sizes)
                self.max_txid = expected - 1
                self._note_append(expected - first)
            except StorageError as error:
                for number in taken:
                    results[number] = error
        return results

    def _append(self, parts: list[bytes], sizes: list[int]) -> None:
        threshold = self._settings.segment_threshold_bytes
        segment = self._segments[-1]
        total = sum(sizes)
        # Data, index entries, and perhaps the headers of a new segment.
        self._room.take(total + layout.INDEX_ENTRY_SIZE * len(sizes) + 2 * layout.HEADER_SIZE * len(parts))
        if segment.size <= threshold and segment.size + total - sizes[-1] <= threshold:
            self._guarded(segment.append, parts, sizes, index_later=self._write_later is not None)
            return
        try:
            self._append_rolling(b"".join(parts), sizes)
        except DiskWriteError:
            self._cut_to_max_txid()  # also what earlier segments of this job took
            raise
        except OutOfResourcesError:
            self.unfinished = True
            raise

    def _append_rolling(self, data: bytes, sizes: list[int]) -> None:
        """The same over several segments: each is complete and synced before the next one exists."""
        threshold = self._settings.segment_threshold_bytes
        position = number = 0
        while number < len(sizes):
            segment = self._segments[-1]
            if segment.size > threshold and segment.next_txid > segment.first_txid:
                segment = self._roll(segment)
            first, start, size = number, position, segment.size
            # At least one record per segment, however small the threshold is.
            while number < len(sizes) and (size <= threshold or number == first):
                size += sizes[number]
                position += sizes[number]
                number += 1
            run, run_sizes = data[start:position], sizes[first:number]
            self._guarded(segment.append, [run], run_sizes)

    def _roll(self, full: Segment) -> Segment:
        self._guarded(sync_or_fail, full.sync, full.data_path)
        header = self._identity().header(full.next_txid)
        segment = self._guarded(Segment.create, self._fs, self._directory, header)
        self._segments.append(segment)
        try:
            self._guarded(self._bear_witness)
        except (DiskWriteError, OutOfResourcesError):
            self._segments.drop_newest().discard()
            raise
        self._segments.keep_open(full)
        return segment

    def truncate(self, keep: int) -> int:
        """Remove everything above `keep`; returns the resulting highest TXID. The marks stay unless they
        lie above."""
        self.require_running()
        keep = max(keep, -1)
        if keep >= self.max_txid:
            return self.max_txid
        self._committed = min(self._committed, keep)
        if self._info.local_low_water_mark > keep:
            self._set_info(lambda info: info._replace(local_low_water_mark=keep))
        self._write_mark(keep)  # before anything else changes: a full disk may refuse it
        self.max_txid = keep  # what is about to go is not shown any longer, whatever happens
        self._guarded(self._sidecar.sync)
        self._cut_to_max_txid()
        return self.max_txid

    def _cut_to_max_txid(self) -> None:
        """What is above goes; after an `OutOfResourcesError` it still has to."""
        self.unfinished = True
        self._guarded(self._cut_log, self.max_txid)
        self.unfinished = False

    def _cut_log(self, keep: int) -> None:
        left = [segment.first_txid for segment in self._segments if segment.first_txid <= keep + 1]
        self._bear_witness(max(left, default=self._segments[0].first_txid))
        while len(self._segments) > 1 and keep + 1 < self._segments[-1].first_txid:
            last = self._segments[-1]
            last.delete()
            self._segments.drop_newest()
        last = self._segments[-1]
        if last.next_txid - 1 > keep:
            last.cut(keep + 1)

    def set_low_water_mark(self, session_id: int, low_water_mark: int) -> None:
        """Start of a session: persist it with the given mark and this node's own maximum as local mark."""
        self.require_running()
        info, own = self._info, self.max_txid
        if own > low_water_mark:
            raise RequestRefusedError(
                f"low-water mark {low_water_mark} is below this node's last transaction {own}"
            )
        if info.session_id > session_id:
            raise RequestRefusedError(f"session {info.session_id} is persisted, {session_id} is older")
        if low_water_mark < info.low_water_mark:
            raise RequestRefusedError(
                f"low-water mark {low_water_mark} is below the persisted {info.low_water_mark}"
            )
        if own < info.local_low_water_mark:
            raise RequestRefusedError(
                f"last transaction {own} is below the local mark {info.local_low_water_mark}"
            )
        self._committed = min(self._committed, low_water_mark)
        self._guarded(sync_or_fail, self._segments[-1].sync, self._directory)
        self._set_info(
            lambda info: info._replace(
                session_id=session_id, low_water_mark=low_water_mark, local_low_water_mark=own
            )
        )
        self._note_mark()

    def set_flags(self, flag: int, value: bool) -> None:
        """Set or clear one flag of the control entry."""
        self._set_info(lambda info: info._replace(flags=info.flags | flag if value else info.flags & ~flag))
        if self.failed is None:
            self._note_mark()

    def read(self, first_txid: int, max_count: int, max_bytes: int) -> list[bytes]:
        """Consecutive wire records from `first_txid`: fewer than `max_count` when `max_bytes` is
        reached.

        At least one when there is one; empty for a start that is not stored. Every record checksum is
        verified: `RecordDamagedError` when the first one is bad, `OutOfResourcesError` when it
        cannot be opened now.
        """
        records: list[bytes] = []

        def take(raw: bytes, txid: int, _count: int) -> int:
            found = disk_to_wire(raw, txid)
            records.extend(found)
            return len(found)

        self._read_segments(first_txid, first_txid + max(max_count, 0), max_bytes, take)
        return records

    def read_stored(self, first_txid: int, last_txid: int, max_bytes: int) -> tuple[int, list[bytes]]:
        """How many records in disk form from `first_txid` on, and their bytes in pieces; none above
        `last_txid`. Bounds and errors as for `read`, but no checksum is looked at: the reader does."""
        pieces: list[bytes] = []

        def take(raw: bytes, _txid: int, count: int) -> int:
            pieces.append(raw)
            return count

        return self._read_segments(first_txid, last_txid + 1, max_bytes, take), pieces

    def _read_segments(
        self, first_txid: int, stop: int, max_bytes: int, take: Callable[[bytes, int, int], int]
    ) -> int:
        """Give `take` the bytes of whole records, the first one's id and their count, segment by segment, as
        long as it takes all of them; how many it has taken."""
        if first_txid < 0:
            return 0
        txid, stop = first_txid, min(stop, self.max_txid + 1)
        while txid < stop and max_bytes > 0:
            segment = self._segments.find(txid)
            wanted = min(stop, segment.next_txid) - txid
            try:
                raw, count = segment.read_raw(txid, wanted, max_bytes)
                if txid > first_txid and len(raw) > max_bytes:
                    break  # at least one record in all, not of each segment
                found = take(raw, txid, count)
            except (OSError, StorageError) as error:
                out_of_resources = isinstance(error, OutOfResourcesError) or (
                    isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES
                )
                self.damaged_reads += not out_of_resources
                self.unreadable = str(error)
                if txid > first_txid:
                    break
                if out_of_resources:
                    text = f"partition {self.partition_id} cannot be read now: {error}"
                    raise OutOfResourcesError(text) from error
                raise RecordDamagedError(f"partition {self.partition_id}: {error}") from error
            finally:
                self._segments.keep_open(segment)
            txid += found
            if found < wanted:
                break
            max_bytes -= len(raw)
        return txid - first_txid

    @property
    def committed(self) -> int:
        """Up to here this copy has everything and knows that it is committed; -1 for nothing."""
        return self.committed_of(self._info, self.max_txid)

    def committed_of(self, info: PartitionInfo, max_txid: int) -> int:
        """The same for a control entry and a last transaction that it has had."""
        return min(max(info.low_water_mark, self._committed), max_txid)

    def note_committed(self, txid: int) -> None:
        """The session whose requests run now has everything up to `txid` committed. In memory only: nothing
        that has to last depends on it."""
        self._committed = max(self._committed, txid)

    @property
    def log_bytes(self) -> int:
        """Bytes of all segments, data and index."""
        return self._segments.log_bytes

    @property
    def num_segments(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def prepare_reset(self) -> None:
        """Before the control entry is reset: fence raised, mark not to be taken for one of a later life.
        Durable."""
        fence = fence_past(self._info.session_id)
        self._guarded(self._segments[-1].write_index)
        self._guarded(self._bear_witness, fence=fence)
        self._guarded(self._sidecar.raise_fence, fence)
        self._write_mark(-1)
        self._guarded(self._sidecar.sync)

    def sync_and_close(self) -> None:
        """Orderly end: index, data and mark are on the disk, then everything is closed."""
        try:
            if self.failed is None:
                self._guarded(sync_or_fail, self._segments[-1].sync, self._directory)
                if self._mark_waits:
                    self._note_mark()
                self._guarded(self._sidecar.sync)
        finally:
            self.close()

    def close(self) -> None:
        """Close all files without syncing; what waits to be written is not."""
        self._closed = True
        for segment in getattr(self, "_segments", ()):
            segment.close()
        self._sidecar.close()

    def _set_info(self, change: Callable[[PartitionInfo], PartitionInfo]) -> None:
        if self.failed is None and change(self._info).session_id >= 0:  # what a failed one has is not known
            self._guarded(self._bear_witness)
        self._info = self._guarded(self._control.update, self.partition_id, change)

    def _write_mark(self, txid: int) -> None:
        self._mark_waits = False
        self._guarded(self._sidecar.write_mark, self._info.session_id, self._info.sequence, txid)

    def _note_mark(self) -> None:
        """The mark of what is synced. A disk without room for it costs certainty about damage later, nothing
        else: the older mark is below it, or speaks of another control entry and does not count."""
        with contextlib.suppress(DiskWriteError):
            self._write_mark(self.max_txid)

    def _note_append(self, count: int) -> None:
        """The mark moves by so many records, now or with the next writes in the files."""
        if self._write_later is None:
            self._note_mark()
            return
        self._mark_waits = True
        self._write_later(self._behind, layout.INDEX_ENTRY_SIZE * count)

    def _write_behind(self) -> None:
        """What appends have left to be written; the journal has everything up to `max_txid`."""
        if self.failed is None and not self._closed:
            with contextlib.suppress(StorageError):
                self._guarded(self._segments[-1].write_index)
                if self._mark_waits:
                    self._note_mark()

    def require_running(self) -> None:
        """`PartitionFailedError` when a failed sync has taken the partition out of service.

        Finishes what a lack of file descriptors had stopped; `OutOfResourcesError` when there is none
        yet.
        """
        if self.failed is not None:
            raise PartitionFailedError(f"partition {self.partition_id} is out of service: {self.failed}")
        if self.unfinished:
            self._guarded(sync_or_fail, lambda: self._fs.sync_dir(self._directory), self._directory)
            self._cut_to_max_txid()

    def _guarded(self, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a disk action; a failed sync, damage or an error of unknown effect takes the partition out of
        service."""
        try:
            return action(*args, **kwargs)
        except DiskWriteError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_SPACE:
                self._room.ran_out(error.__cause__)
            raise
        except (PartitionFailedError, PartitionDamagedError) as error:
            self.failed = self.failed or str(error)
            raise
        except OSError as error:
            self.failed = self.failed or f"{error.strerror or error}"
            raise PartitionFailedError(f"partition {self.partition_id}: {self.failed}") from error
