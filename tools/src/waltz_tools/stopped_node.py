"""Repairs of the storage directory of a stopped node: restored files, a fence that is too high. An
administrator asks for them by name; no process does them on its own."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from waltz_cluster.serializers import StoreParams
from waltz_tools.errors import ToolError

if TYPE_CHECKING:
    from waltz_storage.engine.settling import InOrder


def restore_reset(
    directory: Path, partitions: Sequence[int] | None, journal: Path | None = None
) -> list[int]:
    """Reset what the control file of a restored storage directory records about store sessions; the
    partitions reset.

    The node must be stopped (its lock is taken); None = all assigned partitions. `journal`: its
    storage.journal.directory. Doing it twice is fine.
    """
    from waltz_storage.engine.restore_reset import reset_for_restore  # installed where storage nodes are

    place = None if journal is None else str(journal)
    return reset_for_restore(str(directory), partitions, journal_directory=place)


def settle_directory(directory: Path, journal: Path | None) -> InOrder:
    """Bring the directory of a killed node to where an orderly end leaves it, with what its journal holds.

    The node must be stopped (its lock is taken). Doing it twice is fine.
    """
    from waltz_storage.engine.settling import put_in_order  # installed where storage nodes are

    place = None if journal is None else str(journal)
    return put_in_order(str(directory), now_ms=lambda: time.time_ns() // 1_000_000, journal_directory=place)


def resettable(directory: Path, partitions: Sequence[int] | None, journal: Path | None = None) -> list[int]:
    """What `restore_reset` would reset; nothing is written. Its errors, and ToolError when a node runs on the
    directory."""
    from waltz_storage.engine.layout import CONTROL_FILE_NAME, LOCK_SIZE
    from waltz_storage.engine.restore_reset import would_reset

    place = None if journal is None else str(journal)
    would = would_reset(str(directory), partitions, journal_directory=place)
    with (directory / CONTROL_FILE_NAME).open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, LOCK_SIZE)
        except OSError:
            raise ToolError(f"{directory}: another process is using this directory") from None
    return would


def fence_of(
    directory: Path, partition: int, params: StoreParams, journal: Path | None, *, replay: bool
) -> tuple[int, int]:
    """Fence and last completed session of a partition of a stopped node, which is one of the cluster with
    these `params`. `journal`: its storage.journal.directory. Without `replay` the directory of a killed node
    that has a journal is refused, as reading it would change its files."""
    from waltz_storage.engine.fence_repair import read_fence

    return read_fence(
        str(directory),
        partition,
        params.cluster_key,
        params.num_partitions,
        journal_directory=None if journal is None else str(journal),
        replay=replay,
    )


def lower_fence(
    directory: Path, partition: int, session_id: int, params: StoreParams, journal: Path | None
) -> int:
    """Put the fence of a partition of a stopped node down to `session_id`; where it is then. `params`: those
    of the cluster that `session_id` is of. `journal`: as in `fence_of`."""
    from waltz_storage.engine.fence_repair import lower_fence as lower

    return lower(
        str(directory),
        partition,
        session_id,
        params.cluster_key,
        params.num_partitions,
        journal_directory=None if journal is None else str(journal),
    )[0]
