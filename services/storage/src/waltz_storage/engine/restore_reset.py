"""The copies of a storage directory that cannot be trusted are given up, on a stopped node (safety rules A5,
C6 and C7): it was restored from an older copy, or its journal or its witness is lost.

A copy without a session has no vote until its peers have brought it up to date (rule A1).

Invariants:

* All ids are checked before the first entry changes.
* Where no node opens the directory as it is, because its journal or its witness is lost, all copies are
  reset or none.
* While all copies are reset no node opens the directory: the header says so durably before the first change
  (journal/directory.py) and is the plain one again after the last. A reset that was interrupted is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waltz_storage.engine import layout
from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import (
    NotAssignedError,
    OutOfResourcesError,
    PartitionDamagedError,
    StorageStartError,
)
from waltz_storage.engine.files import FileSystem, OsFileSystem, join
from waltz_storage.engine.inspect import inspect_control_file
from waltz_storage.engine.journal.directory import Dependence, lost_dependence
from waltz_storage.engine.partition_info import PartitionInfo
from waltz_storage.engine.storage_manager import prepare_reset
from waltz_storage.engine.witness import is_missed


def reset_for_restore(
    directory: str,
    partition_ids: Iterable[int] | None = None,
    *,
    fs: FileSystem | None = None,
    journal_directory: str | None = None,
) -> list[int]:
    """Prepare a directory that was copied back from an older time (safety: a stale snapshot would vote).

    Resets the marks of the given partitions (all assigned ones when `None`) to "no session", keeps their
    files, flags, keeps or raises their fence, and returns their ids. The node must be stopped: the control
    file's lock is taken. `StorageStartError` when it is running, the directory is no storage directory, or
    only some partitions were given where none can be trusted. What its journal holds is brought into the
    files if that can be done, and given up if not; `journal_directory`: where it is, if not inside the
    directory. Doing it twice is fine.
    """
    disk = fs if fs is not None else OsFileSystem()
    try:
        control = ControlFile.open_existing(disk, directory, journal_directory, without_journal=True)
    except OSError as error:
        raise StorageStartError(f"{directory}: {error.strerror or error}") from error
    try:
        assigned = {partition_id: control.info(partition_id) for partition_id in control.assigned()}
        wanted = sorted(assigned if partition_ids is None else set(partition_ids))
        infos = {partition_id: control.info(partition_id) for partition_id in wanted}
        if assigned.keys() <= infos.keys():
            control.begin_reset()
        else:
            _refuse_a_part(disk, directory, control.lost, assigned)
        for partition_id in wanted:
            path = join(directory, str(partition_id))
            prepare_reset(disk, path, partition_id, infos[partition_id], control.witness)
            for _ in range(2):  # both structs: the old session must not come back with a damaged one
                control.update(partition_id, _without_session)
        control.end_reset(disk, directory, journal_directory)
    except OSError as error:
        raise StorageStartError(f"{directory}: {error.strerror or error}") from error
    except OutOfResourcesError as error:
        raise StorageStartError(str(error)) from error
    finally:
        control.close()
    return wanted


def would_reset(
    directory: str,
    partition_ids: Iterable[int] | None = None,
    *,
    fs: FileSystem | None = None,
    journal_directory: str | None = None,
) -> list[int]:
    """What `reset_for_restore` would reset; nothing is written and no lock is taken. Errors as there."""
    disk = fs if fs is not None else OsFileSystem()
    _, entries = inspect_control_file(directory, fs=disk)
    assigned = {
        partition_id: entry
        for partition_id, entry in enumerate(entries)
        if isinstance(entry, PartitionInfo) and entry.assigned
    }
    if partition_ids is None:
        return sorted(assigned)
    wanted = sorted(set(partition_ids))
    for partition_id in wanted:
        if not 0 <= partition_id < len(entries):
            raise NotAssignedError(f"partition {partition_id} does not exist: the cluster has {len(entries)}")
        entry = entries[partition_id]
        if isinstance(entry, str):
            raise PartitionDamagedError(entry)
    if not assigned.keys() <= set(wanted):
        _refuse_a_part(disk, directory, lost_dependence(disk, directory, journal_directory), assigned)
    return wanted


def _refuse_a_part(
    fs: FileSystem, directory: str, lost: Dependence | None, assigned: Mapping[int, PartitionInfo]
) -> None:
    """`StorageStartError` when no copy of the directory can be trusted, so that none may keep its session."""
    if lost is not None and lost.resetting:
        why = "an earlier reset of it did not end"
    elif lost is not None:
        why = "its journal cannot be replayed (if it is elsewhere, pass --journal)"
    elif is_missed(fs, directory, assigned):
        why = f"{layout.WITNESS_NAME} is missing"
    else:
        return
    raise StorageStartError(
        f"{directory}: {why}, so no copy in it can be trusted and all are reset or none: run "
        f"`waltz storage restore-reset {directory}` without --partition"
    )


def _without_session(info: PartitionInfo) -> PartitionInfo:
    """A copy of which nothing is known: rule A1 keeps it from voting, so no file of it is missed either."""
    return info._replace(session_id=-1, low_water_mark=-1, local_low_water_mark=-1)
