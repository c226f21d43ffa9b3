"""What the planners need of the specification and of the status, as plain values: the door between the
resource and the core. Pure.

`Memory` is all that is ever read back from the status: the recorded cluster key, the one replica change
under way, how far ZooKeeper is closed to others, and the last partitions that moved between servers. So is
the number of ZooKeeper's servers, which is in `Desired` with its other facts.
Everything else is derived anew from each snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid5

from waltz_cluster.moving import ServerMove
from waltz_operator.api.cluster import ReclaimPolicy, WaltzCluster
from waltz_operator.api.cluster_status import ServerMoveState
from waltz_operator.api.metadata import ORPHAN, SKIP_TEARDOWN
from waltz_operator.api.parts import ZooKeeperAuthentication
from waltz_operator.api.servers import LoadRebalance
from waltz_operator.api.topology import (
    NodeIdentity,
    cluster_label,
    copy_job_name,
    storage_nodes,
    zookeeper_claims,
    zookeeper_name,
)
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.model.times import seconds
from waltz_operator.resources.login import Level

_KEY_NAMESPACE = UUID("3d9c5f6e-5c1b-4f3b-9b52-0d3b1d6a7c11")


class BalanceLimits(NamedTuple):
    """When partitions move between servers by load. `minimum_cores`: of the busiest server; `improvement`:
    the part by which the larger load has to fall."""

    window_minutes: int
    minimum_cores: float
    improvement: float
    cooldown_seconds: float
    moves: int

    @property
    def window_seconds(self) -> float:
        return self.window_minutes * 60.0


class ServerMoveRecord(NamedTuple):
    """A partition that was decided to move at that time, and what came of it. Whatever that is, the partition
    may have moved, so the cool-down counts."""

    move: ServerMove
    at: float
    state: ServerMoveState = ServerMoveState.DUE
    message: str = ""

    @property
    def due(self) -> bool:
        return self.state is ServerMoveState.DUE


class MoveKind(StrEnum):
    """A change of the replicas of one partition."""

    ADD = "AddReplica"
    MOVE = "MoveReplica"
    DROP = "RemoveReplica"
    REFILL = "RefillReplica"


class Move(NamedTuple):
    """One replica change. `source` gives a copy up (MOVE, DROP), `target` gets one (ADD, MOVE); in a
    REFILL both are the node whose disk was lost."""

    kind: MoveKind
    partition: int
    source: str | None
    target: str | None
    started_at: float = 0.0

    @property
    def same(self) -> tuple[MoveKind, int, str | None, str | None]:
        """What makes it this change and no other one."""
        return self.kind, self.partition, self.source, self.target


@dataclass(frozen=True, slots=True)
class Memory:
    """What the cluster's status records."""

    cluster_key: UUID | None = None
    operation: Move | None = None
    authentication: ZooKeeperAuthentication | None = None
    credentials: str = ""
    login: Level = Level.NONE
    server_moves: tuple[ServerMoveRecord, ...] = ()
    """The last ones, in their order."""


@dataclass(frozen=True, slots=True)
class Desired:
    """The specification of one cluster. `created_key` is the key that a new tree gets: derived from the
    object's uid, so that a tree made just before a crash is known again, and nobody else's is taken for
    ours."""

    name: str
    label: str
    partitions: int
    nodes: tuple[NodeIdentity, ...]
    created_key: UUID
    copy_job: Callable[[str, int], str]
    """Name of the copy job of a migration and partition."""
    uid: str = ""
    created: float = 0.0
    """Of the object; UNIX time."""
    adopt_key: UUID | None = None
    paused: bool = False
    deleting: bool = False
    orphaning: bool = False
    """It is deleted with `--cascade=orphan`, and garbage collection has not released yet what it owns."""
    reclaim_delete: bool = False
    allow_pause: bool = False
    skip_teardown: bool = False
    by_connect: Mapping[str, NodeIdentity] = field(default_factory=dict)
    zookeeper_claims: tuple[str, ...] = ()
    """Volume claims of the managed ZooKeeper, in the order of its servers."""
    zookeeper_set: str = ""
    """Its StatefulSet; empty for an ensemble of one's own."""
    zookeeper_members: int = 0
    """How many servers it had last, by the status; 0 where that was not recorded."""
    own_login: bool = False
    """Whether the operator makes the credentials, where there are to be any."""
    authentication: ZooKeeperAuthentication | None = None
    journal_bytes: int = 0
    """What the journal takes of each node's data volume; 0 where it takes nothing of it."""
    own_journal_bytes: int = 0
    """What it takes of a volume of its own; 0 where there is none."""
    balance: BalanceLimits | None = None
    """None: servers keep what they have."""
    console: bool = False
    """Whether there is to be a console."""

    @property
    def servers_key(self) -> ObjectKey:
        """The servers' Deployment."""
        return ObjectKey("Deployment", f"{self.name}-server")

    @property
    def console_key(self) -> ObjectKey:
        """The console's Deployment."""
        return ObjectKey("Deployment", f"{self.name}-console")

    @property
    def expected_key(self) -> UUID:
        """The key a tree must have when none was recorded yet."""
        return self.adopt_key or self.created_key


def created_key(uid: str) -> UUID:
    """The key of a tree made for the object with this uid."""
    return uuid5(_KEY_NAMESPACE, uid)


def desired_of(cluster: WaltzCluster) -> Desired:
    """The values of a resource."""
    spec, meta = cluster.spec, cluster.metadata
    nodes = storage_nodes(cluster)
    adopt = spec.zookeeper.adopt_key
    return Desired(
        name=meta.name,
        label=cluster_label(cluster),
        partitions=spec.partitions,
        nodes=nodes,
        created_key=created_key(meta.uid),
        copy_job=partial(copy_job_name, cluster),
        uid=meta.uid,
        created=seconds(meta.creation_timestamp),
        adopt_key=UUID(str(adopt)) if adopt else None,
        paused=spec.paused,
        deleting=meta.deleting,
        orphaning=meta.deleting and ORPHAN in meta.finalizers,
        reclaim_delete=spec.reclaim_policy is ReclaimPolicy.DELETE,
        allow_pause=spec.storage.allow_pause,
        skip_teardown=meta.annotations.get(SKIP_TEARDOWN) == meta.name,
        by_connect={node.connect_string: node for node in nodes},
        zookeeper_claims=zookeeper_claims(cluster),
        zookeeper_set=zookeeper_name(cluster) if spec.zookeeper.managed is not None else "",
        zookeeper_members=cluster.status.zookeeper.members if spec.zookeeper.managed is not None else 0,
        own_login=spec.zookeeper.managed is not None and spec.zookeeper.auth is None,
        authentication=spec.zookeeper.managed.authentication if spec.zookeeper.managed is not None else None,
        journal_bytes=spec.storage.journal.shared_bytes if spec.storage.journal is not None else 0,
        own_journal_bytes=spec.storage.journal.own_bytes if spec.storage.journal is not None else 0,
        balance=_limits(spec.servers.rebalance),
        console=spec.console.enabled,
    )


def _limits(wanted: LoadRebalance | None) -> BalanceLimits | None:
    if wanted is None:
        return None
    return BalanceLimits(
        wanted.window_minutes,
        wanted.minimum_cpu_percent / 100,
        wanted.improvement_percent / 100,
        wanted.cooldown_minutes * 60.0,
        wanted.moves_per_window,
    )
