"""The state of a cluster as values: what `waltz_admin.status` makes of the answers, and what
`waltz_admin.findings` judges. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from waltz_admin.copies import NodePartition
from waltz_admin.disks import NodeDisk
from waltz_admin.not_open import NotOpen
from waltz_cluster.quorum import quorum_of
from waltz_cluster.replica_rules import Standing
from waltz_cluster.serializers import ReplicaState
from waltz_protocol.types import Endpoint

DISK_IS_FULL = "its disk is full"
"""The reason of a copy that is limited by nothing else; it is reported of the node."""


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
        """Why it cannot be counted on for a write; empty when it can, once it has caught up, and where that
        is not known."""
        if self.standing in (Standing.CURRENT, Standing.BEHIND, Standing.UNKNOWN):
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
    unknown: bool = False
    """Whether it takes appends: its server is there, and cannot be asked. `healthy` is False then."""
    not_open: NotOpen | None = None
    """Why it is not healthy, by its server's report; None where it is, or the server has no such report."""
    metadata_lost: str = ""
    """Why ZooKeeper has no metadata of it, though it may have had a store session; empty when it has them, or
    proves that there were none."""

    @property
    def closed(self) -> bool:
        """It takes no appends."""
        return not self.healthy and not self.unknown

    @property
    def fault(self) -> str:
        """The reason of its server, where that is a fault; empty elsewhere."""
        found = self.not_open
        return found.reason or found.state if found is not None and found.fault else ""

    @property
    def ahead(self) -> list[Replica]:
        """Replicas that prove that ZooKeeper was restored from an older copy."""
        return [replica for replica in self.replicas if replica.standing is Standing.AHEAD]

    @property
    def current(self) -> int:
        """Replicas that acknowledge appends."""
        return sum(replica.votes for replica in self.replicas)

    @property
    def too_many_refused(self) -> bool:
        """Without the copies that its server refuses there is no majority."""
        refused = sum(replica.standing is Standing.REFUSED for replica in self.replicas)
        return len(self.replicas) - refused < quorum_of(len(self.replicas))


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
    error: str = ""
    """Why it does not answer, where that is known."""
    turned_away: bool = False
    """It is there, and no connection to it could be made (`errors.TurnedAwayError`)."""


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
    turned_away: bool = False
    """As with `ServerStatus`."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The page."""

    name: str
    cluster_key: str
    servers: tuple[ServerStatus, ...]
    nodes: tuple[StorageStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    left_out: tuple[int, ...] | None = None
    """Servers (ids) that are registered, and not in the assignment, which was made for others; None: it was
    made for those that are registered."""
    own_certificate: str = ""
    """Where nobody lets us in: what is wrong with the certificate that we show; empty: nothing."""

    @property
    def shut_out(self) -> bool:
        """Nobody answers us, and not because nobody is there: what we know is what ZooKeeper holds."""
        turned_away = [s.turned_away for s in self.servers] + [n.turned_away for n in self.nodes]
        silent = [s.unreached is None for s in self.servers] + [n.error is not None for n in self.nodes]
        return any(turned_away) and all(silent)

    def cut_off(self, server: ServerStatus) -> list[str]:
        """Storage nodes that answer us and not the server. Of one that answers nobody it is reported once, of
        the node."""
        silent = {node.node for node in self.nodes if node.error}
        return [node for node in server.unreached or () if node not in silent]
