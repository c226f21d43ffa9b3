"""The repair of a restored storage directory, which an administrator asks for by name: no process may do it by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def restore_reset(directory: Path, partitions: Sequence[int] | None) -> list[int]:
    """Reset what the control file of a restored storage directory says of store sessions; the partitions reset.

    The node must be stopped (its lock is taken); None = all assigned partitions. Doing it twice is fine.
    """
    from waltz_storage.engine.storage_manager import reset_for_restore  # installed where storage nodes are

    return reset_for_restore(str(directory), partitions)


def resettable(directory: Path, partitions: Sequence[int] | None) -> list[int]:
    """What `restore_reset` would reset; nothing is locked or written."""
    from waltz_storage.engine.inspect import inspect_control_file

    _, entries = inspect_control_file(str(directory))
    if partitions is not None:
        return [partition for partition in partitions if partition < len(entries)]
    return [number for number, entry in enumerate(entries) if not isinstance(entry, str) and entry.assigned]
