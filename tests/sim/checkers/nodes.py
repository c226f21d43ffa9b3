"""What a storage node knew to be durable when it ended is there when it is back (safety: fence, disk)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tests.sim.checkers.violation import Violation
from waltz_storage.engine.storage_manager import StorageManager


class Durable(NamedTuple):
    """One open partition of a node, as its memory said it was on the disk."""

    max_txid: int
    session_id: int
    low_water_mark: int
    fence: int


def durable(manager: StorageManager) -> dict[int, Durable]:
    """What the node takes for durable now, by open partition."""
    return {
        partition_id: Durable(
            partition.max_txid,
            partition.info.session_id,
            partition.info.low_water_mark,
            partition.durable_fence,
        )
        for partition_id, partition in manager.partitions.items()
    }


def kept(
    name: str,
    before: Mapping[int, Durable],
    after: Mapping[int, Durable],
    damaged: Collection[int],
    *,
    dark: bool,
    failed: Collection[int] = (),
    lost: Collection[int] = (),
) -> list[Violation]:
    """Violations `node_kept`. A partition that is not open any longer is excused: it refuses, or was taken
    away.

    `damaged`: partitions in whose files a bit was changed, or a write was lost, behind the node's back. When
    the power went as well (`dark`) its effect cannot always be distinguished from a torn tail; nor when a
    sync had failed (`failed`: partitions that were out of service), for that may drop the mark of the side
    file, which is not synced on its own. Else the last record at least is known.

    `lost`: partitions of which files are gone. A copy that completed a session is refused then; one that did
    not has no vote (rule A1), nobody knows what belongs into it, and it keeps its fence only.
    """
    found = []
    for partition_id, old in before.items():
        new = after.get(partition_id)
        if new is None or (partition_id in damaged and (dark or partition_id in failed)):
            continue
        if partition_id in lost and old.session_id < 0:
            old = Durable(-1, -1, -1, old.fence)
        for what, was, now in zip(Durable._fields, old, new, strict=True):
            if now < was and (what == "max_txid" or partition_id not in damaged):
                text = f"{name}: partition {partition_id}: {what} was {was} before the node ended, now it is {now}"
                found.append(Violation("node_kept", text))
    return found
