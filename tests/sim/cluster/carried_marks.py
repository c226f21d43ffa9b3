"""The committed marks that requests of version 1 carry to storage nodes, watched from inside the nodes.

`carried_mark`: what a node takes for committed (it gives no reader more) has been stored by a quorum of the
partition's copies (safety D1).
"""

from __future__ import annotations

from tests.sim.cluster.shape import Shape
from waltz_cluster.quorum import quorum_of
from waltz_storage.engine.storage_manager import StorageManager


class CarriedMarks:
    """How far each copy of a partition has ever been, by all nodes. Owner: the world."""

    def __init__(self, shape: Shape) -> None:
        self._quorums = [quorum_of(len(nodes)) for nodes in shape.placement]
        self._furthest: dict[int, dict[str, int]] = {}
        self.checked = 0
        """Marks that were above those before, on any node."""
        self._known: dict[tuple[str, int], int] = {}

    def ran(self, node: str, manager: StorageManager) -> str | None:
        """A job of the node has run; what is wrong with a mark of it."""
        for partition_id, partition in manager.partitions.items():
            furthest = self._furthest.setdefault(partition_id, {})
            furthest[node] = max(furthest.get(node, -1), partition.max_txid)
            mark = partition.committed
            if mark <= self._known.get((node, partition_id), -1):
                continue
            self._known[node, partition_id] = mark
            self.checked += 1
            holders = sum(last >= mark for last in furthest.values())
            if holders < self._quorums[partition_id]:
                return (
                    f"{node}: partition {partition_id}: {mark} is taken for committed, which {holders} of "
                    f"{self._quorums[partition_id]} have stored"
                )
        return None
