"""When a storage directory depends on its journal: written in the header of the control file.

While a node runs with a journal, its partition files may lack what the journal holds. Then the header carries
version 1, the complement of the cluster key in place of the key, and behind the partition count: `char[16]
journal id | i32 number of journal files`. Release 0.13.2 does not look at the version, but refuses a key that
is not its cluster's, and so does an earlier release of ours: neither can open files that lack acknowledged
records. After an orderly end, and after a replay, the header is that of release 0.13.2 again. Version 2 is
that of a directory whose copies are being reset (`restore_reset.py`): no node opens it either. It names the
journal that is given up with them, or none; a journal that is there again meanwhile does not end the reset.
Version 3 is like 1, but the files lack nothing: the journal is being released, and nothing of it is replayed.

Crash order: of the beginning, journal files made and synced under a new id, then the header. Of a replay, the
newest journal file written again and synced, then the changes in it made, then the witness's word of the
partitions whose files were missing, then the header with version 3, then the journal's files released, then
the plain header. So what is left of a journal that is being released is never replayed: it would bring the
word of the witness back to what it was. Of the end, all files synced, then the header with version 3 and so
on. Of a reset that gives the journal up, all copies reset, then the header, then the journal's files
released. The header is one sector, so it is the one or the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from waltz_storage.engine.errors import (
    DirectoryLockedError,
    DiskWriteError,
    JournalLostError,
    OutOfResourcesError,
    PartitionDamagedError,
    PartitionFailedError,
    StorageStartError,
)
from waltz_storage.engine.files import File, FileSystem, join, reason_of, write_fully
from waltz_storage.engine.free_space import NO_SPACE
from waltz_storage.engine.journal.layout import JournalDamagedError, JournalReleasedError
from waltz_storage.engine.journal.log import holds_journal, make_durable, read_journal, release_journal
from waltz_storage.engine.journal.replay import Replay
from waltz_storage.engine.layout import (
    CONTROL_FILE_NAME,
    ENTRY_SIZE,
    HEADER_SIZE,
    LOCK_SIZE,
    ControlHeader,
)
from waltz_storage.engine.partition_info import read_entry
from waltz_storage.engine.witness import Witness

JOURNALED_VERSION = 1
RESETTING_VERSION = 2
RELEASING_VERSION = 3
JOURNAL_DIRECTORY = "waltz-journal"
_JOURNAL = struct.Struct(">16si")
_JOURNAL_OFFSET = 32
_MOST_FILES = 64


class Dependence(NamedTuple):
    """On which journal a directory depends, and its header without it."""

    journal_id: UUID
    files: int
    plain: ControlHeader
    version: int

    @property
    def resetting(self) -> bool:
        """It depends on no journal, but on the end of a reset that was begun, which gives the journal up; 0
        files when there was none."""
        return self.version == RESETTING_VERSION

    @property
    def releasing(self) -> bool:
        """Its files lack nothing: the journal is to be released, if it is there."""
        return self.version == RELEASING_VERSION


def journal_directory(directory: str, configured: str | None) -> str:
    """Where the journal of a storage directory is."""
    return join(directory, JOURNAL_DIRECTORY) if configured is None else configured


def _where(fs: FileSystem, directory: str, configured: str | None, journal_id: UUID) -> str:
    """Where the journal of a crash is: where it is configured now, or inside the directory, where it was
    before `storage.journal.directory` was set. `OSError`."""
    place, inside = journal_directory(directory, configured), journal_directory(directory, None)
    if not holds_journal(fs, place, journal_id) and holds_journal(fs, inside, journal_id):
        return inside
    return place


def depending(header: ControlHeader, journal_id: UUID, files: int) -> bytes:
    """The header of a directory that depends on a journal."""
    return _naming_journal(header, JOURNALED_VERSION, journal_id, files)


def _naming_journal(header: ControlHeader, version: int, journal_id: UUID, files: int) -> bytes:
    raw = bytearray(_hidden(header, version))
    _JOURNAL.pack_into(raw, _JOURNAL_OFFSET, journal_id.bytes, files)
    return bytes(raw)


def resetting(header: ControlHeader, lost: Dependence | None) -> bytes:
    """The header of a directory whose copies are being reset. `lost`: on which journal it depended until now,
    which is given up with them."""
    raw = bytearray(_hidden(header, RESETTING_VERSION))
    if lost is not None:
        _JOURNAL.pack_into(raw, _JOURNAL_OFFSET, lost.journal_id.bytes, lost.files)
    return bytes(raw)


def _hidden(header: ControlHeader, version: int) -> bytes:
    hidden = UUID(bytes=_complement(header.cluster_key.bytes))
    return header._replace(version=version, cluster_key=hidden).to_bytes()


def dependence(raw: bytes) -> Dependence | None:
    """What the first bytes of a control file say; `None` for a plain one, or for anything else."""
    if len(raw) < HEADER_SIZE:
        return None
    header = ControlHeader.from_bytes(raw)
    if header.version not in (JOURNALED_VERSION, RESETTING_VERSION, RELEASING_VERSION):
        return None
    key = UUID(bytes=_complement(header.cluster_key.bytes))
    journal_id, files = _JOURNAL.unpack_from(raw, _JOURNAL_OFFSET)
    plain = header._replace(version=0, cluster_key=key)
    return Dependence(UUID(bytes=journal_id), files, plain, header.version)


def _complement(raw: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in raw)


class Settled(NamedTuple):
    """What became of a journal."""

    changes: int
    lacking: tuple[int, ...] = ()
    """Partitions of which files were missing: their copies are refused from now on."""


def settle(fs: FileSystem, directory: str, control: File, configured: str | None) -> Settled:
    """Bring a directory that depends on a journal into the plain state.

    `control`: its control file, locked. `JournalLostError` in one line when the journal is not there, is
    damaged or belongs to another directory, `StorageStartError` when the disk fails, a reset did not end or
    a file of the whole directory is missing that the journal speaks of;
    then nothing but files that the journal speaks of has changed, and it may be tried again.
    """
    found = dependence(control.pread(HEADER_SIZE, 0))
    if found is None:
        return Settled(0)
    place = _journal_needed(fs, directory, configured, found)
    replay = Replay(fs, directory, {CONTROL_FILE_NAME: control})
    lacking: tuple[int, ...] = ()
    try:
        if not found.releasing:
            make_durable(fs, place, found.journal_id, found.files)
            replay.run(read_journal(fs, place, found.journal_id, found.files))
            lacking = _note_lacking(fs, directory, control, found.plain, replay.missed)
        write_releasing(control, found)  # also again: a failed sync may have left it in memory only
        release_journal(fs, place, found.journal_id, found.files)
        write_plain(control, found.plain)
    except JournalDamagedError as error:
        raise JournalLostError(
            f"{directory} was not closed in order and needs its journal: {error}; {_way_out(directory, error)}"
        ) from error
    except (OSError, OutOfResourcesError, DiskWriteError, PartitionFailedError) as error:
        raise StorageStartError(
            f"{directory}: its journal cannot be {'released' if found.releasing else 'replayed'}: "
            f"{reason_of(error)}{_step(error)}"
        ) from error
    return Settled(replay.changes, lacking)


def _way_out(directory: str, error: JournalDamagedError | None = None) -> str:
    """What to do when the right journal is not where it was looked for."""
    give_up = f"give the copy up: `waltz storage restore-reset {directory}`"
    if isinstance(error, JournalReleasedError):
        return f"use that copy in place of this one, or {give_up}"
    return (
        "put it back; if it is elsewhere, set storage.journal.directory to that directory, or pass it with --journal; "
        f"if it is lost, {give_up}"
    )


def _step(error: Exception) -> str:
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError) or cause.errno not in NO_SPACE:
        return ""
    return "; free disk space and start again: until then the journal keeps everything"


def _note_lacking(
    fs: FileSystem, directory: str, control: File, header: ControlHeader, missed: Iterable[str]
) -> tuple[int, ...]:
    """Make it durable that the copies with these files lack something; their partitions. `StorageStartError`
    for a file that is no partition's, errors of `Witness.write`, `OSError`."""
    owners = sorted({path.split("/")[0] for path in missed})
    for name in owners:
        if not name.isdecimal():
            raise StorageStartError(
                f"{directory}: {name} is missing, and its journal holds changes of it; put it back, or let the node be "
                f"brought up to date by its peers: `waltz storage restore-reset {directory}`"
            )
    if not owners:
        return ()
    lacking = []
    witness = Witness.open(fs, directory, header.num_partitions)
    try:
        for partition_id in sorted(map(int, owners)):
            raw = control.pread(ENTRY_SIZE, HEADER_SIZE + ENTRY_SIZE * partition_id)
            try:
                info, _ = read_entry(partition_id, raw)
            except PartitionDamagedError:  # which is why it is refused
                lacking.append(partition_id)
                continue
            if info.session_id >= 0:
                witness.note_lacking(partition_id, info)
                lacking.append(partition_id)
    finally:
        witness.close()
    return tuple(lacking)


def _journal_needed(fs: FileSystem, directory: str, configured: str | None, found: Dependence) -> str:
    """The directory of the journal that a directory depends on; it may be gone where the files lack nothing.
    `StorageStartError`."""
    if found.resetting:
        raise StorageStartError(
            f"{directory}: a reset of its copies was begun and did not end: run `waltz storage restore-reset {directory}` again"
        )
    if not 0 < found.files <= _MOST_FILES:
        raise StorageStartError(f"{directory}: the header of {CONTROL_FILE_NAME} is damaged")
    try:
        place = _where(fs, directory, configured, found.journal_id)
        there = fs.is_dir(place)
    except OSError as error:
        raise StorageStartError(f"{directory}: its journal cannot be read: {reason_of(error)}") from error
    if not there and not found.releasing:
        raise JournalLostError(
            f"{directory} was not closed in order and needs its journal, and {place} does not exist; "
            f"{_way_out(directory)}"
        )
    return place


def lost_dependence(fs: FileSystem, directory: str, configured: str | None) -> Dependence | None:
    """On what a directory depends, if `settle` would not bring it there, as far as reading shows. Nothing is
    changed. `OSError`."""
    file = fs.open(join(directory, CONTROL_FILE_NAME), read_only=True)
    try:
        found = dependence(file.pread(HEADER_SIZE, 0))
    finally:
        file.close()
    if found is None or found.releasing:
        return None
    try:
        place = _journal_needed(fs, directory, configured, found)
        for _ in read_journal(fs, place, found.journal_id, found.files):
            pass
    except (StorageStartError, JournalDamagedError, OSError):
        return found
    return None


def settle_directory(fs: FileSystem, directory: str, configured: str | None) -> Settled:
    """`settle` for the directory of a stopped node, which is locked meanwhile; what else a killed node leaves
    is for `settling.put_in_order`. `StorageStartError`."""
    path = join(directory, CONTROL_FILE_NAME)
    try:
        control = fs.open(path)
    except FileNotFoundError:
        raise StorageStartError(f"{directory}: there is no {CONTROL_FILE_NAME} here") from None
    except OSError as error:
        raise StorageStartError(f"{path}: {error.strerror or error}") from error
    try:
        if not control.lock(LOCK_SIZE):
            raise DirectoryLockedError(f"{directory}: another process is using this directory")
        return settle(fs, directory, control, configured)
    finally:
        control.close()


def abandon(fs: FileSystem, directory: str, control: File, configured: str | None) -> None:
    """Give up what the journal holds, if it is there; a reset has ended. All copies were reset before, and
    that is durable: from the first write on a node opens the directory. `OSError`."""
    found = dependence(control.pread(HEADER_SIZE, 0))
    if found is None:
        return
    write_plain(control, found.plain)
    if found.files or not found.resetting:
        place = _where(fs, directory, configured, found.journal_id)
        if fs.is_dir(place):
            release_journal(fs, place, found.journal_id, min(max(0, found.files), _MOST_FILES))


def write_releasing(control: File, found: Dependence) -> None:
    """The header of a directory whose files lack nothing, so that its journal can be released, durably.
    `OSError`."""
    raw = _naming_journal(found.plain, RELEASING_VERSION, found.journal_id, found.files)
    write_fully(control, raw, 0)
    control.sync()


def write_plain(control: File, header: ControlHeader) -> None:
    """The header of a directory that depends on no journal, durably. `OSError`."""
    write_fully(control, header.to_bytes(), 0)
    control.sync()
