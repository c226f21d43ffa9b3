"""The way out when ZooKeeper was put back from an older copy: the metadata of a partition made again from what its nodes hold
(rule A8, ADR 8).

Nothing is decided here. What is written says who may have taken part in the last session that any node completed, and that
nothing of it is settled; the next recovery then decides as it always does, and keeps the longest log that may be acknowledged.

* Who completed that session is listed in it as UNRESOLVED. An acknowledged record of it lies on a majority, and only on these.
* Who completed an earlier one, not older than ZooKeeper says, and nothing later, never had a voice in the last session: closed at
  its own low-water mark, up to which its log is certainly that of all.
* Who does not answer, does not hold the partition, or was emptied, may have had one: listed as UNRESOLVED too, so that rule A1
  counts it as absent until it proves better.

A majority that remembers a session must answer, or a later session than theirs could go unnoticed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waltz_admin.errors import AdminError, UnsafeChangeError
from waltz_admin.lock import AdminLock
from waltz_admin.storage_admin import NodePartition, list_nodes
from waltz_admin.tree import admin_endpoint
from waltz_admin.verify import Answers, gather
from waltz_admin.view import ClusterView, read_view
from waltz_cluster.errors import VersionConflictError
from waltz_cluster.older_copy import FENCE_REACH, evidence
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.quorum import quorum_of
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_cluster.store import Op, SetOp, ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import UNRESOLVED, PartitionId, SessionInfo

ANSWER_SECONDS = 10.0


class NothingToAcceptError(AdminError):
    """No node knows more than ZooKeeper: there is nothing to be done."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What is to be written for one partition, and why, replica by replica. ``reassign``: nodes that took part in the last session
    and that the assignment, older too, does not name."""

    partition_id: int
    before: PartitionMetadata
    after: PartitionMetadata
    reasons: Mapping[str, str]
    reassign: tuple[str, ...]


def knows_more(before: PartitionMetadata, held: Mapping[str, NodePartition]) -> dict[str, str]:
    """What nodes prove to be missing in ZooKeeper's metadata, by node. Pure."""
    found = {}
    for node, copy in held.items():
        info = SessionInfo(copy.session_id, copy.low_water_mark, copy.local_low_water_mark)
        text = evidence(before, node, info, _last(copy))
        if text is not None:
            found[node] = text
    return found


def rebuild(
    partition_id: int,
    before: PartitionMetadata,
    assigned: Sequence[str],
    held: Mapping[str, NodePartition],
) -> Rebuilt:
    """The metadata made again. ``held``: the copy of the partition on each node that answered and has one. Pure.

    NothingToAcceptError; UnsafeChangeError when too few answer.
    """
    if not knows_more(before, held):
        raise NothingToAcceptError(
            f"partition {partition_id}: no node knows more than ZooKeeper (session {before.session_id})"
        )
    last = max(copy.session_id for copy in held.values())
    took_part = {node for node, copy in held.items() if copy.session_id == last >= 0}
    members = sorted({*assigned, *before.replicas, *took_part})
    remember = [node for node in members if node in held and held[node].session_id >= 0]
    needed = quorum_of(len(members))
    if len(remember) < needed:
        missing = ", ".join(node for node in members if node not in remember) or "none"
        raise UnsafeChangeError(
            f"partition {partition_id}: {len(remember)} of its {len(members)} replicas answer and remember a session, {needed} are "
            f"needed, or a session that only the others completed would be lost; bring back: {missing}"
        )
    longest = max(_last(held[node]) for node in took_part)
    longer = [node for node in remember if node not in took_part and _last(held[node]) > longest]
    if len(longer) >= needed:
        raise UnsafeChangeError(
            f"partition {partition_id}: {', '.join(sorted(took_part))} completed session {last}, but {', '.join(longer)}, a majority, "
            "hold more records, which no recovery leaves behind: nothing is changed. If that session never was, remove and add its copy there"
        )
    states, reasons = {}, {}
    for node in members:
        closing, reason = _standing(before.replicas.get(node), held.get(node), last)
        session = last if closing == UNRESOLVED else held[node].session_id
        states[node] = ReplicaState(PartitionId(partition_id), node, session, closing)
        reasons[node] = reason
    top = max(before.session_id, last)
    fences = [c.fence_session_id for c in held.values() if c.fence_session_id is not None]
    top = max([top, *(fence for fence in fences if fence <= top + FENCE_REACH)])
    after = PartitionMetadata(before.generation, top, states)
    return Rebuilt(partition_id, before, after, reasons, tuple(sorted(took_part - set(assigned))))


def _last(copy: NodePartition) -> int:
    """The last record, as far as the node tells it."""
    return copy.low_water_mark if copy.max_transaction_id is None else copy.max_transaction_id


def _standing(recorded: ReplicaState | None, copy: NodePartition | None, last: int) -> tuple[int, str]:
    """Closing mark and the reason for it, of one replica."""
    if copy is None:
        return UNRESOLVED, "does not answer, or does not hold the partition: counts as absent"
    if copy.session_id == last:
        return UNRESOLVED, f"completed session {last}, the last one: decides"
    if copy.session_id < max(0, -1 if recorded is None else recorded.session_id):
        return UNRESOLVED, f"was emptied or set back (session {copy.session_id}): counts as absent"
    mark = copy.low_water_mark
    return (
        mark,
        f"completed session {copy.session_id} and none after it: good up to {mark}, filled from there",
    )


async def lowest_free_session(store: ZooKeeperStore, root: str, partition: int, *, tls: TlsSettings) -> int:
    """The lowest session that was surely never given out: all that were stay fenced off by a fence at it.

    Every other replica must answer (at most one may be silent: the one whose fence is to be lowered). UnsafeChangeError when not, or
    when a node knows more than ZooKeeper, which is to be settled first; AdminError without metadata.
    """
    view = await read_view(store, root)
    before = view.metadata.get(PartitionId(partition))
    if not isinstance(before, PartitionMetadata):
        raise AdminError(f"partition {partition} has no metadata that can be read")
    nodes = await _copies(store, root, view, tls)
    held = _held(nodes, partition)
    newer = knows_more(before, held)
    if newer:
        raise UnsafeChangeError(
            f"partition {partition}: ZooKeeper is older than {', '.join(sorted(newer))}: `waltz zk accept-restored` comes first"
        )
    members = {*before.replicas, *(n for n, given in view.nodes.partitions.items() if partition in given)}
    silent = sorted(members - held.keys())
    if len(silent) > 1:
        raise UnsafeChangeError(
            f"partition {partition}: {', '.join(silent)} do not answer; all replicas but the stopped one must"
        )
    return max([before.session_id, *(copy.session_id for copy in held.values())]) + 1


async def _copies(
    store: ZooKeeperStore, root: str, view: ClusterView, tls: TlsSettings
) -> dict[str, tuple[NodePartition, ...]]:
    """What each node that answers says of its copies."""
    statuses = await list_nodes(store, root, tls, timeout_seconds=ANSWER_SECONDS)
    by_endpoint = {status.admin: status for status in statuses}
    return {
        node: by_endpoint[endpoint].partitions
        for node, port in view.nodes.admin_ports.items()
        if (endpoint := admin_endpoint(node, port)) in by_endpoint
    }


def _held(nodes: Mapping[str, Sequence[NodePartition]], partition: int) -> dict[str, NodePartition]:
    return {n: c for n, copies in nodes.items() for c in copies if c.partition_id == partition and c.assigned}


async def accept_restored(
    store: ZooKeeperStore, root: str, partitions: Sequence[int], *, tls: TlsSettings
) -> tuple[list[Rebuilt], list[int]]:
    """Write the metadata of these partitions again; what was written, and the partitions with which nothing is wrong.

    All are checked before the first is written, each under the version that was read, with the assignment in the same transaction.
    Doing it twice does nothing. NothingToAcceptError when nothing is wrong with any; UnsafeChangeError when too few nodes answer,
    or a server is serving the partition; AdminError without metadata. Nothing was changed then.
    """
    view = await read_view(store, root)
    wrong = [partition for partition in partitions if not 0 <= partition < view.params.num_partitions]
    if wrong:
        raise AdminError(f"there is no partition {wrong[0]}: the cluster has {view.params.num_partitions}")
    answers, nodes = await asyncio.gather(
        gather(view, tls, ANSWER_SECONDS, partitions), _copies(store, root, view, tls)
    )
    found: list[Rebuilt] = []
    fine: list[int] = []
    for partition in partitions:
        try:
            found.append(_checked(view, partition, answers, _held(nodes, partition)))
        except NothingToAcceptError:
            fine.append(partition)
    if not found:
        raise NothingToAcceptError(
            f"no node knows more than ZooKeeper in partitions {','.join(map(str, partitions))}: nothing to accept"
        )
    async with AdminLock(store, ClusterPaths(root)) as lock:
        try:
            await lock.transaction(_changes(ClusterPaths(root), view, found))
        except VersionConflictError as error:
            raise UnsafeChangeError(
                "ZooKeeper was changed meanwhile: nothing was written, try again"
            ) from error
    return found, fine


def _checked(
    view: ClusterView, partition: int, answers: Answers, held: Mapping[str, NodePartition]
) -> Rebuilt:
    before = view.metadata.get(PartitionId(partition))
    if not isinstance(before, PartitionMetadata):
        raise AdminError(
            f"partition {partition} has no metadata that can be read: put back any older copy of it first"
        )
    assigned = [node for node, given in view.nodes.partitions.items() if partition in given]
    rebuilt = rebuild(partition, before, assigned, held)
    for server in view.servers:
        answer = answers.servers.get(server.server_id)
        if answer is not None and answer.health is not None and answer.health.get(partition, False):
            raise UnsafeChangeError(
                f"partition {partition}: server {server.endpoint} is serving it in a session that ZooKeeper has forgotten; "
                "restart that server first"
            )
    return rebuilt


def _changes(paths: ClusterPaths, view: ClusterView, found: Sequence[Rebuilt]) -> list[Op]:
    ops: list[Op] = []
    given = {node: list(partitions) for node, partitions in view.nodes.partitions.items()}
    for rebuilt in found:
        version = view.metadata_versions[PartitionId(rebuilt.partition_id)]
        ops.append(SetOp(paths.partition(rebuilt.partition_id), rebuilt.after.to_bytes(), version))
        for node in rebuilt.reassign:
            given.setdefault(node, []).append(PartitionId(rebuilt.partition_id))
    return ops + view.nodes.changes(
        paths, partitions={node: tuple(sorted(partitions)) for node, partitions in given.items()}
    )
