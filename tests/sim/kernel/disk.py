"""The disk of a host: the faulty disk of the test kit, with processes, durations and everything that can be
ordered for it.

A process mounts it (`SimDisk.mount`) and gets the engine's file seam. When the process ends its file
handles are dead (their use raises ProcessKilled) and its locks are gone, but what it wrote stays in the page
cache; when the host loses power, what was not synced is lost, torn by sectors or reordered, and so are names
whose directory was not synced. System calls take virtual time: they add it up in `SimDisk.charged`, and
the executor delivers a job's result that much later. The code of a job runs in one step, but each of its
changes carries the time at which it happens, and its syncs are done when their time is over: a power cut in
between finds exactly what was there by then.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process, ProcessKilled
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk, FaultyFile

DATA_DIRECTORY = "/data"
_WRITE_BACK_ABOVE = 64  # pending changes of a file, from which on the kernel writes old ones back on its own
_SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)  # of the unsynced pieces that survive a power cut


class Seconds(NamedTuple):
    """How long a system call takes: between `low` and `high`, evenly."""

    low: float
    high: float

    def draw(self, rng: random.Random) -> float:
        """One duration."""
        return self.low + (self.high - self.low) * rng.random()


FAST_SYNC = Seconds(0.0001, 0.002)
FAST_READ = Seconds(0.00001, 0.0002)
CHANGE = Seconds(0.000002, 0.00005)  # a change in the page cache, where jobs run in steps


class Snapshot(NamedTuple):
    """A directory as it was: names of its directories, and its files with what programs saw."""

    directories: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]


class SimDisk(FaultyDisk):
    """One disk. Owner: the loop. Besides the faults of FaultyDisk (full, short writes, failed syncs and
    reads):

    * `sync_seconds`, `read_seconds`: a slow disk.
    * `crash_after_calls`: the process dies, or the power fails, inside a job.
    * `power_cut`, done on its own when the host of a mounted process is powered off.
    * `snapshot`, `restore`, `wipe` while nothing has it mounted.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.sync_seconds = FAST_SYNC
        self.read_seconds = FAST_READ
        self.charged = 0.0
        """Virtual seconds that system calls took since the last job began."""
        self.in_job = False
        """The code of a job is running (set by the executor)."""
        self.wait: Callable[[float], None] | None = None
        """What a job that runs in steps does in a system call that takes time (set by its executor)."""
        self.sync_takes = 0.0
        """Seconds that the sync takes that such a job is about to begin."""
        self.torn = 0
        """Power cuts that found something unsynced."""
        self.wiped = 0
        """How many times it was replaced by an empty one."""
        self.call_count = 0
        self._rng = rng
        self._crash_at: int | None = None
        self._crash: Callable[[], object] | None = None
        self._crash_only: Sequence[str] = ()
        self._loop: SimLoop | None = None  # known from the first mount on
        self._flights: list[tuple[float, Callable[[], None]]] = []
        self.users: dict[Process, None] = {}
        """Processes that serve the directory now: one, unless a volume is mounted twice and nobody minds."""
        self.failed_sync_drops_pages = rng.random() < 0.5  # file systems differ
        self.add_dir(DATA_DIRECTORY)

    # -- mounting ------------------------------------------------------------------------------------------

    def mount(
        self, process: Process, make: Callable[[SimDisk, Process, random.Random], SimFileSystem] | None = None
    ) -> SimFileSystem:
        """The file seam for one process. A new one for each life of the node."""
        self._loop = process.loop
        system = (make or SimFileSystem)(self, process, self._rng)
        process.on_death.append(system.die)
        return system

    # -- time ----------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Virtual time, inside a job with what it has taken so far."""
        if self._loop is None:
            return 0.0
        return self._loop.now + (self.charged if self.in_job else 0.0)

    def when_done(self, land: Callable[[], None]) -> None:
        """A sync of a job is done when its time is over; one outside of jobs takes no time."""
        if self._loop is not None and self.wait is not None:
            self._flights.append((self._loop.now + self.sync_takes, land))
            self.wait(self.sync_takes)
            self.land_due()
            return
        if self._loop is None or not self.in_job:
            self.land_all()
            land()
            return
        self._land_until(self._loop.now)
        self._flights.append((self.now(), land))

    def land_all(self) -> None:
        """Syncs that have begun are done."""
        self._land_until(float("inf"))

    def land_due(self) -> None:
        """Syncs whose time is over are done: what comes now comes after them."""
        if self._flights and self._loop is not None:
            self._land_until(self._loop.now)

    def _land_until(self, now: float) -> None:
        if not self._flights:
            return
        flights, self._flights = self._flights, []
        for done_at, land in flights:
            if done_at <= now:
                land()
            else:
                self._flights.append((done_at, land))

    # -- faults --------------------------------------------------------------------------------------------

    def call(self, *what: object) -> None:
        """Every changing system call passes here; the chosen one does not happen."""
        self.land_due()
        if self._crash_only and what[0] not in self._crash_only:
            return
        self.call_count += 1
        if self._crash_at is not None and self.call_count >= self._crash_at:
            crash, self._crash, self._crash_at = self._crash, None, None
            if crash is not None:
                crash()
                raise ProcessKilled(str(what[0]))

    def crash_after_calls(self, calls: int, crash: Callable[[], object], only: Sequence[str] = ()) -> None:
        """Let `calls` more changing system calls happen; the next one calls `crash` (which must end the
        process, or take the power from the host) and does not happen. `only` calls of these names count, if
        given."""
        self._crash_only = only
        self._crash_at, self._crash = self.call_count + calls + 1, crash

    def cancel_crash(self) -> None:
        """Forget an ordered crash that has not happened."""
        self._crash_at = self._crash = None
        self._crash_only = ()

    def power_cut(self) -> None:
        """What was not synced is gone, partly gone, or there: this cut decides how likely each piece
        survives.

        A volume that another host serves keeps what that host wrote."""
        if any(process.alive for process in self.users):
            return
        self._land_until(self.now())
        self._flights.clear()
        if self.unsynced():
            self.torn += 1
        self.restart(CrashMode.SOME, self._rng, self._rng.choice(_SHARES))
        self.cancel_crash()

    def heal(self) -> None:
        """No fault is on order any longer; what was damaged stays damaged."""
        self.capacity_bytes = self.fail_sync = self.fail_sync_once = self.fail_read = self.fail_look = None
        self.short_writes = False
        self.lose_write = None
        self.sync_seconds, self.read_seconds = FAST_SYNC, FAST_READ
        self.cancel_crash()

    def fill(self, room_bytes: int) -> None:
        """The disk is full but for `room_bytes`."""
        self.capacity_bytes = self.used_bytes() + room_bytes

    # -- whole directories ---------------------------------------------------------------------------------

    def snapshot(self, path: str = DATA_DIRECTORY) -> Snapshot:
        """Copy a directory as a file-by-file copy would find it now."""
        inside = path + "/"
        files = tuple((name, data) for name, data in self.files().items() if name.startswith(inside))
        return Snapshot(tuple(d for d in self.directories() if d.startswith(inside)), files)

    def restore(self, snapshot: Snapshot, path: str = DATA_DIRECTORY) -> None:
        """Put an older copy back, durably. Nothing may have the disk mounted."""
        self.wipe(path)
        for directory in snapshot.directories:
            self.add_dir(directory)
        for name, data in snapshot.files:
            self.put(name, data)

    def wipe(self, path: str = DATA_DIRECTORY) -> None:
        """A new disk."""
        self.land_all()
        self.lose_write = None
        self.wiped += 1
        super().wipe(path)

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Bit rot, on the platter and in memory."""
        self.land_all()
        super().flip_bit(path, offset, bit)


class SimFileSystem:
    """The disk as one process sees it (the engine's `FileSystem`)."""

    def __init__(self, disk: SimDisk, process: Process, rng: random.Random) -> None:
        self.disk = disk
        self.process = process
        self._rng = rng
        self._files: dict[int, SimFile] = {}
        self._opened = 0

    def check_alive(self) -> None:
        """The handles of a dead process are dead."""
        if not self.process.alive:
            raise ProcessKilled(self.process.name)

    def charge(self, seconds: Seconds) -> None:
        """A system call took its time."""
        drawn = seconds.draw(self._rng)
        if self.disk.wait is not None:
            self.disk.wait(drawn)
        else:
            self.disk.charged += drawn

    def charge_change(self) -> None:
        """A change takes a moment, in which other jobs run and processes end, where jobs run in steps."""
        if self.disk.wait is not None:
            self.charge(CHANGE)

    def charge_sync(self) -> None:
        """A sync takes its time: from here on, where the job runs in steps."""
        if self.disk.wait is not None:
            self.disk.sync_takes = self.disk.sync_seconds.draw(self._rng)
        else:
            self.charge(self.disk.sync_seconds)

    def die(self, silent: bool) -> None:
        """The process has ended: locks are released; without power also what was not synced."""
        self.disk.users.pop(self.process, None)
        for file in list(self._files.values()):
            file.close()
        if silent and not self.process.host.up:
            self.disk.power_cut()

    def closed(self, number: int) -> None:
        """A file was closed."""
        self._files.pop(number, None)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        """See the seam."""
        self.check_alive()
        self._opened += 1
        file = SimFile(self, self._opened, self.disk.open(path, create=create, read_only=read_only))
        self._files[self._opened] = file
        return file

    def listdir(self, path: str) -> list[str]:
        """See the seam. In an order of its own, as real directories have."""
        self.check_alive()
        names = sorted(self.disk.listdir(path))
        self._rng.shuffle(names)
        return names

    def is_dir(self, path: str) -> bool:
        """See the seam."""
        self.check_alive()
        return self.disk.is_dir(path)

    def exists(self, path: str) -> bool:
        """See the seam."""
        self.check_alive()
        return self.disk.exists(path)

    def make_dir(self, path: str) -> None:
        """See the seam."""
        self.check_alive()
        self.disk.make_dir(path)
        self.charge_change()

    def unlink(self, path: str) -> None:
        """See the seam."""
        self.check_alive()
        self.disk.unlink(path)
        self.charge_change()

    def sync_dir(self, path: str) -> None:
        """See the seam."""
        self.check_alive()
        self.charge_sync()
        self.disk.sync_dir(path)


class SimFile:
    """An open file of a process."""

    __slots__ = ("_file", "_number", "_system")

    def __init__(self, system: SimFileSystem, number: int, file: FaultyFile) -> None:
        self._system, self._number, self._file = system, number, file

    def pread(self, size: int, offset: int) -> bytes:
        """See the seam."""
        self._system.check_alive()
        self._system.charge(self._system.disk.read_seconds)
        self._system.disk.land_due()
        return self._file.pread(size, offset)

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """See the seam."""
        self._system.check_alive()
        taken = self._file.pwrite(data, offset)
        if self._file.pending > _WRITE_BACK_ABOVE and not self._system.disk.fails_syncs(self._file.path):
            self._file.write_back(_WRITE_BACK_ABOVE // 2)
        self._system.charge_change()
        return taken

    def pwritev(self, parts: Sequence[bytes], offset: int) -> int:
        """See the seam."""
        return self.pwrite(parts[0] if len(parts) == 1 else b"".join(parts), offset)

    def truncate(self, size: int) -> None:
        """See the seam."""
        self._system.check_alive()
        self._file.truncate(size)
        self._system.charge_change()

    def sync(self) -> None:
        """See the seam."""
        self._system.check_alive()
        self._system.charge_sync()
        self._file.sync()

    def size(self) -> int:
        """See the seam."""
        self._system.check_alive()
        return self._file.size()

    def allocated(self) -> int:
        """See the seam."""
        return self.size()

    def is_at(self, path: str) -> bool:
        """See the seam."""
        return self._file.is_at(path)

    def lock(self, size: int) -> bool:
        """See the seam. A POSIX lock: it belongs to the process, and ends with the first handle of the file
        that it closes."""
        self._system.check_alive()
        return self._file.lock(size, self._system)

    def close(self) -> None:
        """See the seam. Also what the kernel does for a process that has ended."""
        self._file.close(self._system)
        self._system.closed(self._number)


def partition_directory(partition_id: int) -> str:
    """Where the files of a partition are."""
    return posixpath.join(DATA_DIRECTORY, str(partition_id))
