"""The files of the node journal: commits, rotation, and what a crash left of them.

A journal is a fixed number of files of a fixed size, filled with zeros once and used in turn, so that a
commit costs one write and one sync of blocks that are there already. Owner: one thread at a time.

Invariants:

* A commit is written only after the sync of the one before it has returned. So a frame of a later commit
  behind a broken one is damage; without one, it is the torn end.
* A file is used again (`settled`) only when everything in it is durable in the files it speaks of.
* Crash order of a rotation: frames and the end mark of the old file synced, header of the new one synced,
  then its first frame. Only a file with the newest epoch may lack the end mark.
* After a failed write or sync nothing is ever written again; its owner sees to it.
* A file with an epoch above 0 is needed by a storage directory. What nobody needs any longer is released, in
  any order: a directory says first that it lacks nothing, so the rest of a journal is never replayed, and one
  that needs a journal with a released file is an older copy.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, Self
from uuid import UUID

from waltz_storage.engine.errors import JournalLostError, StorageStartError
from waltz_storage.engine.files import File, FileSystem, join, write_fully
from waltz_storage.engine.journal.layout import (
    END,
    FRAME_HEADER_SIZE,
    JOURNAL_SUFFIX,
    LAST,
    RELEASED,
    SECTOR_SIZE,
    WRITE_HEADER_SIZE,
    Change,
    FileHeader,
    JournalDamagedError,
    JournalReleasedError,
    changes_of,
    create_change,
    cut_change,
    frame,
    later_commit,
    make_dir_change,
    name_change,
    read_frame,
    salt,
    unlink_change,
    write_head,
)

_FILL_BYTES = 4 << 10
"""The page cache keeps what one write brought as one unit, and a commit into it would count, and be looked
through, as one."""

_Change = tuple[str, Callable[..., bytes], tuple[int, ...], bytes]
"""Path, what makes its first bytes from the number of the path and some values, and the bytes behind."""


class JournalTakenError(StorageStartError):
    """The directory for the journal is that of another node."""


class JournalSettings(NamedTuple):
    """`directory`: None for one of its own inside the storage directory. Sizes in bytes."""

    directory: str | None = None
    file_bytes: int = 32 << 20
    files: int = 4


class JournalFile:
    """One file in one of its lives."""

    __slots__ = ("epoch", "file", "made", "number", "path", "settled", "touched")

    def __init__(self, number: int, path: str, file: File) -> None:
        self.number, self.path, self.file = number, path, file
        self.epoch = 0
        self.settled = True
        """It can be used again."""
        self.made = False
        """It takes no more changes, and all that it holds have been made in the files that they speak of."""
        self.touched: dict[str, None] = {}
        """Paths that the changes in it speak of, relative to the storage directory."""


class Journal:
    """The journal of a running node. See the module for owner and invariants."""

    def __init__(self, journal_id: UUID, file_bytes: int, files: list[JournalFile]) -> None:
        self._journal_id = journal_id
        self._file_bytes = file_bytes
        self.max_write_bytes = max(1, file_bytes // 4 - WRITE_HEADER_SIZE)
        """The most bytes that one write change may carry."""
        self.max_buffered_bytes = file_bytes // 2
        """With so much buffered it is time for a commit: it must fit into half of the files."""
        self.files = files
        self._active = files[0]
        self._salt = 0
        self._position = SECTOR_SIZE
        self._names: dict[str, int] = {}
        self._commit_number = 0
        self._changes: list[_Change] = []
        self.buffered_bytes = 0
        self.written_bytes = 0
        self.wait_for_file: Callable[[], None] | None = None
        """Called when no file is free; it settles one."""

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, journal_id: UUID, settings: JournalSettings, *, own: bool = True
    ) -> Self:
        """Make or reuse the files, all empty. `OSError`.

        `JournalTakenError` when a running node has its journal there; one that is inside its storage
        directory may lead there too. `own`: it is inside. In any other one `JournalLostError` when a storage
        directory needs it that was not closed in order.
        """
        if not fs.is_dir(directory):
            fs.make_dir(directory)
        fs.sync_dir(posixpath.dirname(directory))
        files: list[JournalFile] = []
        try:
            for number in range(settings.files):
                path = join(directory, file_name(number))
                files.append(JournalFile(number, path, fs.open(path, create=True)))
            _lock(directory, files)
            if not own:
                _refuse_needed(fs, directory, files)
            for number, one in enumerate(files):
                _fill(one.file, settings.file_bytes)
                write_fully(one.file, FileHeader(journal_id, 0, number).to_bytes(), 0)
                one.file.sync()
            wanted = {file_name(number) for number in range(settings.files)}
            for name in fs.listdir(directory):
                if name.endswith(JOURNAL_SUFFIX) and name not in wanted:
                    fs.unlink(join(directory, name))
            fs.sync_dir(directory)
        except BaseException:
            for made in files:
                made.file.close()
            raise
        return cls(journal_id, settings.file_bytes, files)

    def begin(self) -> None:
        """Take the first file into use. Before any change. `OSError`."""
        self._use(self.files[0])

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Bytes at an offset of a file."""
        self._changes.append((path, write_head, (offset, len(data)), data))
        self.buffered_bytes += len(data) + WRITE_HEADER_SIZE

    def cut(self, path: str, size: int) -> None:
        """A file gets a size."""
        self._add(path, cut_change, size)

    def create_file(self, path: str) -> None:
        """A file was made, empty."""
        self._add(path, create_change)

    def unlink(self, path: str) -> None:
        """A file is going to be deleted."""
        self._add(path, unlink_change)

    def make_dir(self, path: str) -> None:
        """A directory was made."""
        self._add(path, make_dir_change)

    def _add(self, path: str, form: Callable[..., bytes], *values: int) -> None:
        self._changes.append((path, form, values, b""))
        self.buffered_bytes += 32

    def commit(self) -> None:
        """Make all changes so far durable. `OSError`: it is not known which are; it is not called again."""
        changes, self._changes, self.buffered_bytes = self._changes, [], 0
        if changes:
            self._write_commit(changes)

    def discard(self) -> bool:
        """Forget the changes that are in no commit; whether there were any."""
        changes, self._changes, self.buffered_bytes = self._changes, [], 0
        return bool(changes)

    def _write_commit(self, changes: list[_Change]) -> None:
        number, part = self._commit_number + 1, 0
        payload: list[bytes] = []
        room, names = self._room(), self._names
        for path, form, values, data in changes:
            name = names.get(path)
            head = form(name, *values) if name is not None else self._named(path, form, values)
            size = len(head) + len(data)
            if size > room:
                frames = [self._frame(number, part, 0, payload)] if payload else []
                part += len(frames) + 1
                self._write([*frames, self._frame(number, part - 1, END, [])])
                self._use(self._free_file())
                payload, room, names = [], self._room(), self._names
                head = self._named(path, form, values)
                size = len(head) + len(data)
            payload += (head, data)
            room -= size
        self._write([self._frame(number, part, LAST, payload)])
        self._commit_number = number

    def _room(self) -> int:
        """Bytes of changes that fit into one frame of the active file, with an end mark behind it."""
        return self._file_bytes - self._position - 2 * FRAME_HEADER_SIZE

    def _named(self, path: str, form: Callable[..., bytes], values: tuple[int, ...]) -> bytes:
        """A change of a path that has no number in the active file yet."""
        name = self._names[path] = len(self._names)
        self._active.touched[path] = None
        return name_change(name, path) + form(name, *values)

    def _frame(self, commit: int, part: int, flags: int, payload: list[bytes]) -> bytes:
        return frame(self._salt, commit, part, flags, b"".join(payload))

    def _write(self, frames: list[bytes]) -> None:
        raw = b"".join(frames)
        write_fully(self._active.file, raw, self._position)
        self._active.file.sync()
        self._position += len(raw)
        self.written_bytes += len(raw)

    def _free_file(self) -> JournalFile:
        if self.wait_for_file is not None and not self.has_free_file:
            self.wait_for_file()
        for file in sorted(self.files, key=lambda file: file.epoch):
            if self._is_free(file):
                return file
        raise OSError(errno.ENOSPC, "its files are full, and the disk has no room for what they hold")

    @property
    def has_free_file(self) -> bool:
        """The next rotation finds a file."""
        return any(self._is_free(file) for file in self.files)

    def _is_free(self, file: JournalFile) -> bool:
        return file.settled and file is not self._active

    def _use(self, file: JournalFile) -> None:
        epoch = self._active.epoch + 1
        write_fully(file.file, FileHeader(self._journal_id, epoch, file.number).to_bytes(), 0)
        file.file.sync()
        file.made = False  # before it counts as not settled: another thread looks for files that are ready
        file.epoch, file.touched = epoch, {}
        self._active, self._position, self._names = file, SECTOR_SIZE, {}
        file.settled = False
        self._salt = salt(self._journal_id, epoch)

    def unsettled(self) -> list[JournalFile]:
        """Files that are full and not settled, oldest first."""
        found = [file for file in self.files if not file.settled and file is not self._active]
        return sorted(found, key=lambda file: file.epoch)

    @property
    def active(self) -> JournalFile:
        """The file that takes the next commit."""
        return self._active

    def release(self) -> None:
        """No storage directory needs the files any longer. `OSError`."""
        for one in self.files:
            if one.epoch:
                _release(one.file, self._journal_id, one.number)

    def close(self) -> None:
        """Close without syncing."""
        for file in self.files:
            file.file.close()


def file_name(number: int) -> str:
    """Of the file with a number."""
    return f"journal-{number}{JOURNAL_SUFFIX}"


def release_journal(fs: FileSystem, directory: str, journal_id: UUID, files: int) -> None:
    """No storage directory needs this journal any longer. Files of another one are left alone. `OSError`."""
    for number in range(files):
        path = join(directory, file_name(number))
        header = FileHeader.from_bytes(_head(fs, path)) if fs.exists(path) else None
        if header is None or header.journal_id != journal_id or header.epoch <= 0:
            continue
        file = fs.open(path)
        try:
            _release(file, journal_id, number)
        finally:
            file.close()


def _release(file: File, journal_id: UUID, number: int) -> None:
    write_fully(file, FileHeader(journal_id, RELEASED, number).to_bytes(), 0)
    file.sync()


def _lock(directory: str, files: list[JournalFile]) -> None:
    """Lock the directory until the journal is closed. The lock ends with any handle of the first file, so
    that file is not opened a second time. `JournalTakenError`."""
    if not files[0].file.lock(SECTOR_SIZE):
        raise JournalTakenError(
            f"{directory} is, or leads to, the journal of a running node: give each node a "
            "storage.journal.directory of its own"
        )


def _refuse_needed(fs: FileSystem, directory: str, files: list[JournalFile]) -> None:
    """Check that no storage directory needs what is in a directory that other nodes may be configured with.
    `JournalLostError`: the one that needs it is not ours, or no longer."""
    wanted = {posixpath.basename(one.path) for one in files}
    others = [name for name in fs.listdir(directory) if name.endswith(JOURNAL_SUFFIX) and name not in wanted]
    heads = [one.file.pread(SECTOR_SIZE, 0) for one in files]
    heads += [_head(fs, join(directory, name)) for name in others]
    for raw in heads:
        header = FileHeader.from_bytes(raw)
        if header is not None and header.epoch > 0:
            raise JournalLostError(
                f"{directory} holds the journal of another storage directory, which was not closed in order and "
                f"needs it: give each node a storage.journal.directory of its own; if that storage directory was "
                f"given up, delete {directory}/*{JOURNAL_SUFFIX}"
            )


def _head(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path, read_only=True)
    try:
        return file.pread(SECTOR_SIZE, 0)
    finally:
        file.close()


def _fill(file: File, size: int) -> None:
    """All blocks of a file are there; what it holds does not matter. A copy may have made holes of its zeros:
    then a commit would need space, and the journal would end on a full disk."""
    have = file.size()
    if have > size:
        file.truncate(size)
    if file.allocated() < min(have, size):
        have = 0
    zeros = memoryview(bytes(_FILL_BYTES))
    while have < size:
        piece = min(_FILL_BYTES, size - have)
        write_fully(file, zeros[:piece], have)
        have += piece


def holds_journal(fs: FileSystem, directory: str, journal_id: UUID) -> bool:
    """Whether the first file there is one of this journal. `OSError`."""
    path = join(directory, file_name(0))
    if not fs.exists(path):
        return False
    header = FileHeader.from_bytes(_head(fs, path))
    return header is not None and header.journal_id == journal_id


def read_journal(fs: FileSystem, directory: str, journal_id: UUID, files: int) -> Iterator[Change]:
    """The changes of all complete commits that a journal still holds, in order. Nothing is changed.

    `JournalDamagedError` names the file; `OSError`.
    """
    lives = _lives(fs, directory, journal_id, files)
    reader = _Reader(complete=0 if lives and lives[0][0].epoch == 1 else None)
    for place, (header, path) in enumerate(lives):
        yield from reader.read(_contents(fs, path), header, path, newest=place == len(lives) - 1)


def make_durable(fs: FileSystem, directory: str, journal_id: UUID, files: int) -> None:
    """What `read_journal` finds is on the disk, and not in the page cache alone, where a process that was
    killed or whose sync failed has left it: its newest file is written again, as the others were synced
    before it. `JournalDamagedError`, `OSError`."""
    for _, path in _lives(fs, directory, journal_id, files)[-1:]:
        file = fs.open(path)
        try:
            write_fully(file, file.pread(file.size(), 0), 0)
            file.sync()
        finally:
            file.close()


def _lives(fs: FileSystem, directory: str, journal_id: UUID, files: int) -> list[tuple[FileHeader, str]]:
    lives: list[tuple[FileHeader, str]] = []
    for number in range(files):
        path = join(directory, file_name(number))
        if not fs.exists(path):
            raise JournalDamagedError(f"{path} is missing")
        header = FileHeader.from_bytes(_head(fs, path))
        if header is None:
            raise JournalDamagedError(f"{path} has no valid header")
        if header.journal_id != journal_id or header.number != number:
            raise JournalDamagedError(f"{path} belongs to another journal")
        if header.epoch < 0:
            raise JournalReleasedError(
                f"{path} was released, and another copy of this directory has what was in it"
            )
        if header.epoch > 0:
            lives.append((header, path))
    lives.sort()
    for (before, _), (after, path) in pairwise(lives):
        if after.epoch != before.epoch + 1:
            raise JournalDamagedError(f"{path} has epoch {after.epoch}, and none has {before.epoch + 1}")
    return lives


def _contents(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path, read_only=True)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


class _Reader:
    """Frames of all files in order; a commit is given out when it is complete."""

    def __init__(self, complete: int | None) -> None:
        """`complete`: the last commit that is; `None` when it is in a file that was used again."""
        self._complete = complete
        self._part = 0  # of the commit that is being read
        self._frames: list[bytes] = []

    def read(self, raw: bytes, header: FileHeader, path: str, *, newest: bool) -> Iterator[Change]:
        """The complete commits of one file."""
        offset, salted = SECTOR_SIZE, salt(header.journal_id, header.epoch)
        while True:
            found = read_frame(raw, offset, salted)
            if found is None:
                break
            if self._complete is None:  # what came before is settled, also the beginning of this commit
                self._complete, self._part = found.commit - 1, found.part
            if (found.commit, found.part) != (self._complete + 1, self._part):
                raise JournalDamagedError(
                    f"{path}: commit {found.commit}, part {found.part} at {offset} where "
                    f"commit {self._complete + 1}, part {self._part} was expected"
                )
            self._frames.append(found.changes)
            self._part, offset = self._part + 1, found.end
            if found.flags == LAST:
                frames, self._frames = self._frames, []
                self._complete, self._part = found.commit, 0
                for changes in frames:
                    yield from changes_of(changes)
            elif found.flags == END:
                return
        if not newest:
            raise JournalDamagedError(f"{path} is damaged at {offset}: the journal continues in another file")
        later = later_commit(raw, offset, salted, -1 if self._complete is None else self._complete + 1)
        if later >= 0:
            raise JournalDamagedError(f"{path} is damaged at {offset}: a later commit follows at {later}")
