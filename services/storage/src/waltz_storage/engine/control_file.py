"""The control file `waltz-storage.ctl` (docs/storage-files.md).

Owner of every control entry: all changes go through `ControlFile.update` and `ControlFile.reset`,
which read, modify and write under one lock, so that flags (admin port) and marks (storage port) never
overwrite each other.

Invariants:

* The file is locked (bytes 0..127) before the first byte is read and until `close`.
* An update is durable when it returns; memory changes only after the sync.
* The reset of a damaged entry first takes away the id it carries and writes the right one last: whatever the
  structs hold (they may be another partition's), it stays damaged until it is virgin.
* Any other reset first makes the *other* struct the newest virgin one, so that at every point a reader sees
  either the old entry or the virgin one; its last state is the one 0.13.2 leaves.
* An interrupted first initialisation is recognised (header not usable, no segment anywhere) and repeated;
  with segments present it is damage and the node does not start.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from waltz_storage.engine import layout
from waltz_storage.engine.errors import (
    DirectoryLockedError,
    DiskWriteError,
    NotAssignedError,
    PartitionDamagedError,
    PartitionFailedError,
    StorageStartError,
)
from waltz_storage.engine.files import File, FileSystem, join, write_fully
from waltz_storage.engine.free_space import NO_SPACE
from waltz_storage.engine.journal.directory import (
    Dependence,
    abandon,
    dependence,
    depending,
    resetting,
    settle,
    write_plain,
    write_releasing,
)
from waltz_storage.engine.layout import ControlHeader
from waltz_storage.engine.partition_info import (
    PartitionInfo,
    entry_id,
    next_sequence,
    read_entry,
    virgin,
    virgin_entry,
)
from waltz_storage.engine.shared_sync import PartitionLocks, SharedSync
from waltz_storage.engine.witness import Witness

MAX_PARTITIONS = 1 << 20


class ControlFile:
    """All partition entries of a storage directory. Thread safe."""

    def __init__(self, file: File, header: ControlHeader, witness: Witness) -> None:
        self._file = file
        self.witness = witness
        self.header = header
        self._locks = PartitionLocks()
        self._syncs = SharedSync(file.sync)
        self._entries: dict[int, tuple[PartitionInfo, int]] = {}
        self.damaged: dict[int, str] = {}
        self.lost: Dependence | None = None
        """No node opens the directory: it depends on a journal that cannot be replayed, or on a reset."""

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        cluster_key: UUID,
        num_partitions: int,
        now_ms: Callable[[], int],
        journal_directory: str | None = None,
    ) -> ControlFile:
        """Lock, replay the journal of a crash, initialise if new, check key and partition count.
        `StorageStartError` on any mistake."""
        file = _open_locked(fs, directory, create=True)
        try:
            header = _read_header(_head(fs, directory, file, journal_directory))
            if header is None:
                refuse_when_used(
                    fs, directory, "its control file is missing, cut short or was never finished"
                )
            else:
                _check_cluster(directory, header, cluster_key, num_partitions)
            if header is None or not (_complete(file, header) or has_segments(fs, directory)):
                header = ControlHeader(layout.FORMAT_VERSION, now_ms(), cluster_key, num_partitions)
                _initialise(file, header)
            fs.sync_dir(directory)
            return cls._loaded(fs, directory, file, header)
        except BaseException:
            file.close()
            raise

    @classmethod
    def open_existing(
        cls,
        fs: FileSystem,
        directory: str,
        journal_directory: str | None = None,
        *,
        without_journal: bool = False,
    ) -> ControlFile:
        """Lock and load whatever cluster the file belongs to (offline tools). What a journal holds is brought
        into the files first; `without_journal`: where that is not possible the directory is loaded as it is,
        with `lost`, and stays refused until `end_reset`."""
        file = _open_locked(fs, directory, create=False)
        try:
            lost = None
            try:
                raw = _head(fs, directory, file, journal_directory)
            except StorageStartError:
                lost = dependence(file.pread(layout.HEADER_SIZE, 0))
                if lost is None or not without_journal:
                    raise
                raw = lost.plain.to_bytes()
            header = _read_header(raw)
            if header is None:
                raise StorageStartError(
                    f"{directory}: {layout.CONTROL_FILE_NAME} is damaged or was never finished"
                )
            control = cls._loaded(fs, directory, file, header)
            control.lost = lost
            return control
        except BaseException:
            file.close()
            raise

    @classmethod
    def _loaded(cls, fs: FileSystem, directory: str, file: File, header: ControlHeader) -> ControlFile:
        control = cls(file, header, Witness.open(fs, directory, header.num_partitions))
        try:
            control._load()
        except BaseException:
            control.witness.close()
            raise
        return control

    def _load(self) -> None:
        header = self.header
        size = layout.HEADER_SIZE + layout.ENTRY_SIZE * header.num_partitions
        raw = self._file.pread(size, 0)
        for partition_id in range(header.num_partitions):
            offset = layout.HEADER_SIZE + layout.ENTRY_SIZE * partition_id
            try:
                self._entries[partition_id] = read_entry(
                    partition_id, raw[offset : offset + layout.ENTRY_SIZE]
                )
            except PartitionDamagedError as error:
                self.damaged[partition_id] = str(error)
        # The same bytes once more: what a failed sync left in memory only becomes durable (or fails loudly)
        # now.
        write_fully(self._file, raw, 0)
        self._file.sync()

    @property
    def num_partitions(self) -> int:
        """Partition count of the cluster."""
        return self.header.num_partitions

    def info(self, partition_id: int) -> PartitionInfo:
        """Current entry. `NotAssignedError` out of range, `PartitionDamagedError` when
        unreadable."""
        try:
            return self._entries[partition_id][0]
        except KeyError:
            raise self._missing(partition_id) from None

    def assigned(self) -> list[int]:
        """Ids of all assigned partitions, ascending."""
        return sorted(pid for pid, (info, _) in self._entries.items() if info.assigned)

    def update(self, partition_id: int, change: Callable[[PartitionInfo], PartitionInfo]) -> PartitionInfo:
        """Read, change, write to the other struct, sync. Returns the new current entry.

        `DiskWriteError` when the disk had no room for it, `PartitionFailedError` when the write
        or its sync failed otherwise: the entry in memory is then the old one.
        """
        with self._locks.of(partition_id):
            if partition_id not in self._entries:
                raise self._missing(partition_id)
            current, place = self._entries[partition_id]
            changed = change(current)._replace(sequence=next_sequence(current.sequence))
            self.witness.carry(partition_id, current, changed)
            self._write_struct(partition_id, 1 - place, changed)
            self._entries[partition_id] = (changed, 1 - place)
            return changed

    def reset(self, partition_id: int) -> PartitionInfo:
        """Back to the virgin state; every prefix of the writes leaves the old (or damaged) or the virgin
        entry."""
        with self._locks.of(partition_id):
            if partition_id in self.damaged:
                return self._make_anew(partition_id)
            if partition_id not in self._entries:
                raise self._missing(partition_id)
            current, place = self._entries[partition_id]
            self._write_struct(partition_id, 1 - place, virgin(next_sequence(current.sequence)))
            self._entries[partition_id] = (virgin(next_sequence(current.sequence)), 1 - place)
            self._write_struct(partition_id, place, virgin(-1))
            self._write_struct(partition_id, 1 - place, virgin(0))
            self._entries[partition_id] = (virgin(0), 1 - place)
            return virgin(0)

    def _make_anew(self, partition_id: int) -> PartitionInfo:
        self._write(partition_id, 0, entry_id(-1))
        self._write(
            partition_id, layout.ENTRY_PREFIX_SIZE, virgin_entry(partition_id)[layout.ENTRY_PREFIX_SIZE :]
        )
        self._write(partition_id, 0, entry_id(partition_id))
        self._entries[partition_id] = (virgin(0), 1)
        del self.damaged[partition_id]
        return virgin(0)

    def depend(self, journal_id: UUID, files: int) -> None:
        """From here on the directory cannot be opened without this journal, durably. `OSError`."""
        write_fully(self._file, depending(self.header, journal_id, files), 0)
        self._file.sync()

    def lack_nothing(self) -> None:
        """All files hold what is in the journal that the directory depends on: it may be released, durably.
        `OSError`."""
        found = dependence(self._file.pread(layout.HEADER_SIZE, 0))
        if found is not None:
            write_releasing(self._file, found)

    def depend_no_longer(self) -> None:
        """All files are complete without a journal, durably. `OSError`."""
        write_plain(self._file, self.header)

    def begin_reset(self) -> None:
        """From here on no node opens the directory until `end_reset`, durably. `OSError`."""
        if self.lost is None or not self.lost.resetting:
            write_fully(self._file, resetting(self.header, self.lost), 0)
            self._file.sync()

    def end_reset(self, fs: FileSystem, directory: str, journal_directory: str | None) -> None:
        """All copies are reset, durably: nodes may open the directory, and its journal is given up.
        `OSError`."""
        abandon(fs, directory, self._file, journal_directory)
        self.lost = None

    def check_cluster(self, directory: str, cluster_key: UUID, num_partitions: int) -> None:
        """`StorageStartError` when the directory is not one of this cluster."""
        _check_cluster(directory, self.header, cluster_key, num_partitions)

    def close(self) -> None:
        """Close and so unlock."""
        self.witness.close()
        self._file.close()

    def _write_struct(self, partition_id: int, place: int, info: PartitionInfo) -> None:
        self._write(partition_id, layout.ENTRY_PREFIX_SIZE + layout.INFO_SIZE * place, info.to_bytes())

    def _write(self, partition_id: int, place: int, raw: bytes) -> None:
        """Write at byte `place` of an entry and sync, with whoever writes to others."""
        offset = layout.HEADER_SIZE + layout.ENTRY_SIZE * partition_id + place
        try:
            with self._syncs.durable():
                try:
                    write_fully(self._file, raw, offset)
                except OSError as error:
                    if error.errno in NO_SPACE:  # the current struct was not touched
                        raise DiskWriteError(
                            f"partition {partition_id}: its control entry: {error.strerror}"
                        ) from error
                    raise
        except OSError as error:
            raise PartitionFailedError(
                f"partition {partition_id}: its control entry: {error.strerror}"
            ) from error

    def _missing(self, partition_id: int) -> NotAssignedError | PartitionDamagedError:
        if partition_id in self.damaged:
            return PartitionDamagedError(self.damaged[partition_id])
        return NotAssignedError(
            f"partition {partition_id} does not exist: the cluster has {self.num_partitions}"
        )


def has_segments(fs: FileSystem, directory: str) -> bool:
    """True when any partition directory holds a segment or index file."""
    suffixes = (*layout.DATA_SUFFIXES, layout.INDEX_SUFFIX)
    for name in fs.listdir(directory):
        path = join(directory, name)
        if name.isdecimal() and fs.is_dir(path) and any(n.endswith(suffixes) for n in fs.listdir(path)):
            return True
    return False


def refuse_when_used(fs: FileSystem, directory: str, what: str) -> None:
    """`StorageStartError` when the directory already holds records."""
    if has_segments(fs, directory):
        raise StorageStartError(
            f"{directory}: {what}, but it holds segment files; put {layout.CONTROL_FILE_NAME} back or empty the directory"
        )


def _open_locked(fs: FileSystem, directory: str, *, create: bool) -> File:
    path = join(directory, layout.CONTROL_FILE_NAME)
    try:
        if create and not fs.is_dir(directory):
            raise StorageStartError(f"{directory}: no such directory (storage.directory must exist)")
        file = fs.open(path, create=create)
    except FileNotFoundError:
        raise StorageStartError(f"{directory}: there is no {layout.CONTROL_FILE_NAME} here") from None
    except OSError as error:
        raise StorageStartError(f"{path}: {error.strerror}") from error
    try:
        locked = file.lock(layout.LOCK_SIZE)
    except BaseException:
        file.close()
        raise
    if not locked:
        file.close()
        raise DirectoryLockedError(f"{directory}: another process is using this directory")
    return file


def _head(fs: FileSystem, directory: str, file: File, journal_directory: str | None) -> bytes:
    """The first bytes; what the journal of a crash holds is in the files."""
    raw = file.pread(layout.HEADER_SIZE, 0)
    if dependence(raw) is None:
        return raw
    settle(fs, directory, file, journal_directory)
    return file.pread(layout.HEADER_SIZE, 0)


def _read_header(raw: bytes) -> ControlHeader | None:
    """`None` when the file is new, short or its header was never written."""
    if len(raw) < layout.HEADER_SIZE:
        return None
    header = ControlHeader.from_bytes(raw)
    if not 0 < header.num_partitions <= MAX_PARTITIONS:
        return None
    if header.version != layout.FORMAT_VERSION:
        raise StorageStartError(
            f"{layout.CONTROL_FILE_NAME} has format version {header.version}, this release reads {layout.FORMAT_VERSION}"
        )
    return header


def _complete(file: File, header: ControlHeader) -> bool:
    """False when an initialisation stopped inside the entries: some of them were never written."""
    size = layout.HEADER_SIZE + layout.ENTRY_SIZE * header.num_partitions
    raw = file.pread(size, 0)
    starts = range(layout.HEADER_SIZE, size, layout.ENTRY_SIZE)
    return len(raw) == size and all(any(raw[start : start + layout.ENTRY_SIZE]) for start in starts)


def _initialise(file: File, header: ControlHeader) -> None:
    """Write header and entries of a new file. No step of it can be mistaken for a finished file."""
    entries = b"".join(virgin_entry(partition_id) for partition_id in range(header.num_partitions))
    file.truncate(0)
    write_fully(file, entries, layout.HEADER_SIZE)  # before its header: an unfinished file has none
    file.sync()
    write_fully(file, header.to_bytes(), 0)
    file.sync()


def _check_cluster(directory: str, header: ControlHeader, cluster_key: UUID, num_partitions: int) -> None:
    if header.cluster_key != cluster_key:
        raise StorageStartError(
            f"{directory} belongs to another cluster: its key is {header.cluster_key}, ZooKeeper has {cluster_key}"
        )
    if header.num_partitions != num_partitions:
        raise StorageStartError(
            f"{directory} was made for {header.num_partitions} partitions, ZooKeeper has {num_partitions}"
        )
