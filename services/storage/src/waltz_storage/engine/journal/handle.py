"""A handle of a file behind the journal: what the engine holds in place of a file of the disk."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

from waltz_storage.engine.files import File
from waltz_storage.engine.journal.shared_file import SharedFile


class ChangeSink(Protocol):
    """What takes the changes of all handles: `JournaledFiles`, which says what they mean."""

    journaling: bool
    failed: str | None

    def check(self) -> None: ...

    def written(self, shared: SharedFile, offset: int, raw: bytes) -> None: ...

    def log(self, shared: SharedFile) -> None: ...

    def cut(self, shared: SharedFile, size: int) -> None: ...

    def closed(self, shared: SharedFile) -> None: ...


class JournaledFile:
    """A handle; it is of use until it is closed, also when the journal has ended."""

    __slots__ = ("_files", "_open", "_shared", "path")

    def __init__(self, files: ChangeSink, shared: SharedFile) -> None:
        self._files, self._shared, self.path = files, shared, shared.path
        self._open = True

    @property
    def _below(self) -> File:
        below = self._shared.below
        if below is None:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return below

    def pread(self, size: int, offset: int) -> bytes:
        """See the seam."""
        return self._shared.overlay(self._below.pread(size, offset), size, offset)

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """See the seam."""
        files = self._files
        if not files.journaling:
            return self._below.pwrite(data, offset)
        files.check()
        raw = bytes(data)
        self._files.written(self._shared, offset, raw)
        return len(raw)

    def pwritev(self, parts: Sequence[bytes], offset: int) -> int:
        """See the seam."""
        files = self._files
        if not files.journaling:
            return self._below.pwritev(parts, offset)
        files.check()
        raw = parts[0] if len(parts) == 1 else b"".join(parts)
        files.written(self._shared, offset, raw)
        return len(raw)

    def truncate(self, size: int) -> None:
        """See the seam."""
        if not self._files.journaling:
            self._below.truncate(size)
        elif self.size() != size:
            self._files.cut(self._shared, size)

    def sync(self) -> None:
        """Everything written so far is in the next commit."""
        if self._files.journaling:
            self._files.log(self._shared)
        else:
            self._below.sync()

    def size(self) -> int:
        """See the seam."""
        return max(self._below.size(), self._shared.end_of_pending())

    def allocated(self) -> int:
        """See the seam."""
        return self._below.allocated()

    def is_at(self, path: str) -> bool:
        """See the seam."""
        return self._below.is_at(path)

    def lock(self, size: int) -> bool:
        """See the seam."""
        return self._below.lock(size)

    def close(self) -> None:
        """See the seam."""
        if not self._open:
            return
        self._open = False
        try:
            if self._files.journaling and self._files.failed is None:
                self._files.log(self._shared)  # whoever opens the file again may sync it
        finally:
            self._files.closed(self._shared)
