"""An in-memory disk that breaks the way disks break; it is used through the storage engine's file seam.

Model. Every file has what programs see and what the platter holds. A write goes to the first and becomes a
list of *pending* operations; a sync applies the pending ones to the platter. At a crash every pending
operation may or may not have reached it, writes sector by sector (512 bytes) in any order; names that were
created or deleted without a directory sync may or may not be there. A failed sync throws the pending
operations away but leaves what programs see as it is: pages look clean and are not on the disk, as on Linux.
So does writing in the background that fails (`FaultyDisk.fail_write_back`). Each handle that was open at the
time gets the error from its next sync; one that is opened later gets none.

Every system call is counted and recorded, so a test can stop the world before any of them
(`FaultyDisk.crash_before`).
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from waltz_testkit.disk_image import SECTOR_SIZE, CrashMode, Cut, Flight, Inode, Write, apply


class CrashError(BaseException):
    """The machine stops here. Not an `Exception`: no handler of the code under test may catch it."""


class LostWrite(NamedTuple):
    """An order to a disk: the next sync of a file whose path matches reports success, and one sector
    was not written. `evicted`: programs read the old content from then on, else after a crash."""

    matches: Callable[[str], bool]
    chance: random.Random
    evicted: bool
    happened: Callable[[str, int], object]
    """Called with the path and the first byte of the sector."""


class FaultyFile:
    """An open file of a `FaultyDisk`."""

    def __init__(self, disk: FaultyDisk, path: str, inode: Inode, read_only: bool) -> None:
        self._disk, self.path, self._inode, self._read_only = disk, path, inode, read_only
        self._known_failures = inode.failures

    def pread(self, size: int, offset: int) -> bytes:
        """Reads are not counted: a crash before a read is a crash after the write before it."""
        self._disk.check_alive()
        if self._disk.fail_read is not None and self._disk.fail_read in self.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        return bytes(memoryview(self._inode.seen)[offset : offset + size])

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """Takes all, a part (short write, disk nearly full) or raises ENOSPC."""
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        raw = bytes(data)
        self._disk.call("pwrite", self.path, offset, len(raw))
        taken = self._disk.room(self._inode, offset, len(raw))
        self._inode.change(Write(offset, raw[:taken], self._disk.now()))
        return taken

    def pwritev(self, parts: Sequence[bytes], offset: int) -> int:
        """Like `pwrite` with the joined parts."""
        return self.pwrite(b"".join(parts), offset)

    def truncate(self, size: int) -> None:
        """Set the size."""
        self._disk.call("truncate", self.path, size)
        self._inode.change(Cut(size, self._disk.now()))

    def sync(self) -> None:
        """Pending changes reach the platter, or the sync fails and they are gone for good."""
        self._disk.call("sync", self.path)
        if self._disk.take_sync_failure(self.path):
            self._disk.fail_changes(self._inode)
        if self._known_failures < self._inode.failures:
            self._known_failures = self._inode.failures
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        lost = self._disk.take_lost_write(self.path, self._inode)
        flight = self._inode.begin_sync(self._disk.now())
        if lost is None:
            self._disk.when_done(lambda: self._inode.land(flight))
        else:
            self._disk.when_done(lambda: self._land_without(flight, *lost))

    def _land_without(self, flight: Flight, start: int, evicted: bool) -> None:
        self._inode.land(flight)
        if evicted:
            self._inode.forget_page(start)

    def write_back(self, keep: int) -> None:
        """The kernel writes all but the newest `keep` pending changes on its own, as it does after a
        while."""
        self._inode.write_back(keep, self._disk.now())

    @property
    def pending(self) -> int:
        """How many changes no sync has taken yet."""
        return len(self._inode.pending)

    def size(self) -> int:
        """Size programs see."""
        self._disk.check_alive()
        return len(self._inode.seen)

    def allocated(self) -> int:
        """This disk has no holes."""
        return self.size()

    def is_at(self, path: str) -> bool:
        """Not counted, as a read."""
        return self._disk.inode_at(path) is self._inode

    def lock(self, size: int, owner: object = None) -> bool:
        """One owner per file; without `owner` this handle."""
        self._disk.call("lock", self.path, size)
        owner = self if owner is None else owner
        if self._inode.locked_by not in (None, owner):
            return False
        self._inode.locked_by = owner
        return True

    def close(self, owner: object = None) -> None:
        """Unlocks what the owner has locked, by whatever handle (as POSIX does for a process); never
        syncs."""
        if self._inode.locked_by is (self if owner is None else owner):
            self._inode.locked_by = None


class FaultyDisk:
    """The disk. Set the public attributes to make it fail."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, Inode | None]] = {
            "/": {}
        }  # directory -> name -> file (None: directory)
        self._platter_names: dict[str, dict[str, Inode | None]] = {"/": {}}
        self.calls: list[tuple[object, ...]] = []
        self.crash_before: int | None = None  # index into calls
        self.capacity_bytes: int | None = None
        self.short_writes = False  # every write takes at most 7 bytes
        self.fail_sync: str | None = None  # substring of a path; stays until cleared
        self.fail_sync_once: str | None = None
        self.fail_read: str | None = None
        self.fail_look: str | None = None  # end of a path; whether it is there is not known
        self.lose_write: LostWrite | None = None  # ordered: the next sync of such a file loses a sector
        self.failed_sync_drops_pages = False  # else they look clean, and are lost at the next crash only
        self.read_only = False
        self._crashed = False
        self._changed_at: dict[
            str, dict[str, float]
        ] = {}  # directory -> name -> when it was made or taken away
        self._dir_syncs = 0
        self._landed_dir_syncs: dict[str, int] = {}

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
            names[name] = Inode()
            self._name_changed(directory, name)
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
        self._look(path)
        return path in self._names

    def exists(self, path: str) -> bool:
        """See the seam."""
        self._look(path)
        directory, name = posixpath.split(path)
        return path in self._names or name in self._names.get(directory, {})

    def inode_at(self, path: str) -> Inode | None:
        """The file that programs see there."""
        directory, name = posixpath.split(path)
        return self._names.get(directory, {}).get(name)

    def _look(self, path: str) -> None:
        self.check_alive()
        if self.fail_look is not None and path.endswith(self.fail_look):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def make_dir(self, path: str) -> None:
        """See the seam."""
        self.call("make_dir", path)
        directory, name = posixpath.split(path)
        self._directory(directory)[name] = None
        self._names[path] = {}
        self._name_changed(directory, name)

    def unlink(self, path: str) -> None:
        """See the seam."""
        self.call("unlink", path)
        directory, name = posixpath.split(path)
        if self._directory(directory).pop(name, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._name_changed(directory, name)

    def sync_dir(self, path: str) -> None:
        """See the seam."""
        self.call("sync_dir", path)
        if self.take_sync_failure(path + "/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        seen, platter = self._directory(path), self._platter_names.get(path, {})
        changed, now = self._changed_at.get(path, {}), self.now()
        # made or taken away after this, by a job that runs ahead of its time
        late = {name for name, at in changed.items() if at > now}
        names = {name: inode for name, inode in seen.items() if name not in late}
        names |= {name: inode for name, inode in platter.items() if name in late}
        number = self._dir_syncs = self._dir_syncs + 1
        self.when_done(lambda: self._land_names(path, names, number))

    def _name_changed(self, directory: str, name: str) -> None:
        self._changed_at.setdefault(directory, {})[name] = self.now()

    def _land_names(self, path: str, names: dict[str, Inode | None], number: int) -> None:
        if number < self._landed_dir_syncs.get(path, 0):
            return  # a later one, which knew as much, is there already
        self._landed_dir_syncs[path] = number
        self._platter_names[path] = names
        for name, inode in names.items():
            if inode is None:
                self._platter_names.setdefault(posixpath.join(path, name), {})

    # -- time: a disk of unit tests has none ---------------------------------------------------------------

    def now(self) -> float:
        """Seconds; every change carries the time at which it was made."""
        return 0.0

    def when_done(self, land: Callable[[], None]) -> None:
        """A sync has begun: call `land` when it is done."""
        land()

    # -- faults ----------------------------------------------------------------------------------------

    def call(self, *what: object) -> None:
        """Count a changing system call; stop the world when it is the chosen one."""
        self.check_alive()
        if self.crash_before is not None and len(self.calls) >= self.crash_before:
            self._crashed = True
            raise CrashError(str(what))
        self.calls.append(what)

    def check_alive(self) -> None:
        """Nothing works between a crash and `restart`."""
        if self._crashed:
            raise CrashError("the machine is down")

    def room(self, inode: Inode, offset: int, size: int) -> int:
        """How many bytes of a write fit."""
        if self.short_writes:
            size = min(size, 7)
        if self.capacity_bytes is None:
            return size
        growth = max(0, offset + size - len(inode.seen))
        missing = self.used_bytes() + growth - self.capacity_bytes
        if missing <= 0:
            return size
        if size - missing <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size - missing

    def used_bytes(self) -> int:
        """Sizes of all files together."""
        return sum(len(f.seen) for names in self._names.values() for f in names.values() if f is not None)

    def unsynced(self) -> bool:
        """True when a crash could lose something: bytes, sizes or names."""
        return any(
            inode is not None and (inode.unsynced or self._platter_names.get(path, {}).get(name) is not inode)
            for path, names in self._names.items()
            for name, inode in names.items()
        ) or any(
            name not in self._names.get(p, {}) for p, names in self._platter_names.items() for name in names
        )

    def fails_syncs(self, path: str) -> bool:
        """True when the next sync of this path is going to fail."""
        ordered = (self.fail_sync, self.fail_sync_once)
        return any(part is not None and part in path for part in ordered)

    def take_sync_failure(self, path: str) -> bool:
        """True when this sync is to fail."""
        if self.fail_sync_once is not None and self.fail_sync_once in path:
            self.fail_sync_once = None
            return True
        return self.fail_sync is not None and self.fail_sync in path

    def fail_changes(self, inode: Inode) -> None:
        """What was changed until now is thrown away."""
        inode.fail_sync(drop_pages=self.failed_sync_drops_pages, now=self.now())

    def fail_write_back(self, part: str) -> None:
        """The kernel writes files whose path has `part` in it on its own, and that fails. A file without
        pending changes is not written."""
        for directory, names in self._names.items():
            for name, inode in names.items():
                if inode is not None and inode.pending and part in posixpath.join(directory, name):
                    self.fail_changes(inode)

    def take_lost_write(self, path: str, inode: Inode) -> tuple[int, bool] | None:
        """When this sync is to lose a sector: its first byte, and whether programs see that at once."""
        order = self.lose_write
        if order is None or not order.matches(path):
            return None
        start = inode.lose_sector(order.chance, self.now())
        if start is None:
            return None
        self.lose_write = None
        order.happened(path, start)
        return start, order.evicted

    def restart(self, mode: CrashMode, rng: random.Random | None = None, share: float = 0.5) -> None:
        """Power comes back: what programs see now is what reached the platter in the given way.

        `share`: with `CrashMode.SOME`, how likely each piece is present.
        """
        chance = rng if rng is not None else random.Random(0)
        self._crashed, self.crash_before, self.calls = False, None, []
        self._settle_names(mode, chance, share)
        for names in self._names.values():
            for inode in names.values():
                if inode is not None:
                    inode.crash(mode, chance, share, self.now())

    def _settle_names(self, mode: CrashMode, chance: random.Random, share: float) -> None:
        if mode is CrashMode.KEEP:
            return
        settled: dict[str, dict[str, Inode | None]] = {"/": {}}
        queue = ["/"]
        while queue:
            path = queue.pop()
            seen, platter = self._names.get(path, {}), self._platter_names.get(path, {})
            changed_at = self._changed_at.get(path, {})
            for name in sorted({*seen, *platter}):
                changed = seen.get(name, self) is not platter.get(name, self)
                happened = changed_at.get(name, 0.0) <= self.now()
                at_stake = changed and happened and mode is CrashMode.SOME
                source = seen if at_stake and chance.random() < share else platter
                if name in source:
                    settled[path][name] = source[name]
                    if source[name] is None:
                        child = posixpath.join(path, name)
                        settled[child] = {}
                        queue.append(child)
        self._names = settled
        self._platter_names = {path: dict(names) for path, names in settled.items()}
        self._changed_at.clear()

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
            apply(image, Write(offset, data))

    def set_size(self, path: str, size: int) -> None:
        """Change a size behind everybody's back, durably."""
        inode = self._file(path)
        for image in (inode.seen, inode.platter):
            apply(image, Cut(size))

    def content(self, path: str) -> bytes:
        """What programs see."""
        return bytes(self._file(path).seen)

    def put(self, path: str, data: bytes) -> None:
        """A durable file, as another program left it."""
        directory, name = posixpath.split(path)
        for names in (self._names, self._platter_names):
            names.setdefault(directory, {})
        inode = Inode(bytearray(data), bytearray(data))
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
            names.get(directory, {}).pop(name, None)  # a directory may be there for programs only

    def remove_dir(self, path: str) -> None:
        """A directory vanishes behind everybody's back, with all that is in it."""
        self.wipe(path)
        for names in (self._names, self._platter_names):
            names.pop(path, None)
        self.remove(path)

    def durable_size(self, path: str) -> int:
        """How many bytes of a file are on the platter."""
        return len(self._file(path).platter)

    def wipe(self, path: str) -> None:
        """A directory is empty, durably, as on a new disk."""
        for names in (self._names, self._platter_names):
            for directory in [found for found in names if found.startswith(path + "/")]:
                del names[directory]
            names[path] = {}

    def directories(self) -> list[str]:
        """Every directory by path, parents first."""
        return sorted(self._names)

    def files(self) -> dict[str, bytes]:
        """Every file by path."""
        return {
            posixpath.join(directory, name): bytes(inode.seen)
            for directory, names in sorted(self._names.items())
            for name, inode in sorted(names.items())
            if inode is not None
        }

    def _directory(self, path: str) -> dict[str, Inode | None]:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def _file(self, path: str) -> Inode:
        directory, name = posixpath.split(path)
        inode = self._directory(directory)[name]
        if inode is None:
            raise IsADirectoryError(path)
        return inode


__all__ = ["SECTOR_SIZE", "CrashError", "CrashMode", "FaultyDisk", "FaultyFile", "LostWrite"]
