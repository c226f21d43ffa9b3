"""After a crash: what the journal holds is brought into the files it speaks of.

Invariants:

* The changes of a journal lead to the same files from whatever part of them had reached the disk, and again
  when the replay itself was interrupted: every file's bytes after its first change come from changes in
  order.
* A change of a file that is not there makes none: the file was deleted later, or it was lost. Of a lost one,
  and of every change in a lost directory, the path is in `missed`: whoever releases the journal notes first
  that these files lack something, also if they are put back afterwards (safety: lost files).
* A file is synced through the descriptor that its changes were made with: one that is opened later does not
  get the error of the kernel's own writing. So changes are collected, and a file gets all of a round at once.
* Everything is durable when `run` returns.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from waltz_storage.engine.files import File, FileSystem, join, write_fully
from waltz_storage.engine.journal.layout import (
    Change,
    Create,
    Cut,
    JournalDamagedError,
    MakeDir,
    Name,
    Unlink,
    Write,
)

_ROUND_BYTES = 64 << 20
_CHANGE_BYTES = 256
"""What a change takes in memory, besides its data."""
_RUN_BYTES = 4 << 20


class Replay:
    """Brings changes into the files of one storage directory. `kept`: files that are open already and stay
    so, by path relative to the directory."""

    def __init__(self, fs: FileSystem, directory: str, kept: dict[str, File]) -> None:
        self._fs, self._directory, self._kept = fs, directory, kept
        self._names: dict[int, str] = {}
        self._waiting: dict[str, list[Write | Cut]] = {}
        self._waiting_bytes = 0
        self._directories: dict[str, None] = {}
        self.changes = 0
        self.missed: dict[str, None] = {}
        """Files, and directories, that changes could not be made in because they are not there."""

    def run(self, changes: Iterable[Change]) -> None:
        """All changes, durably. `JournalDamagedError`, `OSError`: it may be tried again."""
        for change in changes:
            self._apply(change)
            if self._waiting_bytes >= _ROUND_BYTES:
                self._make_round()
        self._make_round()
        for directory in self._directories:
            self._fs.sync_dir(directory)

    def _apply(self, change: Change) -> None:
        if isinstance(change, Name):
            if posixpath.isabs(change.path) or ".." in change.path.split("/"):
                raise JournalDamagedError(f"a change of {change.path!r}, which is not in the directory")
            self._names[change.name] = change.path
            return
        self.changes += 1
        try:
            path = self._names[change.name]
        except KeyError:
            raise JournalDamagedError(f"a change of a file without a name: {change.name}") from None
        match change:
            case Write():
                self._wait(path, change, len(change.data))
            case Cut():
                self._wait(path, change, 0)
            case Create():
                self._create(path, Cut(change.name, 0))
            case Unlink():
                self._forget(path)
                if self._fs.exists(self._full(path)):
                    self._fs.unlink(self._full(path))
                if self._has_directory(path):
                    self._name_changed(path)
            case MakeDir():
                if not self._fs.is_dir(self._full(path)):
                    self._fs.make_dir(self._full(path))
                self._name_changed(path)

    def _full(self, path: str) -> str:
        return join(self._directory, path)

    def _has_directory(self, path: str) -> bool:
        """Else the directory is missed, with all that the journal knows of it."""
        there = self._fs.is_dir(posixpath.dirname(self._full(path)))
        if not there:
            self.missed[posixpath.dirname(path)] = None
        return there

    def _name_changed(self, path: str) -> None:
        self._directories[posixpath.dirname(self._full(path))] = None

    def _wait(self, path: str, change: Write | Cut, size_bytes: int) -> None:
        self._waiting.setdefault(path, []).append(change)
        self._waiting_bytes += size_bytes + _CHANGE_BYTES

    def _create(self, path: str, empty: Cut) -> None:
        if not self._has_directory(path):
            return
        if path not in self._kept and not self._fs.exists(self._full(path)):
            self._fs.open(self._full(path), create=True).close()
        self._forget(path)  # whatever was made in it before is gone
        self._wait(path, empty, 0)
        self._name_changed(path)

    def _forget(self, path: str) -> None:
        self._waiting.pop(path, None)
        self.missed.pop(path, None)

    def _make_round(self) -> None:
        """What waits is made, and is durable."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for path, changes in waiting.items():
            kept = self._kept.get(path)
            if kept is not None:
                _make(kept, changes)
            elif not self._fs.exists(self._full(path)):
                self.missed[path] = None
            else:
                file = self._fs.open(self._full(path))
                try:
                    _make(file, changes)
                finally:
                    file.close()


def _make(file: File, changes: Iterable[Write | Cut]) -> None:
    """Make changes in a file and sync it. Writes that follow one another are made together."""
    run: list[bytes] = []
    start = end = 0
    for change in changes:
        follows = isinstance(change, Write) and change.offset == end and end - start < _RUN_BYTES
        if run and not follows:
            write_fully(file, b"".join(run), start)
            run = []
        if isinstance(change, Cut):
            file.truncate(change.size)
            continue
        if not run:
            start = end = change.offset
        run.append(change.data)
        end += len(change.data)
    if run:
        write_fully(file, b"".join(run), start)
    file.sync()
