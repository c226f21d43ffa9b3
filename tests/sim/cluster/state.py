"""The true state of the cluster, seen from outside: what decides whether a destructive fault keeps within the
promise.

The promise: nothing acknowledged is lost while, of the replicas of each partition, fewer than half have lost
what they had synced, counted until they have caught up again (docs/safety.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tests.sim.cluster.server_role import CLUSTER_ROOT, ServerRole
from tests.sim.cluster.shape import host_of
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.kernel.zookeeper import SimZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata, ReplicaAssignments
from waltz_server.store.api import StoreState

LOST_FILES = "lost files"
"""Of `ClusterState.rotten`: files are gone, and no byte of any other was changed. What that does is never
excused."""


class ClusterState:
    """Reads only. `shown_mark`: the largest id anybody was shown as committed in a partition."""

    def __init__(
        self,
        zookeeper: SimZooKeeper,
        storage: Mapping[str, StorageRole],
        servers: Mapping[str, ServerRole],
        partitions: int,
        shown_mark: Callable[[int], int],
    ) -> None:
        self._zookeeper = zookeeper
        self._storage = storage
        self._servers = servers
        self._shown_mark = shown_mark
        self.partitions = partitions
        self.paths = ClusterPaths(CLUSTER_ROOT)
        self.rotten: dict[tuple[str, int], str | None] = {}
        """(node, partition) whose files were damaged behind its back and not filled afresh since: LOST_FILES,
        or None."""
        self.switched_off: dict[tuple[str, int], int] = {}
        """(node, partition) → how many administrators have taken the copy out of service and not put it
        back."""
        self.lost: dict[tuple[str, int], None] = {}
        """(node, partition) whose copy was destroyed or damaged and that has not been whole since."""
        self.changing: Counter[int] = Counter()
        """Partitions whose replicas an administrator is changing."""

    def _peek(self, path: str) -> bytes | None:
        node = self._zookeeper.find(path)
        return None if node is None else node.data

    def switched_off_partitions(self, name: str) -> list[int]:
        """Partitions of the node that an administrator has out of service."""
        return [partition for (node, partition), count in self.switched_off.items() if node == name and count]

    def rotten_partitions(self, name: str) -> list[int]:
        """Partitions of the node that are in `rotten`."""
        return [partition for node, partition in self.rotten if node == name]

    def changed_partitions(self, name: str) -> list[int]:
        """Those of them in whose files bits were changed."""
        return [p for p in self.rotten_partitions(name) if self.rotten[name, p] != LOST_FILES]

    def lost_partitions(self, name: str) -> list[int]:
        """Those of them of which files are gone."""
        return [p for p in self.rotten_partitions(name) if self.rotten[name, p] == LOST_FILES]

    def forget_rot(self, name: str) -> None:
        """All files of the node are others now."""
        for key in [key for key in self.rotten if key[0] == name]:
            del self.rotten[key]

    def metadata(self, partition: int) -> PartitionMetadata | None:
        """What ZooKeeper has of the partition's store session."""
        found = self._peek(self.paths.partition(partition))
        return None if found is None else PartitionMetadata.from_bytes(found)

    def assigned(self, partition: int) -> list[str]:
        """Storage nodes that are to hold the partition, by name."""
        found = ReplicaAssignments.from_bytes(self._peek(self.paths.assignment))
        return sorted(host_of(connect) for connect in found.replicas_of(partition))

    def copies(self, partition: int) -> int:
        """How many the partition's session has, which may not know yet of those that were assigned since."""
        state, assigned = self.metadata(partition), len(self.assigned(partition))
        return min(assigned, len(state.replicas)) if state is not None and state.replicas else assigned

    def committed_mark(self, partition: int) -> int:
        """The largest id that anybody, servers included, takes for committed."""
        marks = [self._shown_mark(partition)]
        for role in self._servers.values():
            if role.alive and role.server is not None:
                mark = role.committed_mark(partition)
                if mark is not None:
                    marks.append(mark)
        return max(marks)

    def whole(self, name: str, partition: int) -> bool:
        """The node is there, takes part in the present session, and has everything committed on its disk."""
        role = self._storage[name]
        state = self.metadata(partition)
        node = role.node
        if state is None or node is None or not role.alive or (name, partition) in self.rotten:
            return False
        known = state.replicas.get(role.connect_string)
        held = node.manager.partitions.get(partition)
        if known is None or known.resolved or known.session_id != state.session_id:
            return False
        return (
            held is not None
            and held.failed is None
            and held.damaged_reads == 0
            and held.info.available
            and held.info.session_id == state.session_id
            and held.max_txid >= self.committed_mark(partition)
        )

    def concerned(self, name: str) -> list[int]:
        """Partitions that count on the node: by assignment or by their last session."""
        connect = self._storage[name].connect_string
        found = []
        for partition in range(self.partitions):
            state = self.metadata(partition)
            if name in self.assigned(partition) or (state is not None and connect in state.replicas):
                found.append(partition)
        return found

    def can_lose(self, name: str, partitions: list[int] | None = None) -> bool:
        """Whether the node's copies may be destroyed now: a minority of each partition's copies is lost then,
        counted until they are whole again. The others may lag or be away: what only the lost one and one that
        is away had is undecided until that one is back (safety A1)."""
        return all(
            self._can_lose(name, partition)
            for partition in (self.concerned(name) if partitions is None else partitions)
        )

    def _can_lose(self, name: str, partition: int) -> bool:
        state = self.metadata(partition)
        if state is None or self.changing[partition]:
            return False
        assigned = self.assigned(partition)
        if {host_of(connect) for connect in state.replicas} != set(assigned):
            return False  # a change of replicas is under way
        for key in [key for key in self.lost if self.whole(*key)]:
            del self.lost[key]
        damaged = sum((other, partition) in self.lost for other in assigned if other != name)
        return damaged + 1 <= (len(assigned) - 1) // 2

    def is_lost(self, name: str, partition: int) -> bool:
        """Whether the copy was destroyed or damaged and has not been whole since."""
        return (name, partition) in self.lost and not self.whole(name, partition)

    def served(self, partition: int) -> bool:
        """A server has it open."""
        stores = [store for role in self._servers.values() if (store := role.store(partition)) is not None]
        return any(store.state is StoreState.OPEN for store in stores)

    def waits_for_lost_copies(self) -> bool:
        """A partition is not served, and a copy of it that was destroyed is not whole again: it may be too
        few without that one, and with many records to copy that takes its time."""
        return any(
            self.is_lost(name, partition) and not self.served(partition) for name, partition in self.lost
        )

    @staticmethod
    def replicas_in(data: bytes) -> set[str]:
        """The nodes, by name, that metadata of a partition lists."""
        return {host_of(connect) for connect in PartitionMetadata.from_bytes(data).replicas}

    def destroyed(self, name: str, partitions: Iterable[int]) -> None:
        """These copies are lost or damaged from now on."""
        for partition in partitions:
            self.lost[name, partition] = None

    def told(self) -> bool:
        """Every node runs and has what is assigned to it."""
        return all(
            (node := self._storage[name].node) is not None and partition in node.manager.partitions
            for partition in range(self.partitions)
            for name in self.assigned(partition)
        )

    def settled(self) -> bool:
        """Every assigned replica of every partition is whole."""
        return all(
            self.whole(name, partition)
            for partition in range(self.partitions)
            for name in self.assigned(partition)
        )

    def unsettled(self) -> list[str]:
        """What `settled` still waits for."""
        lines = []
        for partition in range(self.partitions):
            for name in self.assigned(partition):
                if not self.whole(name, partition):
                    lines.append(f"partition {partition} on {name}: {self._why_not(name, partition)}")
        return lines

    def _why_not(self, name: str, partition: int) -> str:
        role, state = self._storage[name], self.metadata(partition)
        held = role.node.manager.partitions.get(partition) if role.node is not None else None
        problem = role.node.manager.problems().get(partition) if role.node is not None else "no node"
        mark = self.committed_mark(partition)
        return (
            f"alive {role.alive}, rotten {(name, partition) in self.rotten}, problem {problem}, "
            f"metadata {None if state is None else (state.session_id, state.replicas.get(role.connect_string))}, "
            f"server {self._server_view(name, partition)}, "
            f"node {None if held is None else (held.info, held.max_txid)}, committed {mark}"
        )

    def _server_view(self, name: str, partition: int) -> str:
        """What the partition's servers say of the replica."""
        connect = self._storage[name].connect_string
        lines = []
        for role in self._servers.values():
            store = role.store(partition)
            if store is not None:
                lines += [f"{role.name} {r}" for r in store.replicas if r.connect_string == connect]
                lines.append(f"{store.state} {store.state_reason}")
        return "; ".join(lines)
