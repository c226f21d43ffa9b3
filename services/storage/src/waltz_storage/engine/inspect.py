"""Looking at a storage directory without touching it, for tools: no lock, nothing written.

While the node runs the end of a log may move between two looks; everything below the marks stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from waltz_storage.engine import layout
from waltz_storage.engine.control_file import MAX_PARTITIONS
from waltz_storage.engine.errors import PartitionDamagedError, StorageStartError
from waltz_storage.engine.files import FileSystem, OsFileSystem, join
from waltz_storage.engine.journal.directory import dependence
from waltz_storage.engine.layout import ControlHeader, SegmentHeader
from waltz_storage.engine.partition_info import PartitionInfo, read_entry
from waltz_storage.engine.scan import scan
from waltz_storage.engine.segment_view import index_entries, index_path
from waltz_storage.engine.witness import inspect_files


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment. `problem` is `None` when every record follows its predecessor and carries its
    checksum."""

    path: str
    first_txid: int
    records: int
    data_bytes: int  # of valid records, header included
    file_bytes: int
    index_entries: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition: control entry (`None` when unreadable) and segments in order."""

    partition_id: int
    info: PartitionInfo | None
    segments: list[SegmentReport] = field(default_factory=list)
    problem: str | None = None

    @property
    def max_txid(self) -> int:
        """Highest TXID without a gap before it, -1 when empty."""
        expected = 0
        for segment in self.segments:
            if segment.first_txid != expected:
                break
            expected += segment.records
        return expected - 1


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    """A whole directory."""

    header: ControlHeader
    partitions: list[PartitionReport]

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, one line each; empty for a sound directory."""
        found = [p.problem for p in self.partitions if p.problem is not None]
        return found + [s.problem for p in self.partitions for s in p.segments if s.problem is not None]


def inspect_directory(
    directory: str,
    *,
    fs: FileSystem | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> DirectoryReport:
    """Read the control file and every record of every partition. `StorageStartError` if it is no
    directory of ours.

    `progress` is called with the number of partitions done and the number of all.
    """
    disk = fs if fs is not None else OsFileSystem()
    header, entries = inspect_control_file(directory, fs=disk)
    partitions = []
    for partition_id, entry in enumerate(entries):
        progress(partition_id, len(entries))
        info = entry if isinstance(entry, PartitionInfo) else None
        problem = entry if isinstance(entry, str) else None
        partitions.append(_inspect_partition(disk, directory, header, partition_id, info, problem))
    progress(len(entries), len(entries))
    return DirectoryReport(header, partitions)


def inspect_control_file(
    directory: str, *, fs: FileSystem | None = None
) -> tuple[ControlHeader, list[PartitionInfo | str]]:
    """Header and, per partition, the current entry or what is wrong with it. `StorageStartError`
    without one. Version 1: the files may lack what is in the node's journal; 2: a reset did not end; 3: they
    lack nothing, and the journal is being released."""
    disk = fs if fs is not None else OsFileSystem()
    path = join(directory, layout.CONTROL_FILE_NAME)
    if not disk.exists(path):
        raise StorageStartError(f"{directory}: there is no {layout.CONTROL_FILE_NAME} here")
    raw = _whole(disk, path)
    if len(raw) < layout.HEADER_SIZE:
        raise StorageStartError(f"{path} was never finished")
    found = dependence(raw)
    header = ControlHeader.from_bytes(raw)
    if found is not None:
        header = found.plain._replace(version=found.version)
    if not 0 < header.num_partitions <= MAX_PARTITIONS:
        raise StorageStartError(f"{path} is damaged: it names {header.num_partitions} partitions")
    entries: list[PartitionInfo | str] = []
    for partition_id in range(header.num_partitions):
        start = layout.HEADER_SIZE + layout.ENTRY_SIZE * partition_id
        try:
            entries.append(read_entry(partition_id, raw[start : start + layout.ENTRY_SIZE])[0])
        except PartitionDamagedError as error:
            entries.append(str(error))
    return header, entries


def _inspect_partition(
    fs: FileSystem,
    directory: str,
    header: ControlHeader,
    partition_id: int,
    info: PartitionInfo | None,
    problem: str | None,
) -> PartitionReport:
    path = join(directory, str(partition_id))
    segments: list[SegmentReport] = []
    if fs.is_dir(path):
        names = [name for name in fs.listdir(path) if name.endswith(layout.DATA_SUFFIXES)]
        segments = sorted(
            (_inspect_segment(fs, path, name, header, partition_id) for name in names),
            key=lambda s: s.first_txid,
        )
    report = PartitionReport(partition_id, info, segments, problem)
    last = segments[-1].first_txid + segments[-1].records - 1 if segments else -1
    if problem is None and info is not None:
        problem = inspect_files(fs, directory, partition_id, info)
    if problem is None and report.max_txid != last:
        problem = f"partition {partition_id}: transaction {report.max_txid + 1} is missing"
    if problem is None and info is not None and info.local_low_water_mark > last:
        problem = f"partition {partition_id}: ends at {last}, its local mark is {info.local_low_water_mark}"
    return PartitionReport(partition_id, info, segments, problem)


def _inspect_segment(
    fs: FileSystem, directory: str, name: str, header: ControlHeader, partition_id: int
) -> SegmentReport:
    path = join(directory, name)
    file = fs.open(path, read_only=True)
    try:
        raw, size = file.pread(layout.HEADER_SIZE, 0), file.size()
        if len(raw) < layout.HEADER_SIZE:
            return SegmentReport(path, -1, 0, size, size, 0, f"{path}: no header")
        head = SegmentHeader.from_bytes(raw)
        found = scan(file, layout.HEADER_SIZE, head.first_txid, size)
    finally:
        file.close()
    count = len(found.offsets)
    entries = index_entries(fs, index_path(path)) or []
    problem = None
    if (head.cluster_key, head.partition_id) != (header.cluster_key, partition_id):
        problem = f"{path}: belongs to partition {head.partition_id} of cluster {head.cluster_key}"
    elif found.end < size:
        problem = f"{path}: transaction {found.next_txid} is broken or torn at byte {found.end} of {size}"
    elif entries[:count] != list(found.offsets)[: len(entries)]:
        problem = f"{index_path(path)}: the index does not match the data"
    return SegmentReport(path, head.first_txid, count, found.end, size, len(entries), problem)


def _whole(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path, read_only=True)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
