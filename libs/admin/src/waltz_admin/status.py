"""The state of a whole cluster on one page: who serves what, which replicas are behind and why, what recovery
waits for.

The values are those of `waltz_admin.cluster_status`; what is wrong, and what to do about it, is found in
them by `waltz_admin.findings`. `summarize` makes them of the answers; `read_status` asks ZooKeeper, every
server and every storage node once, at the same time, and a server once more where a copy is not current or a
partition not open. Peers of release 0.13.2 answer all of it except the last transaction of a replica, whose
lag is then not known, which copies a server refuses, and why a partition is not open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from waltz_admin.cluster_status import (
    DISK_IS_FULL,
    ClusterStatus,
    PartitionStatus,
    Replica,
    ServerStatus,
    StorageStatus,
)
from waltz_admin.copies import NodePartition
from waltz_admin.restored_metadata import knows_more
from waltz_admin.storage_admin import NodeStatus, list_nodes
from waltz_admin.verify import Answers, ServerAnswer, gather
from waltz_admin.view import ClusterView, read_view
from waltz_cluster.quorum import quorum_of, shortage
from waltz_cluster.replica_rules import Standing, change_incomplete, standing_of
from waltz_cluster.serializers import PartitionMetadata, ServerDescriptor
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings, own_certificate_problem
from waltz_protocol.types import Endpoint, PartitionId

ASSIGNMENT_SECONDS = 3.0
"""After this long an assignment for other servers than those registered is not about to be made anew."""
_AGAIN_SECONDS = 0.25


async def read_status(
    store: ZooKeeperStore, root: str, *, tls: TlsSettings, timeout_seconds: float = 10.0
) -> ClusterStatus:
    """Ask everybody. Who does not answer within `timeout_seconds` is shown so; ClusterNotFoundError,
    AdminError."""
    view = await _assigned_view(store, root)
    answers, statuses = await asyncio.gather(
        gather(view, tls, timeout_seconds, range(view.params.num_partitions)),
        list_nodes(store, root, tls, timeout_seconds=timeout_seconds),
    )
    nodes = {one.node: one for one in statuses if one.node in view.nodes.admin_ports}
    status = summarize(view, answers, nodes)
    if any(p.ahead for p in status.partitions):  # or a session began after ZooKeeper was read: read again
        fresh = await read_view(store, root)
        status = summarize(replace(view, metadata=fresh.metadata), answers, nodes)
    return with_own_certificate(status, tls)


async def _assigned_view(store: ZooKeeperStore, root: str) -> ClusterView:
    """What ZooKeeper knows. Where a server has just come or gone, the assignment is about to be made anew:
    that is waited for."""
    loop = asyncio.get_running_loop()
    until = loop.time() + ASSIGNMENT_SECONDS
    view = await read_view(store, root)
    while _left_out(view) is not None and loop.time() < until:
        await asyncio.sleep(_AGAIN_SECONDS)
        view = await read_view(store, root)
    return view


def with_own_certificate(status: ClusterStatus, tls: TlsSettings) -> ClusterStatus:
    """With the reason why nobody lets us in, where it is our certificate."""
    return replace(status, own_certificate=own_certificate_problem(tls)) if status.shut_out else status


@dataclass(frozen=True, slots=True)
class _Sources:
    """Everything that was read and answered, by the keys by which it is asked for."""

    view: ClusterView
    answers: Answers
    nodes: Mapping[str, NodeStatus]
    metadata: Mapping[int, PartitionMetadata | str | None]
    replicas: Mapping[int, Sequence[str]]
    """Partition -> the nodes that it is assigned to, in order."""
    owners: Mapping[int, Sequence[tuple[int, int]]]
    """Partition -> servers that the assignment gives it to, with the generation."""
    copies: Mapping[tuple[str, int], NodePartition]
    servers: Mapping[int, Endpoint]
    """Those that are registered."""


_SILENT = ServerAnswer()

_Inputs = tuple[object, ...]


class Summary:
    """Makes the page again and again: a partition that is well keeps its value while nothing of what it was
    made of has changed. Bounded by the number of partitions."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[_Inputs, PartitionStatus]] = {}

    def make(self, view: ClusterView, answers: Answers, nodes: Mapping[str, NodeStatus]) -> ClusterStatus:
        """The page of what was answered, servers and nodes in the order of their addresses."""
        groups = view.nodes.groups
        sources = _sources(view, answers, nodes)
        return ClusterStatus(
            view.params.name,
            str(view.store.cluster_key),
            tuple(
                _server(view, server, answers)
                for server in sorted(view.servers, key=lambda server: server.endpoint)
            ),
            tuple(
                _node(node, groups.get(node), tuple(sorted(held)), nodes.get(node))
                for node, held in sorted(view.nodes.partitions.items())
            ),
            tuple(self._partition(sources, partition) for partition in range(view.params.num_partitions)),
            _left_out(view),
        )

    def _partition(self, sources: _Sources, partition: int) -> PartitionStatus:
        inputs = _inputs(sources, partition)
        kept = self._kept.get(partition)
        if kept is not None and kept[0] == inputs:
            return kept[1]
        made = _partition(sources, partition)
        self._kept.pop(partition, None)
        if made.healthy:  # what is said of another one depends on all servers and nodes
            self._kept[partition] = inputs, made
        return made


def _inputs(sources: _Sources, partition: int) -> _Inputs:
    """Everything that `_partition` makes a healthy partition of."""
    server, answer, generation = _owner(sources, partition)
    assigned = sources.replicas.get(partition, ())
    inputs: list[object] = [
        sources.metadata.get(partition),
        sources.view.recorded(partition) is None,
        sources.view.metadata_written.get(PartitionId(partition)),
        tuple(assigned),
        server,
        generation,
        answer.health is not None and answer.health.get(partition, False),
    ]
    for node in assigned:
        status = sources.nodes.get(node)
        inputs.append(status is None or (status.error is not None, status.turned_away))
        inputs.append(status is not None and status.disk is not None and status.disk.full)
        inputs.append(sources.copies.get((node, partition)))
        inputs.append(sources.answers.copy(node, partition))
        inputs.append(sources.answers.refused.get((partition, node)))
    return tuple(inputs)


def _sources(view: ClusterView, answers: Answers, nodes: Mapping[str, NodeStatus]) -> _Sources:
    replicas: dict[int, list[str]] = {}
    for node, held in sorted(view.nodes.partitions.items()):
        for partition in held:
            replicas.setdefault(partition, []).append(node)
    owners: dict[int, list[tuple[int, int]]] = {}
    for server_id, owned in view.assignment.servers.items():
        for partition, generation in owned:
            owners.setdefault(partition, []).append((server_id, generation))
    copies = {(node, int(c.partition_id)): c for node, status in nodes.items() for c in status.partitions}
    metadata = {int(key): value for key, value in view.metadata.items()}
    servers = {server.server_id: server.endpoint for server in view.servers}
    return _Sources(view, answers, nodes, metadata, replicas, owners, copies, servers)


def summarize(view: ClusterView, answers: Answers, nodes: Mapping[str, NodeStatus]) -> ClusterStatus:
    """Make the page of what was answered, servers and nodes in the order of their addresses. Pure."""
    return Summary().make(view, answers, nodes)


def _left_out(view: ClusterView) -> tuple[int, ...] | None:
    if view.assignment_current or not view.servers:
        return None
    return tuple(
        sorted(one.server_id for one in view.servers if one.server_id not in view.assignment.servers)
    )


def _node(
    node: str, group: int | None, partitions: tuple[int, ...], status: NodeStatus | None
) -> StorageStatus:
    if status is None:
        return StorageStatus(node, group, partitions, "it has no admin port in ZooKeeper")
    held = {int(copy.partition_id) for copy in status.partitions if copy.assigned}
    surplus = tuple(sorted(held.difference(partitions)))
    return StorageStatus(
        node, group, partitions, status.error, status.disk, surplus, status.refused, status.turned_away
    )


def _server(view: ClusterView, server: ServerDescriptor, answers: Answers) -> ServerStatus:
    server_id, endpoint = server.server_id, server.endpoint
    preferred = tuple(map(int, server.preferred))
    answer = answers.servers.get(server_id, ServerAnswer())
    held = tuple(sorted(partition for partition, _ in view.assignment.servers.get(server_id, ())))
    if answer.partitions is None:
        return ServerStatus(server_id, endpoint, held, None, preferred, answer.problem, answer.turned_away)
    if answer.connectivity is None:  # it still asks a node that is away: which one is known from the nodes
        return ServerStatus(server_id, endpoint, held, (), preferred)
    needed = [node for node, partitions in view.nodes.partitions.items() if partitions]
    unreached = tuple(sorted(node for node in needed if not answer.connectivity.get(node, False)))
    return ServerStatus(server_id, endpoint, held, unreached, preferred)


def _partition(sources: _Sources, partition: int) -> PartitionStatus:
    metadata = sources.metadata.get(partition)
    assigned = sources.replicas.get(partition, ())
    known = metadata if isinstance(metadata, PartitionMetadata) else None
    lost = _metadata_lost(sources, partition)
    replicas = _with_lag([_replica(sources, node, partition, known, lost) for node in assigned])
    server, answer, generation = _owner(sources, partition)
    session = known.session_id if known is not None else None
    healthy = bool(server is not None and answer.health and answer.health.get(partition, False))
    changing = change_incomplete(known, assigned) if known is not None else ""
    status = PartitionStatus(
        partition,
        server,
        healthy,
        session,
        replicas,
        generation=generation,
        changing=changing,
        recorded_at=sources.view.metadata_written.get(PartitionId(partition)) or None,
        not_open=None if healthy else sources.answers.not_open.get(partition),
        metadata_lost=lost,
    )
    if not healthy:
        status = replace(status, replicas=_with_those_ahead(sources, replicas, partition))
        problem = _why_unhealthy(sources, answer, status, metadata)
        unknown = answer.turned_away and problem == _turned_away(status)
        return replace(
            status,
            problem=problem,
            waits_for="" if status.ahead or status.fault or unknown else _waits_for(status, known, answer),
            unknown=unknown,
        )
    behind = [replica for replica in replicas if replica.standing is not Standing.CURRENT]
    problem = "; ".join(
        f"{r.node} is {r.standing.value}{f' ({r.reason})' if r.reason else ''}" for r in behind
    )
    if changing:
        problem = "a change of its replicas is not complete" + (f"; {problem}" if problem else "")
    return replace(status, problem=f"{lost}; {problem}" if lost else problem)


def _metadata_lost(sources: _Sources, partition: int) -> str:
    if sources.view.recorded(partition) is not None:
        return ""
    metadata = sources.metadata.get(partition)
    if isinstance(metadata, str):
        return f"its metadata cannot be read: {metadata}"
    return "its metadata are missing in ZooKeeper, and were deleted or lost there"


def _with_those_ahead(
    sources: _Sources, replicas: tuple[Replica, ...], partition: int
) -> tuple[Replica, ...]:
    """A partition that is well has begun a session after ZooKeeper was read; in one that is not this is
    evidence (rule A8)."""
    known = sources.view.recorded(partition)
    if known is None:
        return replicas
    copies = {node: sources.copies.get((node, partition)) for node in sources.nodes}
    proved = knows_more(known, {n: c for n, c in copies.items() if c is not None and c.assigned})
    return tuple(
        replace(r, standing=Standing.AHEAD, reason=f"it {proved[r.node]}") if r.node in proved else r
        for r in replicas
    )


def _owner(sources: _Sources, partition: int) -> tuple[Endpoint | None, ServerAnswer, int | None]:
    """Its server, what that answered, and the generation of the assignment."""
    owners = sources.owners.get(partition, ())
    if len(owners) != 1 or owners[0][0] not in sources.servers:
        return None, _SILENT, None
    server_id, generation = owners[0]
    return sources.servers[server_id], sources.answers.servers.get(server_id, _SILENT), generation


_LIMITED_BY_A_FULL_DISK = frozenset(
    {Standing.CURRENT, Standing.BEHIND, Standing.INCOMPLETE, Standing.UNAVAILABLE}
)


def _replica(
    sources: _Sources, node: str, partition: int, metadata: PartitionMetadata | None, lost: str
) -> Replica:
    """By the rule of all tools, and three things more: a copy on a full disk is complete and takes no append,
    one that its server refuses is not being caught up, and without metadata that were there (`lost`) nobody
    knows where it is."""
    status = sources.nodes.get(node)
    listed = None if metadata is None else metadata.replicas.get(node)
    if status is not None and status.turned_away:
        return Replica(
            node, Standing.UNKNOWN, "its node is there, and no connection to it can be made", listed=listed
        )
    if status is None or status.error is not None:
        return Replica(node, Standing.UNREACHABLE, listed=listed)  # why is reported once, of the node
    held = sources.copies.get((node, partition))
    answer = sources.answers.copy(node, partition)
    standing, reason = standing_of(metadata, node, answer, later_session_passes=True)
    refused = sources.answers.refused.get((partition, node))
    if refused is not None:
        standing, reason = Standing.REFUSED, refused
    elif lost and standing is Standing.NOT_STARTED:
        standing, reason = Standing.UNKNOWN, "ZooKeeper has nothing to compare it with"
    elif status.disk is not None and status.disk.full and standing in _LIMITED_BY_A_FULL_DISK:
        standing, reason = Standing.UNAVAILABLE, DISK_IS_FULL
    return Replica(
        node, standing, reason, None if held is None else held.max_transaction_id, copy=held, listed=listed
    )


def _with_lag(replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    known = [replica.last_transaction for replica in replicas if replica.last_transaction is not None]
    highest = max(known, default=-1)
    return tuple(
        r if r.last_transaction is None else replace(r, lag=highest - r.last_transaction) for r in replicas
    )


def _why_unhealthy(
    sources: _Sources,
    answer: ServerAnswer,
    status: PartitionStatus,
    metadata: PartitionMetadata | str | None,
) -> str:
    if status.ahead:
        return "ZooKeeper is older than its replicas: " + "; ".join(
            f"{r.node}: {r.reason}" for r in status.ahead
        )
    if not status.replicas:
        return "no replica is assigned"
    reported = f"its server {status.server} reports {status.not_open or 'that it is not healthy'}"
    if status.metadata_lost and not answer.turned_away:
        return reported if status.fault else status.metadata_lost
    if not sources.view.servers:
        return "no server is registered"
    if status.fault and not status.too_many_refused:
        return reported
    short = shortage({replica.node: replica.unable for replica in status.replicas})
    if short and metadata is not None:
        return short
    if status.server is None:
        owned = sources.owners.get(status.partition_id)
        return "its server is not registered" if owned else "no server is assigned"
    if answer.turned_away:
        return _turned_away(status)
    if answer.health is None:
        return f"its server {status.server} does not answer"
    return reported


def _turned_away(status: PartitionStatus) -> str:
    return f"its server {status.server} is there, and no connection to it can be made"


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
    refused = [r for r in missing if r.standing is Standing.REFUSED]
    if len(able) + len(missing) - len(refused) < needed:
        return ""  # nothing comes back on its own: `problem` has the reasons
    missing = [r for r in missing if r not in refused]
    lost = [r.node for r in missing if r.standing is Standing.SET_BACK]
    text = f"{needed - len(able)} more of {', '.join(r.node for r in missing)}"
    if lost:
        text += f" (lost or older disks do not count until the others have decided: {', '.join(lost)})"
    return text
