"""After a crash: what the journal holds is brought into the files it speaks of.

Invariants:

* The changes of a journal lead to the same files from whatever part of them had reached the disk, and again
  when the replay itself was interrupted: every file's bytes after its first change come from changes in
  order.
* A change of a file that is not there makes none: the file was deleted later, or it was lost. Of a lost one,
  and of every change in a lost directory, the path is in `missed`: whoever releases the journal notes first
  that these files lack something, also if they are put back afterwards (safety: lost files).
* Everything is durable when `replay` returns.
"""

from __future__ import annotations

import posixpath
from collections import OrderedDict
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

_OPEN_FILES = 128
_RUN_BYTES = 4 << 20


class _Target:
    """A file that changes are made in. Writes that follow one another are made together."""

    __slots__ = ("file", "run", "run_bytes", "run_end", "run_start")

    def __init__(self, file: File) -> None:
        self.file = file
        self.run: list[bytes] = []
        self.run_start = self.run_end = self.run_bytes = 0

    def write(self, offset: int, data: bytes) -> None:
        if self.run and (offset != self.run_end or self.run_bytes > _RUN_BYTES):
            self.flush()
        if not self.run:
            self.run_start = offset
        self.run.append(data)
        self.run_bytes += len(data)
        self.run_end = offset + len(data)

    def flush(self) -> None:
        run, self.run, self.run_bytes = self.run, [], 0
        if run:
            write_fully(self.file, b"".join(run), self.run_start)


class Replay:
    """Brings changes into the files of one storage directory. `kept`: files that are open already and stay
    so, by path relative to the directory."""

    def __init__(self, fs: FileSystem, directory: str, kept: dict[str, File]) -> None:
        self._fs, self._directory, self._kept = fs, directory, kept
        self._names: dict[int, str] = {}
        self._targets: OrderedDict[str, _Target] = OrderedDict()
        self._touched: dict[str, None] = {}
        self._directories: dict[str, None] = {}
        self.changes = 0
        self.missed: dict[str, None] = {}
        """Files, and directories, that changes could not be made in because they are not there."""

    def run(self, changes: Iterable[Change]) -> None:
        """All changes, then the syncs. `JournalDamagedError`, `OSError`: it may be tried again."""
        try:
            for change in changes:
                self._apply(change)
            self._make_durable()
        finally:
            for path in list(self._targets):
                self._close(path)

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
                target = self._target(path)
                if target is not None:
                    target.write(change.offset, change.data)
            case Cut():
                target = self._target(path)
                if target is not None:
                    target.flush()
                    target.file.truncate(change.size)
            case Create():
                self._create(path)
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

    def _target(self, path: str) -> _Target | None:
        target = self._targets.get(path)
        if target is None:
            file = self._kept.get(path)
            if file is None:
                if not self._fs.exists(self._full(path)):
                    self.missed[path] = None
                    return None
                file = self._fs.open(self._full(path))
            target = self._targets[path] = _Target(file)
            self._touched[path] = None
        self._targets.move_to_end(path)
        if len(self._targets) > _OPEN_FILES:
            self._close(next(iter(self._targets)), flush=True)
        return target

    def _create(self, path: str) -> None:
        if not self._has_directory(path):
            return
        if path not in self._kept and not self._fs.exists(self._full(path)):
            self._fs.open(self._full(path), create=True).close()
        target = self._target(path)
        self.missed.pop(path, None)  # whatever was made in it before is gone
        if target is not None:
            target.flush()
            target.file.truncate(0)
        self._name_changed(path)

    def _forget(self, path: str) -> None:
        if path in self._targets:
            self._targets[path].run.clear()
            self._close(path)
        self._touched.pop(path, None)
        self.missed.pop(path, None)

    def _close(self, path: str, *, flush: bool = False) -> None:
        target = self._targets.pop(path)
        if flush:
            target.flush()
        if path not in self._kept:
            target.file.close()

    def _make_durable(self) -> None:
        for target in self._targets.values():
            target.flush()
        for path in list(self._touched):
            touched = self._target(path)
            if touched is not None:
                touched.file.sync()
        for directory in self._directories:
            self._fs.sync_dir(directory)
