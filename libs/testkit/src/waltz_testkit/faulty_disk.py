"""An in-memory disk that breaks the way disks break; it stands behind the storage engine's file seam.

Model. Every file has what programs see and what the platter holds. A write goes to the first and becomes a list of
*pending* operations; a sync applies the pending ones to the platter. At a crash every pending operation may or may
not have reached it, writes sector by sector (512 bytes) in any order; names that were created or deleted without a
directory sync may or may not be there. A failed sync throws the pending operations away but leaves what programs
see as it is: pages look clean and are not on the disk, as on Linux.

Every system call is counted and recorded, so a test can stop the world before any of them
(:attr:`FaultyDisk.crash_before`).
"""

from __future__ import annotations

import enum
import errno
import os
import posixpath
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

SECTOR_SIZE = 512


class CrashError(BaseException):
    """The machine stops here. Not an ``Exception``: no handler of the code under test may catch it."""


class CrashMode(enum.Enum):
    """What becomes of unsynced changes."""

    KEEP = "keep"  # only the process died: everything written is there
    LOSE = "lose"  # nothing unsynced survives
    SOME = "some"  # any subset of sectors, cuts and names, by the given random numbers


@dataclass
class _Write:
    offset: int
    data: bytes


@dataclass
class _Cut:
    size: int


@dataclass
class _Inode:
    seen: bytearray = field(default_factory=bytearray)
    platter: bytearray = field(default_factory=bytearray)
    pending: list[_Write | _Cut] = field(default_factory=list)
    locked_by: object | None = None


def _apply(target: bytearray, change: _Write | _Cut) -> None:
    if isinstance(change, _Cut):
        if change.size < len(target):
            del target[change.size :]
        else:
            target.extend(bytes(change.size - len(target)))
        return
    end = change.offset + len(change.data)
    if len(target) < end:
        target.extend(bytes(end - len(target)))
    target[change.offset : end] = change.data


def _sectors(write: _Write) -> list[_Write]:
    pieces: list[_Write] = []
    position, end = write.offset, write.offset + len(write.data)
    while position < end:
        stop = min(end, position - position % SECTOR_SIZE + SECTOR_SIZE)
        pieces.append(_Write(position, write.data[position - write.offset : stop - write.offset]))
        position = stop
    return pieces


class FaultyFile:
    """An open file of a :class:`FaultyDisk`."""

    def __init__(self, disk: FaultyDisk, path: str, inode: _Inode, read_only: bool) -> None:
        self._disk, self.path, self._inode, self._read_only = disk, path, inode, read_only

    def pread(self, size: int, offset: int) -> bytes:
        """Reads are not counted: a crash before a read is a crash after the write before it."""
        self._disk.check_alive()
        if self._disk.fail_read is not None and self._disk.fail_read in self.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        return bytes(self._inode.seen[offset : offset + size])

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """Takes all, a part (short write, disk nearly full) or raises ENOSPC."""
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        raw = bytes(data)
        self._disk.call("pwrite", self.path, offset, len(raw))
        taken = self._disk.room(self._inode, offset, len(raw))
        change = _Write(offset, raw[:taken])
        _apply(self._inode.seen, change)
        self._inode.pending.append(change)
        return taken

    def pwritev(self, parts: Sequence[bytes], offset: int) -> int:
        """Like :meth:`pwrite` with the joined parts."""
        return self.pwrite(b"".join(parts), offset)

    def truncate(self, size: int) -> None:
        """Set the size."""
        self._disk.call("truncate", self.path, size)
        change = _Cut(size)
        _apply(self._inode.seen, change)
        self._inode.pending.append(change)

    def sync(self) -> None:
        """Pending changes reach the platter, or the sync fails and they are gone for good."""
        self._disk.call("sync", self.path)
        if self._disk.take_sync_failure(self.path):
            self._inode.pending.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        for change in self._inode.pending:
            _apply(self._inode.platter, change)
        self._inode.pending.clear()

    def size(self) -> int:
        """Size programs see."""
        self._disk.check_alive()
        return len(self._inode.seen)

    def lock(self, size: int) -> bool:
        """One holder per file."""
        self._disk.call("lock", self.path, size)
        if self._inode.locked_by not in (None, self):
            return False
        self._inode.locked_by = self
        return True

    def close(self) -> None:
        """Unlocks; never syncs."""
        if self._inode.locked_by is self:
            self._inode.locked_by = None


class FaultyDisk:
    """The disk. Set the public attributes to make it fail."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, _Inode | None]] = {
            "/": {}
        }  # directory -> name -> file (None: directory)
        self._platter_names: dict[str, dict[str, _Inode | None]] = {"/": {}}
        self.calls: list[tuple[object, ...]] = []
        self.crash_before: int | None = None  # index into calls
        self.capacity_bytes: int | None = None
        self.short_writes = False  # every write takes at most 7 bytes
        self.fail_sync: str | None = None  # substring of a path; stays until cleared
        self.fail_sync_once: str | None = None
        self.fail_read: str | None = None
        self.read_only = False
        self._crashed = False

    # -- the file seam ---------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        """See the seam."""
        self.check_alive()
        directory, name = posixpath.split(path)
        names = self._directory(directory)
        if self.read_only and not read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        if name not in names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.call("create", path)
            names[name] = _Inode()
        inode = names[name]
        if inode is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return FaultyFile(self, path, inode, read_only)

    def listdir(self, path: str) -> list[str]:
        """See the seam."""
        self.check_alive()
        return list(self._directory(path))

    def is_dir(self, path: str) -> bool:
        """See the seam."""
        self.check_alive()
        return path in self._names

    def exists(self, path: str) -> bool:
        """See the seam."""
        self.check_alive()
        directory, name = posixpath.split(path)
        return path in self._names or name in self._names.get(directory, {})

    def make_dir(self, path: str) -> None:
        """See the seam."""
        self.call("make_dir", path)
        directory, name = posixpath.split(path)
        self._directory(directory)[name] = None
        self._names[path] = {}

    def unlink(self, path: str) -> None:
        """See the seam."""
        self.call("unlink", path)
        directory, name = posixpath.split(path)
        if self._directory(directory).pop(name, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def sync_dir(self, path: str) -> None:
        """See the seam."""
        self.call("sync_dir", path)
        if self.take_sync_failure(path + "/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        names = self._directory(path)
        self._platter_names[path] = dict(names)
        for name, inode in names.items():
            if inode is None:
                self._platter_names.setdefault(posixpath.join(path, name), {})

    # -- faults ----------------------------------------------------------------------------------------

    def call(self, *what: object) -> None:
        """Count a changing system call; stop the world when it is the chosen one."""
        self.check_alive()
        if self.crash_before is not None and len(self.calls) >= self.crash_before:
            self._crashed = True
            raise CrashError(str(what))
        self.calls.append(what)

    def check_alive(self) -> None:
        """Nothing works between a crash and :meth:`restart`."""
        if self._crashed:
            raise CrashError("the machine is down")

    def room(self, inode: _Inode, offset: int, size: int) -> int:
        """How many bytes of a write fit."""
        if self.short_writes:
            size = min(size, 7)
        if self.capacity_bytes is None:
            return size
        growth = max(0, offset + size - len(inode.seen))
        used = sum(len(f.seen) for names in self._names.values() for f in names.values() if f is not None)
        missing = used + growth - self.capacity_bytes
        if missing <= 0:
            return size
        if size - missing <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size - missing

    def take_sync_failure(self, path: str) -> bool:
        """True when this sync is to fail."""
        if self.fail_sync_once is not None and self.fail_sync_once in path:
            self.fail_sync_once = None
            return True
        return self.fail_sync is not None and self.fail_sync in path

    def restart(self, mode: CrashMode, rng: random.Random | None = None) -> None:
        """Power comes back: what programs see now is what reached the platter in the given way."""
        chance = rng if rng is not None else random.Random(0)
        self._crashed, self.crash_before, self.calls = False, None, []
        self._settle_names(mode, chance)
        for names in self._names.values():
            for inode in names.values():
                if inode is not None:
                    _settle(inode, mode, chance)

    def _settle_names(self, mode: CrashMode, chance: random.Random) -> None:
        if mode is CrashMode.KEEP:
            return
        settled: dict[str, dict[str, _Inode | None]] = {"/": {}}
        queue = ["/"]
        while queue:
            path = queue.pop()
            seen, platter = self._names.get(path, {}), self._platter_names.get(path, {})
            for name in sorted({*seen, *platter}):
                changed = seen.get(name, self) is not platter.get(name, self)
                source = seen if changed and mode is CrashMode.SOME and chance.random() < 0.5 else platter
                if name in source:
                    settled[path][name] = source[name]
                    if source[name] is None:
                        child = posixpath.join(path, name)
                        settled[child] = {}
                        queue.append(child)
        self._names = settled
        self._platter_names = {path: dict(names) for path, names in settled.items()}

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Bit rot, on the platter and in memory."""
        inode = self._file(path)
        for image in (inode.seen, inode.platter):
            if offset < len(image):
                image[offset] ^= 1 << bit

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Change bytes behind everybody's back, durably."""
        inode = self._file(path)
        for image in (inode.seen, inode.platter):
            _apply(image, _Write(offset, data))

    def set_size(self, path: str, size: int) -> None:
        """Change a size behind everybody's back, durably."""
        inode = self._file(path)
        for image in (inode.seen, inode.platter):
            _apply(image, _Cut(size))

    def content(self, path: str) -> bytes:
        """What programs see."""
        return bytes(self._file(path).seen)

    def put(self, path: str, data: bytes) -> None:
        """A durable file, as another program left it."""
        directory, name = posixpath.split(path)
        for names in (self._names, self._platter_names):
            names.setdefault(directory, {})
        inode = _Inode(bytearray(data), bytearray(data))
        self._names[directory][name] = self._platter_names[directory][name] = inode

    def add_dir(self, path: str) -> None:
        """A durable directory."""
        directory, name = posixpath.split(path)
        for names in (self._names, self._platter_names):
            names.setdefault(directory, {})[name] = None
            names.setdefault(path, {})

    def remove(self, path: str) -> None:
        """A file vanishes behind everybody's back."""
        directory, name = posixpath.split(path)
        for names in (self._names, self._platter_names):
            names[directory].pop(name, None)

    def files(self) -> dict[str, bytes]:
        """Every file by path."""
        return {
            posixpath.join(directory, name): bytes(inode.seen)
            for directory, names in sorted(self._names.items())
            for name, inode in sorted(names.items())
            if inode is not None
        }

    def _directory(self, path: str) -> dict[str, _Inode | None]:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def _file(self, path: str) -> _Inode:
        directory, name = posixpath.split(path)
        inode = self._directory(directory)[name]
        if inode is None:
            raise IsADirectoryError(path)
        return inode


def _settle(inode: _Inode, mode: CrashMode, chance: random.Random) -> None:
    inode.locked_by = None
    if mode is CrashMode.KEEP:
        return  # the page cache lives on, pending writes included
    if mode is CrashMode.SOME:
        for change in inode.pending:
            pieces = _sectors(change) if isinstance(change, _Write) else [change]
            for piece in pieces:
                grows = isinstance(piece, _Cut) and piece.size > len(inode.platter)
                if not grows and chance.random() < 0.5:  # a cut of bytes that never arrived changes nothing
                    _apply(inode.platter, piece)
    inode.pending.clear()
    inode.seen = bytearray(inode.platter)
