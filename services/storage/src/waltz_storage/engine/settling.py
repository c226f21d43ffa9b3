"""A storage directory as an orderly end leaves it, on a stopped node (docs/storage-files.md): so release
0.13.2 can open it too.

A node that was killed may leave what no other release copes with: changes that only its journal holds, one of
the two files of a segment, a file without a header, records without index entries. The next start of this
release ends such work (recovery.py), and so this does, without being a node. A copy that this release refuses
as damaged stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from waltz_storage.engine.errors import StorageError, StorageStartError
from waltz_storage.engine.files import FileSystem, OsFileSystem, reason_of
from waltz_storage.engine.inspect import inspect_control_file
from waltz_storage.engine.journal.directory import settle_directory
from waltz_storage.engine.storage_manager import StorageManager


class InOrder(NamedTuple):
    """What became of a directory."""

    changes: int
    """So many changes were in the journal only."""
    lacking: tuple[int, ...]
    """Partitions of which files were missing that the journal speaks of: refused from now on."""
    closed: tuple[int, ...]
    """Partitions whose copies were opened and closed in order."""
    damaged: Mapping[int, str]
    """Why the copies of the other partitions could not be opened; those with missing files too."""


def put_in_order(
    directory: str,
    *,
    now_ms: Callable[[], int],
    journal_directory: str | None = None,
    fs: FileSystem | None = None,
) -> InOrder:
    """Replay the journal, if there is one, then open each assigned copy and close it.

    One copy is open at a time, so the limit of open files does not matter. `journal_directory`: where the
    journal is, if not inside the directory. `StorageStartError` in one line when a node runs on the
    directory, or no node could start on it. Doing it twice is fine.
    """
    disk = fs if fs is not None else OsFileSystem()
    changes, lacking = settle_directory(disk, directory, journal_directory)
    try:
        header, _ = inspect_control_file(directory, fs=disk)
    except OSError as error:
        raise StorageStartError(f"{directory}: {reason_of(error)}") from error
    openings: list[Callable[[], None]] = []
    manager = StorageManager.open(
        directory,
        cluster_key=header.cluster_key,
        num_partitions=header.num_partitions,
        now_ms=now_ms,
        fs=disk,
        run_all=openings.extend,
        journal_directory=journal_directory,
    )
    closed = []
    try:
        for open_next in openings:
            open_next()
            while manager.partitions:
                partition_id, partition = manager.partitions.popitem()
                try:
                    partition.sync_and_close()
                    closed.append(partition_id)
                except StorageError as error:
                    manager.damaged[partition_id] = str(error)
    finally:
        manager.close()
    return InOrder(changes, lacking, tuple(closed), manager.damaged)
