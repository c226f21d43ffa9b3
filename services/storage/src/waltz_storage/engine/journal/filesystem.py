"""The disk seam through the node journal: the engine above it stays as it is.

Before `JournaledFiles.begin` and after `JournaledFiles.end` every call goes to the files below. In between a
write is kept in memory, and a sync of a file puts what was written to it since its last sync into the
journal's buffer. `commit` makes all of that durable at once. Some time after that the writes are made in the
files below, many as one and without a sync: at once when a file of the whole directory was written, else when
enough of them wait, when a file of the journal is full, and when the node has looked at its disk. So whoever
answers a request does so after `commit`: what the engine takes for synced is durable from then on.

Invariants:

* A file below never has an effect of a change that is not durable in the journal, but for names of empty
  files and directories. So after a crash the journal's changes, made again in order, lead to the state after
  the last complete commit, as if every sync of the engine until then had been one, and none after it.
* What cannot be taken back or held in memory (a file deleted or cut) is committed first, and made at once.
* A write that was never synced is made in the file some time after the next commit, as a page cache may do,
  and is not in the journal. At most `_UNMADE_BYTES` and one batch wait for that.
* A journal file is used again when everything that it speaks of has been made in the files below and synced
  there (`settle`).
* A failed commit, or a failed sync, close, cut or deletion below, ends the journal: all later calls fail.

Owner: the thread that runs jobs, one at a time. `settle` may run on another thread.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
from collections.abc import Callable
from itertools import takewhile
from uuid import UUID

from waltz_storage.engine.errors import OutOfResourcesError
from waltz_storage.engine.files import OUT_OF_RESOURCES, File, FileSystem
from waltz_storage.engine.free_space import NO_SPACE, FreeSpace
from waltz_storage.engine.journal.handle import JournaledFile
from waltz_storage.engine.journal.log import Journal, JournalFile, JournalSettings
from waltz_storage.engine.journal.open_files import OpenFiles
from waltz_storage.engine.journal.shared_file import SharedFile

_UNSYNCED_BYTES = 64 << 10
"""So much that was written to a file without a sync goes into the journal unasked."""
_UNMADE_BYTES = 8 << 20
"""With so much in the journal that is not made in the files it is made there: what many small batches wrote
to a partition is then one write, and its marks are written once. Of a thousand partitions each has some
fifteen records of half a KiB then."""
_UNMADE_WRITES = 2048
"""And with so many writes of one file: whoever reads the file looks through them."""
_KEPT_OPEN = 64
"""So many files that nobody uses are kept open for what is not made in them."""
_UNSYNCED_OPEN = 32
"""With so many that wait only for a sync the thread that settles closes them; with twice as many the one that
runs jobs does it."""
_UNCOMMITTED_NAMES = 2
HELD = "the disk is full: what was acknowledged last is in the journal and waits for room in its files"


class JournaledFiles(OpenFiles):
    """The files below `directory`. See the module for owner and invariants."""

    def __init__(self, fs: FileSystem, directory: str, room: FreeSpace) -> None:
        super().__init__()
        self._fs, self._directory, self._room = fs, directory, room
        self._pending: dict[SharedFile, None] = {}
        self._later: dict[Callable[[], None], int] = {}
        self._pending_bytes = 0
        self._no_space = False  # what waits found no space below
        self._make_soon = False
        self._created: dict[str, int] = {}  # directory -> files made in it since the last commit
        self._journal: Journal | None = None
        self._lost = False  # a commit failed, and nobody was answered yet
        self._spare: File | None = None  # a descriptor for settling when the process has no other left

    # -- life ----------------------------------------------------------------------------------------------

    @property
    def unmade(self) -> bool:
        """Something is in the journal only."""
        return bool(self._pending or self._later)

    @property
    def written_bytes(self) -> int:
        """Bytes written to the journal since its beginning."""
        return 0 if self._journal is None else self._journal.written_bytes

    def create(self, directory: str, journal_id: UUID, settings: JournalSettings) -> Journal:
        """The journal's files, made and synced. `OSError`, `JournalTakenError`, `JournalLostError`."""
        own = settings.directory is None
        return Journal.create(self._fs, directory, journal_id, settings, own=own)

    def begin(self, journal: Journal) -> None:
        """From here on through the journal. `OSError`.

        A process that was killed may have left names that no power loss has tried: they are made durable
        first, since only a file that is made from here on is made again by a replay.
        """
        for name in self._fs.listdir(self._directory):
            path = posixpath.join(self._directory, name)
            if name.isdecimal() and self._fs.is_dir(path):  # a partition's; others may not be ours to open
                self._fs.sync_dir(path)
        self._fs.sync_dir(self._directory)
        journal.begin()
        self._keep_spare(journal)
        journal.wait_for_file = self._wait_for_file
        self._journal, self.journaling = journal, True

    def end(self, lack_nothing: Callable[[], None] = lambda: None) -> None:
        """Make everything durable below, call `lack_nothing`, and release the journal. After it, calls go
        below. `OSError`: the directory depends on the journal, as after a crash."""
        journal = self._journal
        if journal is None:
            return
        try:
            self.commit()  # may have to wait for a file, and so to settle one
            self.make()
            self.check()
            if self._pending:
                raise OSError(errno.ENOSPC, "the disk has no room for what the journal holds")
            with self._settling:
                self.check()  # a sync that failed, perhaps just now on another thread, is not tried again
                for file in (*journal.unsettled(), journal.active):
                    self._settle(file)
                self.journaling = False  # what `lack_nothing` writes goes to the files below
                lack_nothing()
                journal.release()
        finally:
            with self._settling:
                self._journal, self.journaling = None, False
                self._give_spare()
                journal.close()
            for shared in [shared for shared in self._shared.values() if not shared.users]:
                shared.forget()
                with contextlib.suppress(OSError):  # nothing depends on what was written without a sync
                    self._drop(shared)

    # -- writing -------------------------------------------------------------------------------------------

    def written(self, shared: SharedFile, offset: int, raw: bytes) -> None:
        """A write to a file. `OSError`."""
        if shared.unsynced and not shared.covers(offset, raw):
            self.log(shared)
        shared.write(offset, raw)
        self._pending[shared] = None
        self._pending_bytes += len(raw)
        if shared.of_directory or len(shared.pending) >= _UNMADE_WRITES:
            self._make_soon = True
        if shared.unsynced_bytes > _UNSYNCED_BYTES and len(shared.unsynced) > 1:
            self.log(shared)

    def write_later(self, write: Callable[[], None], size_bytes: int) -> None:
        """Writes that nobody syncs: `write` makes all of them, directly before the next ones are made below.
        `size_bytes`: how many bytes they have grown by since the last call."""
        self._later[write] = self._later.get(write, 0) + size_bytes
        self._pending_bytes += size_bytes

    def log(self, shared: SharedFile) -> None:
        """Put what was written to a file into the journal's buffer. `OSError`."""
        self.check()
        journal = self._running()
        size = shared.unsynced_bytes
        if size < journal.max_write_bytes and size < journal.max_buffered_bytes - journal.buffered_bytes:
            for offset, raw in shared.take_unsynced().items():
                journal.write(shared.relative, offset, raw)
            if journal.buffered_bytes >= journal.max_buffered_bytes:
                self._commit_now()
        else:
            self._log_in_pieces(shared, journal)

    def _log_in_pieces(self, shared: SharedFile, journal: Journal) -> None:
        """More than one commit takes: a commit in between makes what it has, and nothing of the rest."""
        most = journal.max_write_bytes
        writes = shared.hold_back()
        self._pending_bytes -= sum(map(len, writes.values()))
        for offset, raw in writes.items():
            for start in range(0, len(raw), most):
                piece = raw[start : start + most]
                journal.write(shared.relative, offset + start, piece)
                shared.pending.append((offset + start, piece))
                self._pending[shared] = None
                self._pending_bytes += len(piece)
                if journal.buffered_bytes >= journal.max_buffered_bytes:
                    self._commit_now()

    def cut(self, shared: SharedFile, size: int) -> None:
        """Set the size of a file. `OSError`."""
        self.check()
        shared.cut_unsynced(size)
        self._running().cut(shared.relative, size)
        self._commit()
        self._make_committed(lambda: shared.cut_below(size))
        self._make_when_due()

    def _make_committed(self, change: Callable[[], None]) -> None:
        """What the journal says has happened, happens below too, or the journal ends: a replay would make the
        change in what was written since. `OSError`."""
        try:
            change()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):  # else it is as a replay leaves it
                self._fail(error)
            raise

    def commit(self) -> None:
        """Make everything since the last commit of this kind durable, and make the writes below when it is
        time for that. `OSError`: the journal has failed, perhaps in a commit in between. After that nothing
        is taken, so nothing waits for a commit."""
        try:
            if self.failed is None:
                self._commit_now()
            elif self._running().discard() or self._lost:
                self.check()
        finally:
            self._lost = False

    def _commit_now(self) -> None:
        self._commit()
        self._make_when_due()

    def _make_when_due(self) -> None:
        """Directly after a commit."""
        if (
            self._no_space
            or self._make_soon
            or self._pending_bytes >= _UNMADE_BYTES
            or self._kept_open >= _KEPT_OPEN
            or any(not file.made for file in self._running().unsettled())
        ):
            self.make()
        else:
            self._room.promised_bytes = self._pending_bytes

    def make(self) -> None:
        """Make the writes below. Directly after a commit. What finds no space stays in memory and in the
        journal, and is tried again; appends are refused until there is space."""
        if self.failed is not None:
            return
        if not self._write_what_waits():
            return
        self._no_space = self._make_soon = False
        self._kept_open = 0
        for shared in list(self._pending):
            self._make_pending(shared)
        self._room.held = HELD if self._no_space else None
        if not self._pending:
            for file in self._running().unsettled():
                file.made = True
            self._pending_bytes = 0
        self._room.promised_bytes = self._pending_bytes

    def _write_what_waits(self) -> bool:
        """Whether that worked. An error that nobody foresaw ends the journal: what it has committed is
        durable, and what would be taken after it is not known to fit."""
        later, self._later = self._later, {}
        for write, size_bytes in later.items():
            self._pending_bytes -= size_bytes
            try:
                write()
            except Exception as error:
                self._fail(error)
                return False
        return True

    def _commit(self) -> None:
        self.check()
        journal = self._running()
        try:
            journal.commit()
        except Exception as error:
            self._fail(error)
            self._lost = True
            self._later.clear()
            self._pending.clear()  # what is not durable stays in memory, where the engine still looks for it
            raise OSError(errno.EIO, self.failed) from error
        self._created.clear()

    def _make_pending(self, shared: SharedFile) -> None:
        with self._lock:
            shared.users += 1  # whoever settles meanwhile does not close the file
        try:
            shared.write_below()
            self._pending.pop(shared, None)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                self._no_space = True
            else:
                self._fail(error)
        finally:
            self._let_go(shared)

    def _running(self) -> Journal:
        if self._journal is None:
            raise OSError(errno.EIO, "the journal has ended")
        return self._journal

    # -- settling ------------------------------------------------------------------------------------------

    def settle_due(self) -> bool:
        """`settle` would free a file of the journal, or close files that were kept open for a sync."""
        if self._journal is None or self.failed is not None:
            return False
        return len(self._unsynced) >= _UNSYNCED_OPEN or bool(_ready(self._journal))

    def settle(self) -> bool:
        """Sync what the oldest full file speaks of, so that it can be used again; whether one can. Before
        that, close files that were kept open for a sync. May run on a thread of its own. A failure ends the
        journal; without file descriptors it is to be tried later."""
        with self._settling:
            journal = self._journal
            if journal is None or self.failed is not None:
                return False
            try:
                if len(self._unsynced) >= _UNSYNCED_OPEN:
                    self._close_unsynced()
                for file in _ready(journal)[:1]:
                    self._settle(file)
                    return True
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    self._fail(error)
        return False

    def _wait_for_file(self) -> None:
        """A commit cannot wait for descriptors: it is given the one that was kept for it."""
        journal = self._running()
        with self._settling:
            self.check()  # a sync that failed just now, on the thread that settles, is not tried again
            for file in [] if journal.has_free_file else _ready(journal)[:1]:
                try:
                    self._settle(file)
                except OSError as error:
                    if error.errno not in OUT_OF_RESOURCES or self.failed or not self._give_spare():
                        raise
                    self._settle(file)
                    self._keep_spare(journal)

    def _keep_spare(self, journal: Journal) -> None:
        with contextlib.suppress(OSError):  # the next time then
            self._spare = self._fs.open(journal.files[-1].path, read_only=True)

    def _give_spare(self) -> bool:
        """Close the descriptor that is kept, and whether there was one."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        return spare is not None

    def _settle(self, file: JournalFile) -> None:
        """Everything that the changes of a journal file lead to is durable below."""
        directories: dict[str, None] = {}
        for relative in list(file.touched):
            path = posixpath.join(self._directory, relative)
            directories[posixpath.dirname(path)] = None
            self._sync_below(self._shared.get(path))
        for directory in directories:
            if self._fs.is_dir(directory):
                try:
                    self._fs.sync_dir(directory)
                except OutOfResourcesError as error:
                    raise OSError(errno.EMFILE, str(error)) from error
        self.check()  # files were closed
        file.settled = True

    # -- the seam ------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> JournaledFile:
        """See the seam. A file that was kept open without a handle is not taken for one that was put in its
        place meanwhile."""
        with self._lock:
            shared = self._usable(path, read_only)
            if shared is not None:
                return self._handle(shared)
        made = create and self.journaling and not self._fs.exists(path)
        if made:
            self._before_creating(path)
        below = self._open_below(path, create, read_only)
        replaced = None
        alone = self._settling if path in self._shared else contextlib.nullcontext()
        with alone, self._lock:  # nobody syncs the one that is replaced
            shared = self._shared.get(path)
            if shared is not None:
                replaced, shared.below, shared.read_only = shared.below, below, read_only
            else:
                relative = posixpath.relpath(path, self._directory)
                shared = self._shared[path] = SharedFile(path, relative, below, read_only)
            handle = self._handle(shared)
        if replaced is not None:
            with contextlib.suppress(OSError):  # nothing depends on it
                replaced.close()
        if made:
            shared.forget()  # what was written to one that is gone
            self._pending.pop(shared, None)
            shared.dirty = True
            self._running().create_file(shared.relative)
        return handle

    def _usable(self, path: str, read_only: bool) -> SharedFile | None:
        """One that is open, and is the one at this path. With handles it stays what they have opened."""
        shared = self._shared.get(path)
        if shared is None or shared.below is None or (shared.read_only and not read_only):
            return None
        return shared if shared.handles or shared.below.is_at(path) else None

    def _handle(self, shared: SharedFile) -> JournaledFile:
        shared.users += 1
        shared.handles += 1
        self._unsynced.pop(shared, None)
        return JournaledFile(self, shared)

    def _open_below(self, path: str, create: bool, read_only: bool) -> File:
        """Without a descriptor for it, those are given back that wait for a sync only."""
        try:
            return self._fs.open(path, create=create, read_only=read_only)
        except OSError as error:
            if error.errno not in OUT_OF_RESOURCES or not self._unsynced:
                raise
            with self._settling:
                self._close_unsynced()
        return self._fs.open(path, create=create, read_only=read_only)

    def _before_creating(self, path: str) -> None:
        """A crash leaves names of empty files that no commit speaks of: as many in a directory as the engine
        expects of one segment. `OSError`."""
        self.check()
        directory = posixpath.dirname(path)
        if self._created.get(directory, 0) >= _UNCOMMITTED_NAMES:
            self._commit_now()
        self._created[directory] = self._created.get(directory, 0) + 1

    def closed(self, shared: SharedFile) -> None:
        """A handle was closed."""
        with self._lock:
            shared.handles -= 1
        self._let_go(shared)
        if len(self._unsynced) >= 2 * _UNSYNCED_OPEN:
            with self._settling, contextlib.suppress(OSError):  # which has ended the journal
                self._close_unsynced()

    def listdir(self, path: str) -> list[str]:
        """See the seam."""
        return self._fs.listdir(path)

    def is_dir(self, path: str) -> bool:
        """See the seam."""
        return self._fs.is_dir(path)

    def exists(self, path: str) -> bool:
        """See the seam."""
        return self._fs.exists(path)

    def make_dir(self, path: str) -> None:
        """See the seam."""
        if self.journaling:
            self.check()
        self._fs.make_dir(path)
        if self.journaling:
            self._running().make_dir(posixpath.relpath(path, self._directory))

    def unlink(self, path: str) -> None:
        """See the seam."""
        if not self.journaling:
            self._fs.unlink(path)
            return
        self.check()
        self._running().unlink(posixpath.relpath(path, self._directory))
        self._commit()
        with self._lock:
            shared = self._shared.pop(path, None)
        if shared is not None:  # its handles are those of a file without a name
            shared.forget()
            self._pending.pop(shared, None)
            self._drop(shared)
        self._make_committed(lambda: self._fs.unlink(path))
        self._make_when_due()

    def sync_dir(self, path: str) -> None:
        """See the seam: names are in the journal."""
        if self.journaling:
            self.check()
        else:
            self._fs.sync_dir(path)


def _ready(journal: Journal) -> list[JournalFile]:
    """Full files that can be settled, oldest first: none before one that cannot."""
    return list(takewhile(lambda file: file.made, journal.unsettled()))
