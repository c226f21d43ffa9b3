"""All partitions of a storage directory (docs/storage-files.md; docs/protocol.md, admin port).

Owner of the map of open partitions. Methods that change a partition run as that partition's job, one at a
time; different partitions may be worked on at the same time.

Invariants:

* A partition that cannot be opened never stops the others: it is listed in `damaged` with the reason and
  refuses. If all it lacked was space on the disk, or a file descriptor, `reopen` opens it later.
* Un-assignment: synced mark forgotten, control entry reset (crash-safe), files closed, then deleted if asked
  for. A crash in between leaves the partition either assigned as before or not assigned; asking again
  finishes the work. Until then a partition whose entry was changed, or may have been, is out of service.
* The fence in the sidecar survives un-assignment: an old server must not get back in through a re-assignment.
  It is raised past the copy's own session, which must not continue with an empty copy either.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeVar
from uuid import UUID

import structlog

from waltz_storage.engine import layout
from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import (
    DiskWriteError,
    NotAssignedError,
    OutOfResourcesError,
    PartitionDamagedError,
    PartitionFailedError,
    StorageError,
    StorageStartError,
)
from waltz_storage.engine.files import FileSystem, OsFileSystem, join, reason_of
from waltz_storage.engine.free_space import NO_SPACE, FreeSpace
from waltz_storage.engine.journal.directory import journal_directory
from waltz_storage.engine.journal.filesystem import JournaledFiles
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.partition import EngineSettings, Partition
from waltz_storage.engine.partition_info import FLAG_ASSIGNED, FLAG_AVAILABLE, PartitionInfo, Shown
from waltz_storage.engine.sidecar import Sidecar, fence_past
from waltz_storage.engine.witness import REFILL, Witness, is_missed

log = structlog.get_logger(__name__)

T = TypeVar("T")
RunAll = Callable[[Sequence[Callable[[], None]]], None]


def run_in_order(actions: Sequence[Callable[[], None]]) -> None:
    """The simplest way to run several actions."""
    for action in actions:
        action()


class StorageManager:
    """Control file plus open partitions of one directory, locked until `close`."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        control: ControlFile,
        settings: EngineSettings,
        now_ms: Callable[[], int],
        room: FreeSpace,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.control = control
        self._settings = settings
        self._now_ms = now_ms
        self.partitions: dict[int, Partition] = {}
        self.damaged: dict[int, str] = {}
        self.room = room
        self.to_open_later: set[int] = set()  # in damaged too, for want of disk space or descriptors only
        self.files = fs if isinstance(fs, JournaledFiles) else None

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        cluster_key: UUID,
        num_partitions: int,
        now_ms: Callable[[], int],
        settings: EngineSettings = EngineSettings(),  # noqa: B008 - immutable
        fs: FileSystem | None = None,
        room: FreeSpace | None = None,
        run_all: RunAll = run_in_order,
        journal: JournalSettings | None = None,
        journal_id: UUID | None = None,
        journal_directory: str | None = None,
    ) -> Self:
        """Lock the directory and open every assigned partition, through `run_all` in any order or at once.

        Without `room` no append is refused before the disk itself says that it is full. With `journal`, under
        the new `journal_id`, everything has one user at a time, and nothing is durable before `commit`.
        `journal_directory`: where the journal of a crash is, if it is not inside the directory.

        `StorageStartError` with one clear line when the directory cannot be used.
        """
        disk = fs if fs is not None else OsFileSystem()
        room = room if room is not None else FreeSpace()
        if journal is not None:
            disk, run_all = JournaledFiles(disk, directory, room), run_in_order
        try:
            control = ControlFile.open(
                disk, directory, cluster_key, num_partitions, now_ms, journal_directory
            )
        except (OSError, PartitionFailedError, OutOfResourcesError) as error:
            raise StorageStartError(f"{directory}: {reason_of(error)}") from error
        manager = cls(disk, directory, control, settings, now_ms, room)
        try:
            manager._miss_witness()
            if journal is not None and journal_id is not None:
                manager._begin_journal(journal, journal_id)
        except BaseException:
            control.close()
            raise
        try:
            manager.damaged.update({p: t for p, t in control.damaged.items() if manager._may_be_here(p)})
            run_all([lambda pid=pid: manager._open_assigned(pid) for pid in control.assigned()])  # type: ignore[misc]
            manager._open_durable()
        except BaseException:
            manager.close()
            raise
        return manager

    def _begin_journal(self, settings: JournalSettings, journal_id: UUID) -> None:
        """From here on through the journal. `StorageStartError`."""
        if self.files is None:
            return
        place = journal_directory(self.directory, settings.directory)
        try:
            journal = self.files.create(place, journal_id, settings)
            self.control.depend(journal_id, settings.files)
            self.files.begin(journal)
        except (OSError, OutOfResourcesError) as error:
            raise StorageStartError(f"{place}: the journal cannot be made: {reason_of(error)}") from error

    def _open_durable(self) -> None:
        try:
            self.commit()
        except PartitionFailedError as error:
            raise StorageStartError(f"{self.directory}: {error}") from error

    def commit(self, partition_ids: Iterable[int] | None = None) -> None:
        """With a journal: everything that was done is durable when this returns, and public. No job runs.
        `partition_ids`: what was done to others is public already. `PartitionFailedError`: that is not known,
        and no partition takes anything any longer."""
        if self.files is None or not self.files.journaling:
            return
        try:
            self.files.commit()
        except OSError as error:
            self._fail_all()
            raise PartitionFailedError(self.files.failed or str(error)) from error
        if self.files.failed is not None:
            self._fail_all()
        for partition_id in list(self.partitions) if partition_ids is None else partition_ids:
            partition = self.partitions.get(partition_id)
            if partition is not None:
                partition.publish()

    @property
    def unmade(self) -> bool:
        """`make` has something to do."""
        return self.files is not None and self.files.unmade

    def make(self) -> None:
        """With a journal: commit, and write into the files what is in it only. Errors of `commit`."""
        self.commit()
        if self.files is not None and self.files.journaling:
            self.files.make()
            if self.files.failed is not None:
                self._fail_all()

    def _fail_all(self) -> None:
        """The journal has failed: no partition takes anything until a restart."""
        for partition in list(self.partitions.values()):
            partition.failed = partition.failed or self.journal_failed

    def hide(self, partition_id: int) -> None:
        """After a failed commit: nothing is shown of a partition but what is public."""
        partition = self.partitions.get(partition_id)
        if partition is not None:
            partition.hide()

    def public(self) -> dict[int, tuple[Partition, Shown]]:
        """The open partitions, with what may be shown of each; not one whose assignment is not durable."""
        partitions = dict(self.partitions)  # a job on a disk thread may be closing one
        shown = {partition_id: partition.public for partition_id, partition in partitions.items()}
        return {pid: (partitions[pid], found) for pid, found in shown.items() if found is not None}

    @property
    def journaling(self) -> bool:
        """Nothing is durable before `commit`."""
        return self.files is not None and self.files.journaling

    @property
    def journal_failed(self) -> str | None:
        """Why nothing is taken until a restart, also where no partition is open that could say it."""
        return None if self.files is None else self.files.failed

    @property
    def settle_due(self) -> bool:
        """`settle` has something to do."""
        return self.files is not None and self.files.settle_due()

    def settle(self) -> bool:
        """Free the oldest full file of the journal, and whether that worked; on a thread of its own, beside
        the jobs."""
        if self.files is None:
            return False
        settled = self.files.settle()
        self._fail_all()
        return settled

    def _miss_witness(self) -> None:
        """`StorageStartError` when the witness is gone and side files say that there was one."""
        infos = {partition_id: self.control.info(partition_id) for partition_id in self.control.assigned()}
        try:
            missed = is_missed(self._fs, self.directory, infos)
        except OSError as error:
            raise StorageStartError(f"{self.directory}: {reason_of(error)}") from error
        if missed:
            raise StorageStartError(
                f"{self.directory}: {layout.WITNESS_NAME} is missing, so other files may be missing too; put it back, or "
                f"let the node be brought up to date by its peers: `waltz storage restore-reset {self.directory}`"
            )

    def _path(self, partition_id: int) -> str:
        return join(self.directory, str(partition_id))

    def _has_directory(self, partition_id: int) -> bool:
        return self._fs.is_dir(self._path(partition_id))

    def _may_be_here(self, partition_id: int) -> bool:
        try:
            return self._has_directory(partition_id)
        except OSError:  # nobody knows
            return True

    def _open_assigned(self, partition_id: int) -> None:
        try:
            self.partitions[partition_id] = self._open(partition_id)
        except (StorageError, OSError) as error:
            self.damaged[partition_id] = str(error)
            if _passes(error):
                self.to_open_later.add(partition_id)
        except Exception as error:
            log.error("the partition could not be opened", partition=partition_id, exc_info=error)
            self.damaged[partition_id] = f"internal error: {type(error).__name__}: {error}"

    def reopen(self, partition_id: int) -> bool:
        """Try again to open an assigned partition that could not be opened for a reason that passes; True
        when it is open."""
        if partition_id in self.to_open_later and partition_id not in self.partitions:
            self.to_open_later.discard(partition_id)
            self._open_assigned(partition_id)
            if partition_id in self.partitions:
                self.damaged.pop(partition_id, None)
        return partition_id in self.partitions

    def _open(self, partition_id: int) -> Partition:
        if not self._has_directory(partition_id):
            info = self.control.info(partition_id)
            expected = self.control.witness.expected(partition_id, info)
            if expected is not None or info.session_id >= 0 or info.local_low_water_mark >= 0:
                raise PartitionDamagedError(
                    f"partition {partition_id} is damaged: its directory is missing; {REFILL}"
                )
            self._fs.make_dir(self._path(partition_id))
        self._fs.sync_dir(self.directory)
        return Partition(
            self._fs,
            self._path(partition_id),
            partition_id,
            self.control,
            self._settings,
            self._now_ms,
            self.room,
            self.files.write_later if self.files is not None and self.files.journaling else None,
        )

    def get(self, partition_id: int) -> Partition:
        """An open partition; `NotAssignedError` or `PartitionDamagedError` with the reason."""
        partition = self.partitions.get(partition_id)
        if partition is None:
            raise self.why_not_open(partition_id)
        return partition

    def why_not_open(self, partition_id: int) -> NotAssignedError | PartitionDamagedError:
        """The reason for a partition that is not open."""
        if partition_id in self.damaged:
            return PartitionDamagedError(self.damaged[partition_id])
        return NotAssignedError(f"partition {partition_id} is not assigned to this node")

    def problems(self) -> dict[int, str]:
        """What is wrong, by partition: damaged, out of service after a failed sync, or with damaged
        records."""
        found = dict(self.damaged)
        for partition_id, partition in list(self.partitions.items()):
            if partition.failed is not None:
                found[partition_id] = f"out of service: {partition.failed}"
            elif partition.damaged_reads:
                found[partition_id] = f"{partition.damaged_reads} reads met a damaged record"
        return dict(sorted(found.items()))

    def status(self) -> dict[int, bool]:
        """Available or not, by assigned partition; one that is damaged, out of service or without room is
        not."""
        public = self.public()
        assigned = sorted({*public, *self.damaged})
        return {pid: pid in public and self.is_available(*public[pid]) for pid in assigned}

    def is_available(self, partition: Partition, shown: Shown) -> bool:
        """Whether an open partition takes appends, as far as this node knows."""
        return shown.info.available and partition.failed is None and self.room.refused is None

    def assign(self, partition_id: int) -> Partition:
        """Open (existing files are found again) and set the flag. Doing it twice changes no files."""
        self.control.info(partition_id)
        partition = self.partitions.get(partition_id)
        if partition is None:
            partition = _translated(lambda: self._open(partition_id))
        try:
            partition.set_flags(FLAG_ASSIGNED, True)
        except BaseException:
            if partition_id not in self.partitions:
                partition.close()
            raise
        self.partitions[partition_id] = partition
        self.damaged.pop(partition_id, None)
        self.to_open_later.discard(partition_id)
        return partition

    def unassign(self, partition_id: int, *, delete_files: bool) -> None:
        """See the module. A partition that is not assigned stays so; its files are deleted if asked for."""
        partition = self.partitions.get(partition_id)
        damaged = partition_id in self.damaged or partition_id in self.control.damaged
        if partition is None and not damaged:
            self.control.info(partition_id)  # raises for ids that do not exist
        _translated(lambda: self._prepare_reset(partition_id, partition))
        if partition is not None or damaged:
            self._reset_entry(partition_id, partition)
        self.partitions.pop(partition_id, None)
        self.damaged.pop(partition_id, None)
        self.to_open_later.discard(partition_id)
        if partition is not None:
            partition.close()
        if delete_files and _translated(lambda: self._has_directory(partition_id)):
            _translated(lambda: delete_log(self._fs, self._path(partition_id)))

    def _reset_entry(self, partition_id: int, partition: Partition | None) -> None:
        try:
            self.control.reset(partition_id)
        except Exception as error:
            # Until the next try it is half reset, or what the entry holds is not known.
            if partition is not None and not (
                isinstance(error, DiskWriteError) and self.control.info(partition_id) == partition.info
            ):
                partition.failed = partition.failed or str(error) or type(error).__name__
            raise

    def _prepare_reset(self, partition_id: int, partition: Partition | None) -> None:
        if partition is not None and partition.failed is None:
            partition.require_running()
            partition.prepare_reset()
        else:  # not open, or out of service: its files are written afresh
            known = partition_id not in self.control.damaged
            info = self.control.info(partition_id) if known else None
            prepare_reset(self._fs, self._path(partition_id), partition_id, info, self.control.witness)

    def set_available(self, partition_id: int, available: bool) -> None:
        """Set or clear the flag, whether or not the partition is assigned."""
        partition = self.partitions.get(partition_id)
        if partition is not None:
            partition.set_flags(FLAG_AVAILABLE, available)
            return
        self.control.update(
            partition_id,
            lambda info: info._replace(
                flags=info.flags | FLAG_AVAILABLE if available else info.flags & ~FLAG_AVAILABLE
            ),
        )

    def close(self) -> None:
        """Sync and close every partition, then give up the lock. Failed ones are only closed."""
        for partition in self.partitions.values():
            with contextlib.suppress(StorageError):  # out of service, or still without descriptors
                partition.require_running()
            with contextlib.suppress(StorageError):  # nothing more can be done; it is in problems() already
                partition.sync_and_close()
        self.partitions.clear()
        self._end_journal()
        self.control.close()

    def _end_journal(self) -> None:
        if self.files is None or not self.files.journaling:
            return
        try:
            self.files.end(self.control.lack_nothing)
            self.control.depend_no_longer()
        except OSError as error:
            log.error("the journal is needed at the next start", reason=error.strerror or str(error))


def _passes(error: BaseException | None) -> bool:
    """True when this is, or comes from, a system call that found no space or no descriptor. A lack of memory
    may be the error of a sync, which is not tried again."""
    while error is not None:
        if isinstance(error, OutOfResourcesError):
            return True
        if isinstance(error, OSError) and error.errno in (*NO_SPACE, errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__
    return False


def _translated(action: Callable[[], T]) -> T:
    try:
        return action()
    except OSError as error:
        raise StorageError(str(error)) from error


def delete_log(fs: FileSystem, directory: str) -> None:
    """Delete all segments, newest first, each index before its data file, directory synced after each."""
    names = fs.listdir(directory)
    data = sorted((n for n in names if n.endswith(layout.DATA_SUFFIXES)), reverse=True)
    indexes = [n for n in names if n.endswith(layout.INDEX_SUFFIX)]
    for name in _deletion_order(data, indexes):
        fs.unlink(join(directory, name))
        fs.sync_dir(directory)


def _deletion_order(data: Iterable[str], indexes: Iterable[str]) -> list[str]:
    left = set(indexes)
    order: list[str] = []
    for name in data:
        index = name[:-4] + layout.INDEX_SUFFIX
        if index in left:
            left.remove(index)
            order.append(index)
        order.append(name)
    return order + sorted(left, reverse=True)


def prepare_reset(
    fs: FileSystem, directory: str, partition_id: int, info: PartitionInfo | None, witness: Witness
) -> None:
    """For a partition that is not open: raise its fence, invalidate its synced mark. Durable.

    `info`: its control entry, `None` when that is damaged. Without a directory the fence stays with the
    witness.
    """
    fence = -1 if info is None else fence_past(info.session_id)
    witness.give_up(partition_id, info, fence, directory)
    fence = max(fence, witness.fence(partition_id))
    if not fs.is_dir(directory) or (fence < 0 and not fs.exists(join(directory, layout.SIDECAR_NAME))):
        return
    sidecar = Sidecar.open(fs, directory, partition_id)
    try:
        sidecar.raise_fence(fence)
        sidecar.write_mark(-1, -1, -1)
        sidecar.sync()
    finally:
        sidecar.close()
