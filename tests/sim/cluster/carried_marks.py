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

    `shape`: that of the world, which may get another one until it runs. `copies(partition)`: how many copies
    the partition has at present, since administrators change that."""

    def __init__(self, shape: Callable[[], Shape], copies: Callable[[int], int]) -> None:
        self._shape = shape
        self._copies = copies
        self._furthest: dict[int, dict[str, int]] = {}
        self._stored: dict[int, int] = {}
        """Partition to the record up to which a quorum has stored it, of the copies that there were then."""
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
            if was_cut:
                self._stored.pop(partition_id, None)
            if was_cut or last > last_before:
                self._note_stored(partition_id)
            if mark <= mark_before:
                continue
            self.checked += 1
            if mark > self._stored.get(partition_id, -1):
                self._note_stored(partition_id)  # there may be fewer copies now
            if mark > (stored := self._stored.get(partition_id, -1)):
                return (
                    f"{node}: partition {partition_id}: {mark} is taken for committed, and a quorum has stored "
                    f"{stored}"
                )
        return None

    def _note_stored(self, partition_id: int) -> None:
        copies = min(len(self._shape().placement[partition_id]), self._copies(partition_id))
        stored = sorted(self._furthest[partition_id].values(), reverse=True)
        if 0 < (quorum := quorum_of(copies)) <= len(stored):
            before = self._stored.get(partition_id, -1)
            self._stored[partition_id] = max(before, stored[quorum - 1])
