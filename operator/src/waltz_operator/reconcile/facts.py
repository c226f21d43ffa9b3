"""A snapshot seen through the questions that the planners ask. Pure; answers nothing that was not positively observed.

Nodes are named by connect string. *Holders* of a partition are the nodes that ZooKeeper assigns it to; it is *current* on a holder
when the partition's metadata lists that node in its present store session and the node's own fresh answer agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from waltz_operator.api.topology import NodeIdentity
from waltz_operator.migration.task import Task
from waltz_operator.reconcile.desired import Desired, Memory
from waltz_operator.reconcile.snapshot import (
    JobView,
    KubeView,
    NeverStarted,
    NodeReplica,
    NodeView,
    PartitionRecord,
    ServerView,
    TreeBroken,
    TreeMissing,
    TreeView,
    Unknown,
)

FRESH_SECONDS = 10.0
"""An answer older than this proves nothing."""
MAX_RESTART_LAG = 10_000
"""A copy that is more transactions behind than this is not counted on while another one is taken down."""

_NO_NODE = Unknown("it was not asked")


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at one cluster. ``leaving``: nodes that the specification no longer has and that are still somewhere."""

    desired: Desired
    memory: Memory
    kube: KubeView | Unknown
    tree: TreeView | TreeMissing | TreeBroken | Unknown
    nodes: Mapping[str, NodeView | Unknown]
    servers: Mapping[int, ServerView | Unknown]
    now: float
    leaving: tuple[NodeIdentity, ...] = ()
    tasks: tuple[Task, ...] = ()
    problems: tuple[str, ...] = ()
    placement: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    # -- identities

    def identity(self, node: str) -> NodeIdentity | None:
        """A wanted or leaving node."""
        found = self.desired.by_connect.get(node)
        return found or next((one for one in self.leaving if one.connect_string == node), None)

    def staying(self, node: str) -> bool:
        """Whether the specification wants the node."""
        return node in self.desired.by_connect

    def admin_port(self, node: str) -> int:
        """By ZooKeeper, else as the specification says."""
        if isinstance(self.tree, TreeView) and node in self.tree.admin_ports:
            return self.tree.admin_ports[node]
        identity = self.identity(node)
        return identity.admin_port if identity is not None else 0

    def group(self, node: str) -> str | None:
        """Name of the group of a wanted or leaving node; None for one that nobody can place."""
        identity = self.identity(node)
        return identity.group if identity is not None else None

    # -- ZooKeeper

    def holders(self, partition: int) -> tuple[str, ...]:
        """Nodes that ZooKeeper assigns the partition to."""
        return self.placement.get(partition, ())

    def record(self, partition: int) -> PartitionRecord | NeverStarted | Unknown:
        """The partition's metadata."""
        if not isinstance(self.tree, TreeView):
            return Unknown("ZooKeeper was not read")
        return self.tree.partitions.get(partition, Unknown("its metadata was not read"))

    def metadata_known(self) -> bool:
        """Whether the metadata of every partition was read."""
        return isinstance(self.tree, TreeView) and all(
            not isinstance(self.record(partition), Unknown) for partition in range(self.tree.num_partitions)
        )

    def listed(self, node: str) -> int | None:
        """The first partition whose metadata counts the node among its replicas."""
        if isinstance(self.tree, TreeView):
            for partition, record in self.tree.partitions.items():
                if isinstance(record, PartitionRecord) and node in record.replicas:
                    return partition
        return None

    # -- storage nodes

    def node(self, node: str) -> NodeView | Unknown:
        """Its fresh, complete answer."""
        view = self.nodes.get(node, _NO_NODE)
        if isinstance(view, NodeView) and self.now - view.observed_at > FRESH_SECONDS:
            return Unknown(f"its answer is {self.now - view.observed_at:.0f} s old")
        return view

    def replica(self, partition: int, node: str) -> NodeReplica | Unknown | None:
        """What the node says of the partition; None: a complete answer without it."""
        view = self.node(node)
        return view if isinstance(view, Unknown) else view.partitions.get(partition)

    def not_current(self, partition: int, node: str) -> str:
        """Why the node is not proven to be current; empty when it is (safety rule A6's "caught up")."""
        record = self.record(partition)
        if isinstance(record, Unknown):
            return record.reason
        if isinstance(record, NeverStarted):
            return "the partition was never started"
        listed = record.replicas.get(node)
        if listed is None:
            return "it is not among the replicas of the present session"
        if listed.closing is not None or listed.session_id != record.session_id:
            return f"it dropped out in session {listed.session_id}"
        replica = self.replica(partition, node)
        if isinstance(replica, Unknown):
            return f"no answer: {replica.reason}"
        if replica is None:
            return "it does not have the partition"
        return _own_word(replica, record.session_id)

    def current(self, partition: int, nodes: Iterable[str]) -> list[str]:
        """Those of the nodes that are proven to be current."""
        return [node for node in nodes if not self.not_current(partition, node)]

    def data_lost(self, partition: int, node: str) -> bool:
        """Positive proof that a replica that took part in a session has lost its data: by a complete answer of the node it has not the
        partition, or is set back behind the session that ZooKeeper recorded of it."""
        record = self.record(partition)
        if not isinstance(record, PartitionRecord) or node not in record.replicas:
            return False
        recorded = record.replicas[node].session_id
        replica = self.replica(partition, node)
        if recorded < 0 or isinstance(replica, Unknown):
            return False
        return replica is None or replica.session_id < recorded

    def highest(self, partition: int) -> int | None:
        """The newest transaction that any holder tells of."""
        told = [
            replica.max_transaction_id
            for node in self.holders(partition)
            if isinstance(replica := self.replica(partition, node), NodeReplica)
            and replica.max_transaction_id is not None
        ]
        return max(told, default=None)

    def lag(self, partition: int, node: str) -> int | None:
        """Transactions that the node is behind; None = not known (release 0.13.2 does not tell)."""
        highest, replica = self.highest(partition), self.replica(partition, node)
        if highest is None or not isinstance(replica, NodeReplica) or replica.max_transaction_id is None:
            return None
        return max(0, highest - replica.max_transaction_id)

    def worst_lag(self, node: str) -> int:
        """Over all partitions of the node; 0 when nothing is known."""
        held = self.tree.assignments.get(node, ()) if isinstance(self.tree, TreeView) else ()
        return max((self.lag(partition, node) or 0 for partition in held), default=0)

    # -- jobs

    def job(self, name: str) -> JobView | None:
        """The copy job of that name; None: there is none (Kubernetes must have been read)."""
        return self.kube.jobs.get(name) if isinstance(self.kube, KubeView) else None


def _own_word(replica: NodeReplica, session_id: int) -> str:
    if replica.trouble:
        return replica.trouble
    if not replica.available:
        return "it is unavailable"
    if replica.session_id != session_id:
        return f"it is in session {replica.session_id}, not {session_id}"
    if not replica.holds_low_water_mark:
        return "it did not show the record at its low-water mark"
    return ""


def placement_of(tree: object) -> dict[int, tuple[str, ...]]:
    """Partition → nodes, of the assignments in ZooKeeper."""
    found: dict[int, tuple[str, ...]] = {}
    if isinstance(tree, TreeView):
        for node, partitions in sorted(tree.assignments.items()):
            for partition in partitions:
                found[partition] = (*found.get(partition, ()), node)
    return found
