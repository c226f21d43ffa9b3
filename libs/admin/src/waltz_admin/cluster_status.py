"""The state of a cluster as values: what `waltz_admin.status` makes of the answers, and what
`waltz_admin.findings` judges. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from waltz_admin.copies import NodePartition
from waltz_admin.disks import NodeDisk
from waltz_cluster.replica_rules import Standing
from waltz_cluster.serializers import ReplicaState
from waltz_protocol.types import Endpoint


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of one partition. `last_transaction`, `lag`: None when the node does not report it."""

    node: str
    standing: Standing
    reason: str = ""
    last_transaction: int | None = None
    lag: int | None = None
    copy: NodePartition | None = None
    """What the node reports about its copy; None when it does not answer or has none."""
    listed: ReplicaState | None = None
    """What ZooKeeper holds about it; None when it is not among the replicas of the last session."""

    @property
    def votes(self) -> bool:
        """Whether its acknowledgement counts for a commit now."""
        return self.standing is Standing.CURRENT

    @property
    def unable(self) -> str:
        """Why it cannot be counted on for a write; empty when it can, once it has caught up."""
        if self.standing in (Standing.CURRENT, Standing.BEHIND):
            return ""
        return f"{self.standing.value}: {self.reason}" if self.reason else str(self.standing.value)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. `problem` is empty when it takes appends and all its replicas are current."""

    partition_id: int
    server: Endpoint | None
    healthy: bool
    session_id: int | None
    replicas: tuple[Replica, ...]
    problem: str = ""
    waits_for: str = ""
    generation: int | None = None
    """Number of its assignment to the server; it grows with each. None without an owner."""
    changing: str = ""
    """Why a change of its replicas is not complete; empty when no change is under way."""
    recorded_at: float | None = None
    """When its records in ZooKeeper (session, replicas) were last written: Unix time, ZooKeeper's clock."""

    @property
    def ahead(self) -> list[Replica]:
        """Replicas that prove that ZooKeeper was restored from an older copy."""
        return [replica for replica in self.replicas if replica.standing is Standing.AHEAD]

    @property
    def current(self) -> int:
        """Replicas that acknowledge appends."""
        return sum(replica.votes for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One registered server. `unreached`: storage nodes it should reach and does not, empty too while it is
    not done with asking them; None when it does not answer."""

    server_id: int
    endpoint: Endpoint
    partitions: tuple[int, ...]
    unreached: tuple[str, ...] | None
    preferred: tuple[int, ...] = ()
    """Partitions that it prefers, in its order."""


@dataclass(frozen=True, slots=True)
class StorageStatus:
    """One storage node of the cluster."""

    node: str
    group: int | None
    partitions: tuple[int, ...]
    error: str | None
    disk: NodeDisk | None = None
    surplus: tuple[int, ...] = ()
    """Partitions that it has and is not assigned in ZooKeeper."""
    refused: bool = False
    """It answers, and refuses connections of this cluster; `error` says why."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The page."""

    name: str
    cluster_key: str
    servers: tuple[ServerStatus, ...]
    nodes: tuple[StorageStatus, ...]
    partitions: tuple[PartitionStatus, ...]

    def cut_off(self, server: ServerStatus) -> list[str]:
        """Storage nodes that answer us and not the server. Of one that answers nobody it is reported once, of
        the node."""
        silent = {node.node for node in self.nodes if node.error}
        return [node for node in server.unreached or () if node not in silent]
