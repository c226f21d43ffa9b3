"""The disk as a program sees it that does not know some of the files on it: it keeps what it would have
written there in memory.

So the shipped storage node behaves as one of a release without these files: what they hold is forgotten with
the process, and what an earlier process of the newer release left in them stays as it was.
"""

from __future__ import annotations

import posixpath
import random

from tests.sim.kernel.disk import SimDisk, SimFile, SimFileSystem
from tests.sim.kernel.process import Process
from waltz_storage.engine.layout import SIDECAR_NAME, WITNESS_NAME
from waltz_testkit.faulty_disk import FaultyDisk

UNKNOWN = (SIDECAR_NAME, WITNESS_NAME)
"""Files that release 0.13.2 does not know."""


class OldFileSystem(SimFileSystem):
    """Neither reads nor writes the files of these names."""

    def __init__(self, disk: SimDisk, process: Process, rng: random.Random) -> None:
        super().__init__(disk, process, rng)
        self._unknown = UNKNOWN
        self._memory = FaultyDisk()

    def _is_unknown(self, path: str) -> bool:
        return posixpath.basename(path) in self._unknown

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        """See the seam."""
        if not self._is_unknown(path):
            return super().open(path, create=create, read_only=read_only)
        self.check_alive()
        self._memory.add_dir(posixpath.dirname(path))
        return SimFile(self, -1, self._memory.open(path, create=create, read_only=read_only))

    def forget(self, directory: str) -> None:
        """What is known of a directory is gone."""
        self._memory.wipe(directory)

    def listdir(self, path: str) -> list[str]:
        """See the seam."""
        return [name for name in super().listdir(path) if name not in self._unknown]

    def exists(self, path: str) -> bool:
        """See the seam."""
        return self._memory.exists(path) if self._is_unknown(path) else super().exists(path)

    def unlink(self, path: str) -> None:
        """See the seam."""
        if self._is_unknown(path):
            self._memory.unlink(path)
        else:
            super().unlink(path)
