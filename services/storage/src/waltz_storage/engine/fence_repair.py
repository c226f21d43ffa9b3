"""The way down for a session fence that was raised to where no session comes, on the directory of a stopped
node.

The fence is written in the side file of the partition and in the witness of the directory, twice in each; the
highest counts. So a crash between any two writes leaves it where it was, and it can be put down again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from waltz_storage.engine import layout
from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import StorageError, StorageStartError
from waltz_storage.engine.files import FileSystem, OsFileSystem, join
from waltz_storage.engine.journal.directory import dependence
from waltz_storage.engine.partition_info import PartitionInfo
from waltz_storage.engine.sidecar import Sidecar


class StoppedFence(NamedTuple):
    """Of one partition of a stopped node."""

    fence_session_id: int
    completed_session_id: int


def read_fence(
    directory: str,
    partition_id: int,
    cluster_key: UUID,
    num_partitions: int,
    *,
    fs: FileSystem | None = None,
    journal_directory: str | None = None,
    replay: bool = True,
) -> StoppedFence:
    """Where the fence is. `journal_directory`: where the journal of a killed node is, if it is not inside the
    directory; what it holds is brought into the files first. Without `replay` such a directory is refused.

    `StorageStartError` when the node runs, there is no such copy, or the directory is one of another cluster.
    """
    disk = fs if fs is not None else OsFileSystem()
    if not replay:
        _refuse_unsettled(disk, directory)
    with _stopped(directory, partition_id, (cluster_key, num_partitions), disk, journal_directory) as (
        control,
        sidecar,
        info,
    ):
        return StoppedFence(_fence(control, sidecar, partition_id), info.session_id)


def lower_fence(
    directory: str,
    partition_id: int,
    session_id: int,
    cluster_key: UUID,
    num_partitions: int,
    *,
    fs: FileSystem | None = None,
    journal_directory: str | None = None,
) -> StoppedFence:
    """Put the fence down to `session_id`; one that is lower stays. Doing it twice is fine.
    `journal_directory`: as in `read_fence`.

    Whoever calls it has made sure that no session below `session_id` may come back, in the cluster with this
    key: sessions of another one are not known to it.
    `StorageStartError` as above, and when the copy itself completed that session or a later one.
    """
    disk = fs if fs is not None else OsFileSystem()
    with _stopped(directory, partition_id, (cluster_key, num_partitions), disk, journal_directory) as (
        control,
        sidecar,
        info,
    ):
        if session_id <= info.session_id:
            raise StorageStartError(
                f"partition {partition_id} completed session {info.session_id}: its fence is not put below that"
            )
        if _fence(control, sidecar, partition_id) > session_id:
            control.witness.lower_fence(partition_id, info, session_id)
            if sidecar.fence_session_id > session_id:
                sidecar.lower_fence(session_id)
        return StoppedFence(_fence(control, sidecar, partition_id), info.session_id)


def _fence(control: ControlFile, sidecar: Sidecar, partition_id: int) -> int:
    return max(sidecar.fence_session_id, control.witness.fence(partition_id))


def _refuse_unsettled(disk: FileSystem, directory: str) -> None:
    """`StorageStartError` for the directory of a killed node: reading it would change its files."""
    try:
        file = disk.open(join(directory, layout.CONTROL_FILE_NAME))
    except OSError:
        return  # said by whoever loads it
    try:
        stopped = file.lock(layout.LOCK_SIZE)
        found = dependence(file.pread(layout.HEADER_SIZE, 0)) if stopped else None
        if found is not None and not found.resetting:
            raise StorageStartError(
                f"{directory} was not closed in order, and what its journal holds is not in its files yet: run "
                f"`waltz disk settle {directory}` first, with --journal where storage.journal.directory is set"
            )
    finally:
        file.close()


@contextmanager
def _stopped(
    directory: str,
    partition_id: int,
    cluster: tuple[UUID, int],
    disk: FileSystem,
    journal_directory: str | None,
) -> Iterator[tuple[ControlFile, Sidecar, PartitionInfo]]:
    """The files, under the lock of the directory."""
    path = join(directory, str(partition_id))
    try:
        control = ControlFile.open_existing(disk, directory, journal_directory)
        try:
            control.check_cluster(directory, *cluster)
            info = control.info(partition_id)
            if not disk.exists(join(path, layout.SIDECAR_NAME)):
                raise StorageStartError(
                    f"{directory}: partition {partition_id} has no {layout.SIDECAR_NAME} here: its copy is elsewhere, or "
                    "only 0.13.2 has used it, which keeps its fence in memory: restart it"
                )
            sidecar = Sidecar.open(disk, path, partition_id)
            try:
                yield control, sidecar, info
            finally:
                sidecar.close()
        finally:
            control.close()
    except OSError as error:
        raise StorageStartError(f"{directory}: {error.strerror or error}") from error
    except StorageStartError:
        raise
    except StorageError as error:
        raise StorageStartError(str(error)) from error
