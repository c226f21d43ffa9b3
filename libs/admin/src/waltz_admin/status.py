"""The state of a whole cluster on one page: who serves what, which replicas are behind and why, what recovery
waits for.

`summarize` is pure; `read_status` asks ZooKeeper, every server and every storage node once, at the same time.
Peers of release 0.13.2 answer all of it except the last transaction of a replica, whose lag is then not
known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from waltz_admin.disks import NodeDisk
from waltz_admin.restored_metadata import knows_more
from waltz_admin.storage_admin import NodePartition, NodeStatus, list_nodes
from waltz_admin.tree import admin_endpoint
from waltz_admin.verify import Answers, ServerAnswer, gather
from waltz_admin.view import ClusterView, read_view
from waltz_cluster.quorum import alike, quorum_of, said_once, shortage
from waltz_cluster.replica_rules import Standing, change_incomplete, standing_of
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of one partition. `last_transaction`, `lag`: None when the node does not report it."""

    node: str
    standing: Standing
    reason: str = ""
    last_transaction: int | None = None
    lag: int | None = None

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

    @property
    def ahead(self) -> list[Replica]:
        """Replicas that prove that ZooKeeper was restored from an older copy."""
        return [replica for replica in self.replicas if replica.standing is Standing.AHEAD]

    @property
    def current(self) -> int:
        """Replicas that acknowledge appends."""
        return sum(replica.standing is Standing.CURRENT for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One registered server. `unreached`: storage nodes it should reach and does not; None when it does not
    answer."""

    server_id: int
    endpoint: Endpoint
    partitions: tuple[int, ...]
    unreached: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class StorageStatus:
    """One storage node of the cluster."""

    node: str
    group: int | None
    partitions: tuple[int, ...]
    error: str | None
    disk: NodeDisk | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The page."""

    name: str
    cluster_key: str
    servers: tuple[ServerStatus, ...]
    nodes: tuple[StorageStatus, ...]
    partitions: tuple[PartitionStatus, ...]

    @property
    def problems(self) -> list[str]:
        """One line for each thing that is not as it should be, the worst first and each cause once; empty for
        a healthy cluster."""
        lines = []
        if not self.servers:
            lines.append("no server is registered")
        unable = {p.partition_id: p.problem for p in self.partitions if not p.healthy}
        lines += said_once(unable, len(self.partitions))
        lines += [f"storage node {n.node}: {n.error}" for n in self.nodes if n.error]
        lines += [f"storage node {n.node}: its disk is full" for n in self.nodes if n.disk and n.disk.full]
        for server in self.servers:
            if server.unreached is None:
                lines.append(f"server {server.endpoint} does not answer")
            elif cut_off := self.cut_off(server):
                lines.append(f"server {server.endpoint} does not reach {', '.join(cut_off)}")
        late = {p.partition_id: p.problem for p in self.partitions if p.healthy and p.problem}
        lines += [f"partition {ids}: {problem}" for ids, problem in alike(late).items()]
        return lines

    def cut_off(self, server: ServerStatus) -> list[str]:
        """Storage nodes that answer us and not the server. Of one that answers nobody it is reported once, of
        the node."""
        silent = {node.node for node in self.nodes if node.error}
        return [node for node in server.unreached or () if node not in silent]


async def read_status(
    store: ZooKeeperStore, root: str, *, tls: TlsSettings, timeout_seconds: float = 10.0
) -> ClusterStatus:
    """Ask everybody. Who does not answer within `timeout_seconds` is shown so; ClusterNotFoundError,
    AdminError."""
    view = await read_view(store, root)
    answers, statuses = await asyncio.gather(
        gather(view, tls, timeout_seconds, range(view.params.num_partitions)),
        list_nodes(store, root, tls, timeout_seconds=timeout_seconds),
    )
    by_endpoint = {status.admin: status for status in statuses}
    nodes = {
        node: by_endpoint[endpoint]
        for node, port in view.nodes.admin_ports.items()
        if (endpoint := admin_endpoint(node, port)) in by_endpoint
    }
    status = summarize(view, answers, nodes)
    if any(p.ahead for p in status.partitions):  # or a session began after ZooKeeper was read: read again
        fresh = await read_view(store, root)
        status = summarize(replace(view, metadata=fresh.metadata), answers, nodes)
    return status


def summarize(view: ClusterView, answers: Answers, nodes: Mapping[str, NodeStatus]) -> ClusterStatus:
    """Make the page of what was answered, servers and nodes in the order of their addresses. Pure."""
    groups = view.nodes.groups
    return ClusterStatus(
        view.params.name,
        str(view.store.cluster_key),
        tuple(
            _server(view, server.server_id, server.endpoint, answers)
            for server in sorted(view.servers, key=lambda server: server.endpoint)
        ),
        tuple(
            _node(node, groups.get(node), tuple(sorted(held)), nodes.get(node))
            for node, held in sorted(view.nodes.partitions.items())
        ),
        tuple(_partition(view, answers, nodes, partition) for partition in range(view.params.num_partitions)),
    )


def _node(
    node: str, group: int | None, partitions: tuple[int, ...], status: NodeStatus | None
) -> StorageStatus:
    if status is None:
        return StorageStatus(node, group, partitions, "it has no admin port in ZooKeeper")
    return StorageStatus(node, group, partitions, status.error, status.disk)


def _server(view: ClusterView, server_id: int, endpoint: Endpoint, answers: Answers) -> ServerStatus:
    answer = answers.servers.get(server_id, ServerAnswer())
    held = tuple(sorted(partition for partition, _ in view.assignment.servers.get(server_id, ())))
    if answer.connectivity is None:
        return ServerStatus(server_id, endpoint, held, None)
    needed = [node for node, partitions in view.nodes.partitions.items() if partitions]
    unreached = tuple(sorted(node for node in needed if not answer.connectivity.get(node, False)))
    return ServerStatus(server_id, endpoint, held, unreached)


def _partition(
    view: ClusterView, answers: Answers, nodes: Mapping[str, NodeStatus], partition: int
) -> PartitionStatus:
    metadata = {int(key): value for key, value in view.metadata.items()}.get(partition)
    assigned = sorted(node for node, held in view.nodes.partitions.items() if partition in held)
    known = metadata if isinstance(metadata, PartitionMetadata) else None
    replicas = _with_lag([_replica(node, partition, known, nodes.get(node), answers) for node in assigned])
    server, answer = _owner(view, answers, partition)
    session = known.session_id if known is not None else None
    healthy = bool(server is not None and answer.health and answer.health.get(partition, False))
    status = PartitionStatus(partition, server, healthy, session, replicas)
    if not healthy:
        replicas = _with_those_ahead(replicas, known, partition, nodes)
        status = replace(status, replicas=replicas)
        waits_for = "" if status.ahead else _waits_for(status, known, answer)
        problem = _why_unhealthy(view, answer, status, metadata, partition)
        return PartitionStatus(partition, server, False, session, replicas, problem, waits_for)
    behind = [replica for replica in replicas if replica.standing is not Standing.CURRENT]
    problem = "; ".join(
        f"{r.node} is {r.standing.value}{f' ({r.reason})' if r.reason else ''}" for r in behind
    )
    if known is not None and change_incomplete(known, assigned):
        problem = "a change of its replicas is not complete" + (f"; {problem}" if problem else "")
    return PartitionStatus(partition, server, True, session, replicas, problem)


def _with_those_ahead(
    replicas: tuple[Replica, ...],
    known: PartitionMetadata | None,
    partition: int,
    nodes: Mapping[str, NodeStatus],
) -> tuple[Replica, ...]:
    """A partition that is well has begun a session after ZooKeeper was read; in one that is not this is
    evidence (rule A8)."""
    if known is None:
        return replicas
    held = {
        n: c for n, s in nodes.items() for c in s.partitions if c.partition_id == partition and c.assigned
    }
    proved = knows_more(known, held)
    return tuple(
        replace(r, standing=Standing.AHEAD, reason=f"it {proved[r.node]}") if r.node in proved else r
        for r in replicas
    )


def _owner(view: ClusterView, answers: Answers, partition: int) -> tuple[Endpoint | None, ServerAnswer]:
    owners = view.owners(partition)
    present = {server.server_id: server.endpoint for server in view.servers}
    if len(owners) != 1 or owners[0] not in present:
        return None, ServerAnswer()
    return present[owners[0]], answers.servers.get(owners[0], ServerAnswer())


_LIMITED_BY_A_FULL_DISK = frozenset(
    {Standing.CURRENT, Standing.BEHIND, Standing.INCOMPLETE, Standing.UNAVAILABLE}
)


def _replica(
    node: str,
    partition: int,
    metadata: PartitionMetadata | None,
    status: NodeStatus | None,
    answers: Answers,
) -> Replica:
    """By the rule of all tools, and one thing more: a copy on a full disk is complete and takes no append."""
    if status is None or status.error is not None:
        return Replica(node, Standing.UNREACHABLE)  # why is reported once, of the node
    held: NodePartition | None = next((p for p in status.partitions if p.partition_id == partition), None)
    standing, reason = standing_of(metadata, node, answers.copy(node, partition), later_session_passes=True)
    if status.disk is not None and status.disk.full and standing in _LIMITED_BY_A_FULL_DISK:
        standing, reason = Standing.UNAVAILABLE, "its disk is full"
    return Replica(node, standing, reason, held.max_transaction_id if held is not None else None)


def _with_lag(replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    known = [replica.last_transaction for replica in replicas if replica.last_transaction is not None]
    highest = max(known, default=-1)
    return tuple(
        r if r.last_transaction is None else replace(r, lag=highest - r.last_transaction) for r in replicas
    )


def _why_unhealthy(
    view: ClusterView,
    answer: ServerAnswer,
    status: PartitionStatus,
    metadata: PartitionMetadata | str | None,
    partition: int,
) -> str:
    if status.ahead:
        return "ZooKeeper is older than its replicas: " + "; ".join(
            f"{r.node}: {r.reason}" for r in status.ahead
        )
    if not status.replicas:
        return "no replica is assigned"
    if not view.servers:
        return "no server is registered"
    if isinstance(metadata, str):
        return f"its metadata cannot be read: {metadata}"
    short = shortage({replica.node: replica.unable for replica in status.replicas})
    if short and metadata is not None:
        return short
    if status.server is None:
        owners = view.owners(partition)
        return "its server is not registered" if owners else "no server is assigned"
    if answer.health is None:
        return f"its server {status.server} does not answer"
    return f"its server {status.server} reports that it is not healthy"


def _waits_for(status: PartitionStatus, metadata: PartitionMetadata | None, answer: ServerAnswer) -> str:
    """What has to come back before appends continue, as far as that is visible from outside."""
    count = len(status.replicas)
    if metadata is None or not count:
        return ""
    needed = quorum_of(count)
    able = [r for r in status.replicas if not r.unable]
    missing = [r for r in status.replicas if r not in able]
    if len(able) >= needed:
        if status.server is None or answer.health is None:
            return "a server that takes it over"
        return "the recovery of its store session"
    lost = [r.node for r in missing if r.standing is Standing.SET_BACK]
    text = f"{needed - len(able)} more of {', '.join(r.node for r in missing)}"
    if lost:
        text += f" (lost or older disks do not count until the others have decided: {', '.join(lost)})"
    return text
