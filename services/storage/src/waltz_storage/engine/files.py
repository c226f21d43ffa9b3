"""The disk seam: the few system calls the engine makes, as protocols, and the real ones.

A `FileSystem` is everything the engine knows of a disk. Tests put a faulty in-memory disk behind it
and a simulator a virtual one. `OSError` passes through unchanged: the caller knows what it was doing. Only
`sync_dir`, which is two things at once, says itself that it did not come to the sync.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from typing import Protocol

import structlog

from waltz_storage.engine.errors import OutOfResourcesError
from waltz_storage.engine.free_space import DiskUsage

OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What a system call says that could not be made; nothing is known about the disk then."""
_MAX_PARTS = 1024  # IOV_MAX on Linux
_FILE_MODE, _DIRECTORY_MODE = (
    0o600,
    0o700,
)  # the node's user alone reads what the node makes, whatever the umask
_NO_CHMOD = (errno.EPERM, errno.ENOTSUP, errno.EROFS)
"""What a file system says that has no modes of its own, as some of CIFS, FUSE and NFS."""
_NOT_THE_OWNER = stat.S_IRWXG | stat.S_IRWXO


log = structlog.get_logger(__name__)


class File(Protocol):
    """An open file. Offsets and sizes in bytes."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """Write; returns how many bytes were taken, which may be fewer."""
        ...

    def pwritev(self, parts: Sequence[bytes], offset: int) -> int:
        """Write parts back to back; returns how many bytes were taken, which may be fewer."""
        ...

    def truncate(self, size: int) -> None:
        """Set the size."""
        ...

    def sync(self) -> None:
        """fdatasync: data and size are on the disk when this returns."""
        ...

    def size(self) -> int:
        """Size in bytes."""
        ...

    def allocated(self) -> int:
        """Bytes of disk that it has: fewer than its size where it has holes."""
        ...

    def is_at(self, path: str) -> bool:
        """Whether the path leads to this file: another one may have been put there."""
        ...

    def lock(self, size: int) -> bool:
        """Exclusive record lock on bytes 0..size-1, held until close; False when somebody else has it."""
        ...

    def close(self) -> None:
        """Close; never syncs."""
        ...


class FileSystem(Protocol):
    """What the engine needs of a disk. Paths are plain strings."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing; `create` makes a missing file. `OSError`, with the path, for what is
        not a regular file: nothing waits for the other end of a named pipe."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, in no particular order."""
        ...

    def is_dir(self, path: str) -> bool:
        """True for an existing directory. `OSError` when that is not known."""
        ...

    def exists(self, path: str) -> bool:
        """True for anything that exists. `OSError` when that is not known."""
        ...

    def make_dir(self, path: str) -> None:
        """Create one directory."""
        ...

    def unlink(self, path: str) -> None:
        """Delete one file."""
        ...

    def sync_dir(self, path: str) -> None:
        """Names created and deleted in this directory are on the disk when this returns.

        `OutOfResourcesError`: the directory could not be opened now, so nothing was tried and nothing
        is lost.
        """
        ...


def write_fully(file: File, data: bytes | memoryview, offset: int) -> None:
    """Write all bytes, continuing after short writes; a write that takes nothing counts as a full disk."""
    view = memoryview(data)
    while view:
        taken = file.pwrite(view, offset)
        if taken <= 0:
            raise OSError(errno.ENOSPC, "the disk took no bytes")
        view = view[taken:]
        offset += taken


def write_parts_fully(file: File, parts: Sequence[bytes], offset: int) -> None:
    """Write parts back to back without joining them, continuing after short writes."""
    if len(parts) == 1:  # the usual one
        taken = file.pwritev(parts, offset)
        if taken < len(parts[0]):
            write_fully(file, memoryview(parts[0])[max(taken, 0) :], offset + max(taken, 0))
        return
    for start in range(0, len(parts), _MAX_PARTS):
        chunk = parts[start : start + _MAX_PARTS]
        total = sum(map(len, chunk))
        taken = file.pwritev(chunk, offset)
        if taken < total:
            write_fully(file, memoryview(b"".join(chunk))[max(taken, 0) :], offset + max(taken, 0))
        offset += total


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pread(self, size: int, offset: int) -> bytes:
        """See `File`."""
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """See `File`."""
        return os.pwrite(self._fd, data, offset)

    def pwritev(self, parts: Sequence[bytes], offset: int) -> int:
        """See `File`."""
        if len(parts) == 1:
            return os.pwrite(self._fd, parts[0], offset)
        return os.pwritev(self._fd, parts, offset)

    def truncate(self, size: int) -> None:
        """See `File`."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """See `File`."""
        os.fdatasync(self._fd)

    def size(self) -> int:
        """See `File`."""
        return os.fstat(self._fd).st_size

    def allocated(self) -> int:
        """See `File`."""
        return os.fstat(self._fd).st_blocks * 512

    def is_at(self, path: str) -> bool:
        """See `File`."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._fd))
        except OSError:
            return False

    def lock(self, size: int) -> bool:
        """See `File`. A POSIX record lock, as release 0.13.2 takes it."""
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, size, 0)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def close(self) -> None:
        """See `File`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsFileSystem:
    """The operating system's files."""

    def __init__(self) -> None:
        self._warned = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        """See `FileSystem`."""
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        # Without O_NONBLOCK the opening of a named pipe waits for its other end. For files it means nothing.
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, _FILE_MODE)
        try:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file", path)
            if not read_only:
                self._close_to_others(path, fd, facts)
        except BaseException:
            os.close(fd)
            raise
        return OsFile(path, fd)

    def _close_to_others(self, path: str, fd: int, facts: os.stat_result) -> None:
        """A file system that refuses that is named once in the log."""
        try:
            _close_to_others(fd, facts, _NOT_THE_OWNER)
        except OSError as error:
            if error.errno not in _NO_CHMOD:
                raise
            if not self._warned:
                log.warning(
                    "files of the storage directory may be open to other users",
                    path=path,
                    reason=error.strerror,
                )
            self._warned = True

    def listdir(self, path: str) -> list[str]:
        """See `FileSystem`."""
        return os.listdir(path)

    def is_dir(self, path: str) -> bool:
        """See `FileSystem`."""
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def exists(self, path: str) -> bool:
        """See `FileSystem`."""
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def make_dir(self, path: str) -> None:
        """See `FileSystem`."""
        os.mkdir(path, _DIRECTORY_MODE)

    def unlink(self, path: str) -> None:
        """See `FileSystem`."""
        os.unlink(path)

    def sync_dir(self, path: str) -> None:
        """See `FileSystem`."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in OUT_OF_RESOURCES:
                raise OutOfResourcesError(f"{path}: {error.strerror}") from error
            raise
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def close_to_others(directory: str) -> None:
    """Nobody but owner and group may enter a directory of ours. `OSError`.

    The group keeps what it has: on Kubernetes it is how a pod gets at its volume (`fsGroup`). One that
    belongs to another user is left as it is.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _close_to_others(fd, os.fstat(fd), stat.S_IRWXO)
    finally:
        os.close(fd)


def _close_to_others(fd: int, facts: os.stat_result, rights: int) -> None:
    """Take rights of others away from a file or directory of ours that was made wider: by 0.13.2, or by
    a person."""
    if facts.st_mode & rights and facts.st_uid == os.geteuid():
        os.fchmod(fd, stat.S_IMODE(facts.st_mode) & ~rights)


def reason_of(error: Exception) -> str:
    """What failed, in one line, with the path if the error names one."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def disk_usage(directory: str) -> DiskUsage:
    """The file system a directory is on. `OSError` when it cannot be asked."""
    facts = os.statvfs(directory)
    return DiskUsage(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)


def join(directory: str, name: str) -> str:
    """Path of a name in a directory."""
    return os.path.join(directory, name)
