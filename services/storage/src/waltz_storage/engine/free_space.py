"""Room on the disk: appends are refused cleanly before the file system is full, and again taken when there is
room.

A file system that is full to its last block answers in the middle of a write, and a node may need that block
itself: for a control entry, a fence, an index. So a reserve is kept: what would take the free space below it
is refused before the first byte is written. Reads, marks, fences and truncations continue.

Invariants:

* A refusal changes nothing on the disk and nothing in the partition.
* Once refused, appends are taken again when there is a quarter of the reserve more than the reserve: a
  replica at the edge does not come and go with every record. Looking costs one `statvfs` and needs no
  restart. It finds no room while the append that was refused last would be refused again.
* When the free space cannot be read, appends continue and the write itself shows whether there is any, until
  the next `FreeSpace.refresh` that succeeds. No append reads it before that: on a failing file system that
  may take long.
* The figures are the file system's; several jobs may look at the same time, so the reserve has to be larger
  than what all disk threads write in one job each. Where the figures promise room that is not there (quotas),
  the write says so.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from waltz_storage.engine.errors import DiskFullError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""What a system call says that found no room."""

DEFAULT_RESERVE_SHARE = 50
DEFAULT_MAX_RESERVE_BYTES = 1 << 30
_MARGIN_SHARE = 4
_SOME_ROOM_BYTES = 1 << 20  # without a reserve: with so much free a disk that was full counts as not full


class DiskUsage(NamedTuple):
    """The file system below a storage directory, in bytes. `free_bytes`: what this process may still
    take."""

    size_bytes: int
    free_bytes: int


def default_reserve(usage: DiskUsage) -> int:
    """Bytes kept free when nothing is configured: a fiftieth of the file system, 1 GiB at most."""
    return min(usage.size_bytes // DEFAULT_RESERVE_SHARE, DEFAULT_MAX_RESERVE_BYTES)


class FreeSpace:
    """One file system's room, shared by all partitions of a directory. Any thread may ask."""

    def __init__(self, look: Callable[[], DiskUsage] | None = None, reserve_bytes: int = 0) -> None:
        """`look` may raise `OSError`; without it, or without a reserve, nothing is refused beforehand."""
        self._look = look
        self.reserve_bytes = reserve_bytes if look is not None else 0
        self._blind = False  # the last look failed
        self.full: str | None = None
        """Why appends are refused now, or were when the last one was tried."""
        self._refused_bytes = 0  # what the append asked for that found no room
        self.held: str | None = None
        """Set by the journal while it holds what finds no room in its files: no append is taken."""
        self.promised_bytes = 0
        """What the journal holds and will write into the files."""
        self._free_bytes: int | None = None  # as seen in this batch, less what was taken since
        self._in_batch = False

    @property
    def refused(self) -> str | None:
        """Why appends are refused, for whichever reason; None while they are taken."""
        return self.held or self.full

    def usage(self) -> DiskUsage | None:
        """Its state; `None` when it is not known. `OSError` when the query failed."""
        return None if self._look is None else self._look()

    def take(self, size_bytes: int) -> None:
        """Before so many bytes are written. `DiskFullError` when they would touch the reserve."""
        if self.held is not None:
            raise DiskFullError(self.held)
        try:
            if self.reserve_bytes and not self._blind:
                self._take(size_bytes)
            else:
                self.full = None  # only the write itself shows it
        except OSError:
            self._blind, self.full = True, None
        if self.full is not None:
            raise DiskFullError(self.full)

    def batch_begins(self) -> None:
        """What follows until `batch_ends` is one batch, for which one observation of the disk is enough: only
        its own appends take space meanwhile."""
        self._in_batch, self._free_bytes = True, None

    def batch_ends(self) -> None:
        """See `batch_begins`."""
        self._in_batch, self._free_bytes = False, None

    def refresh(self) -> None:
        """Look again without writing: the reason is gone when there is room, also for what was refused.
        `OSError` when looking failed."""
        if self.reserve_bytes:
            usage = self.usage()
            if usage is not None:
                self._refresh(0 if self.full is None else self._refused_bytes, usage.free_bytes)
            self._blind = False
        elif (
            self.full is not None
            and (usage := self.usage()) is not None
            and usage.free_bytes >= _SOME_ROOM_BYTES
        ):
            self.full = None

    def _take(self, size_bytes: int) -> None:
        """Within a batch what was seen counts, less what was taken since."""
        free_bytes = self._free_bytes
        if free_bytes is None:
            usage = self.usage()
            if usage is None:
                return
            free_bytes = usage.free_bytes
        self._refresh(size_bytes, free_bytes)
        if self._in_batch and self.full is None:
            self._free_bytes = free_bytes - size_bytes

    def _refresh(self, size_bytes: int, free_bytes: int) -> None:
        enough = self.reserve_bytes + self.reserve_bytes // _MARGIN_SHARE
        free_bytes -= self.promised_bytes
        fits = free_bytes - size_bytes >= self.reserve_bytes
        if fits and (self.full is None or free_bytes >= enough):
            self.full = None
        elif self.full is None:
            self._refused_bytes = size_bytes
            self.full = (
                f"the disk is full: all but the reserve of {self.reserve_bytes:,} bytes is used, "
                f"appends continue when {max(enough, self.reserve_bytes + size_bytes):,} bytes are free"
            )

    def ran_out(self, error: OSError) -> None:
        """A write found no room although there should be some."""
        self._refused_bytes = 0  # how much it asked for is not known
        self.full = f"the disk is full: {error.strerror}"
