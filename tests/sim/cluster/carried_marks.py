"""The committed marks that requests of version 1 carry to storage nodes, watched from inside the nodes.

`carried_mark`: what a node takes for committed (it gives no reader more) has been stored by a quorum of the
partition's copies (safety D1). A copy that was lost with its disk has stored what it had; one that was cut
has not, since nothing that is committed is ever cut.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.cluster.shape import Shape
from waltz_cluster.quorum import quorum_of
from waltz_storage.engine.partition import Partition
from waltz_storage.engine.storage_manager import StorageManager


class CarriedMarks:
    """How far each copy of a partition has been since it was last cut. Owner: the world.

    `shape`: that of the world, which may get another one until it runs. `assigned(partition)`: how many
    copies the partition has at present, since administrators change that."""

    def __init__(self, shape: Callable[[], Shape], assigned: Callable[[int], int]) -> None:
        self._shape = shape
        self._assigned = assigned
        self._furthest: dict[int, dict[str, int]] = {}
        self.checked = 0
        """Marks that rose, on any node."""
        self._seen: dict[tuple[str, int], tuple[Partition, int, int]] = {}
        """The copy at the last look, its last record and its mark."""

    def ran(self, node: str, manager: StorageManager) -> str | None:
        """A job of the node has run; what is wrong with a mark of it."""
        for partition_id, partition in manager.partitions.items():
            furthest = self._furthest.setdefault(partition_id, {})
            last, mark = partition.max_txid, partition.committed
            copy, last_before, mark_before = self._seen.get((node, partition_id), (partition, -1, -1))
            self._seen[node, partition_id] = partition, last, mark
            was_cut = copy is partition and last < last_before
            furthest[node] = last if was_cut else max(furthest.get(node, -1), last)
            if mark <= mark_before:
                continue
            self.checked += 1
            holders = sum(most >= mark for most in furthest.values())
            quorum = quorum_of(len(self._shape().placement[partition_id]))
            if holders < quorum:
                quorum = quorum_of(self._assigned(partition_id))
            if holders < quorum:
                return (
                    f"{node}: partition {partition_id}: {mark} is taken for committed, which {holders} of "
                    f"{quorum} have stored"
                )
        return None
