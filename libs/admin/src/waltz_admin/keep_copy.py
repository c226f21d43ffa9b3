"""One copy of a partition is taken as it is, and all others are given up: the way out when no replica holds
what its own marks promise (safety rule A1), as after `waltz storage restore-reset` of all of them.

A recovery decides nothing then: who was set back is neither supporter nor opponent of any mark, so there is
nobody left to decide, and nobody to copy from. What the copy holds becomes the log; what only others held is
lost. So a person names the copy, and

* every storage node that ZooKeeper knows answers, and shows its copy if it should have one, or is named as
  lost: a silent one, or one that could not be opened, may hold more;
* no copy that was not set back holds more, or is of a later session;
* nothing is given up where the replicas can decide, or a server has the partition open.

It is a session of its own, and with the crash order of any other: its id is taken in ZooKeeper, where the
node is listed for it beside the others, the node writes the session down, then ZooKeeper lists it alone.
Interrupted between, it leaves a partition that is as closed as before: the node counts as set back, or as one
of several that took part, so whoever comes back with more still wins. The command may be given again: what an
earlier run has completed is left as it is, also where a server has opened the partition since. Session ids
that were given out after the copies were made may be known to nobody. So the new one is `FENCE_REACH` above
all that are known: a process or a disk of that time that comes back is of an older session.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from waltz_admin.accept_restored import ask_everybody, nodes_of, who_serves
from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, UnreachableError, UnsafeChangeError
from waltz_admin.restored_metadata import Nodes, is_intact, is_whole, knows_more
from waltz_admin.tree import parse_connect_string
from waltz_admin.view import ClusterView
from waltz_cluster.errors import ClusterError, VersionConflictError
from waltz_cluster.older_copy import FENCE_REACH
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.quorum import quorum_of
from waltz_cluster.serializers import PartitionMetadata, ReplicaState, StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.storage_connection import StorageConnection
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import RequestFailedError, WaltzProtocolError
from waltz_protocol.types import UNRESOLVED, PartitionId

_ATTEMPTS = 20
_DONE = "it is the log already"


class PartlyKeptError(AdminError):
    """It went wrong half-way; the text names the partitions that are done. Giving the command again is
    safe."""


@dataclass(frozen=True, slots=True)
class KeptCopy:
    """What is decided for one partition. `copies`: what each node reports of its copy, the kept one among
    them; `session_id`: of the session in which the node takes part alone. `already`: why nothing has to be
    done, empty when something has."""

    partition_id: int
    node: str
    last_transaction: int
    session_id: int
    replicas: Mapping[str, ReplicaState]
    copies: Mapping[str, NodePartition]
    already: str = ""


async def keep_copy(
    store: ZooKeeperStore,
    root: str,
    node: str,
    partitions: Sequence[int],
    *,
    tls: TlsSettings,
    lost: Collection[str] = (),
    dry_run: bool = False,
) -> list[KeptCopy]:
    """Make what `node` holds of these partitions their log; what was decided for each.

    All are checked before the first is changed. A partition that an earlier run has done is left as it is.
    `lost`: storage nodes whose disks are lost for good. `dry_run`: nothing is changed. AdminError for an
    unknown partition, or one without metadata; UnsafeChangeError, which says what to do, when it may not be
    done: nothing was changed then. PartlyKeptError when it ended half-way.
    """
    view, answers, copies = await ask_everybody(store, root, tls, partitions)
    kept: list[KeptCopy] = []
    in_vain = ""
    for partition in partitions:
        before = view.recorded(partition)
        if before is None or not before.replicas:
            raise AdminError(
                f"partition {partition} has no metadata that lists a replica: nothing can be given up"
            )
        nodes = nodes_of(view, partition, copies, lost)
        server = who_serves(view, partition, answers)
        needless = (
            f"server {server} serves it: nothing is to be given up" if server else _why_not_now(before, nodes)
        )
        done = _done(partition, before, node, nodes, needless)
        if server is not None and done is None:
            raise UnsafeChangeError(f"partition {partition}: {needless}")
        if needless and len(before.replicas) > 1:
            in_vain = f"partition {partition}: {needless}"
        kept.append(done or choose(partition, before, node, nodes))
    if in_vain and all(one.already not in ("", _DONE) for one in kept):
        raise UnsafeChangeError(in_vain)
    if not dry_run:
        await _carry_out(StoreMetadata(store, root), view, kept, tls)
    return kept


def _done(
    partition_id: int, before: PartitionMetadata, node: str, nodes: Nodes, needless: str
) -> KeptCopy | None:
    """What an earlier run has completed, None for anything else: the node holds what it is listed for, and
    nothing has to be given up (`needless`: why): it is listed alone, or a server has opened the partition
    from there."""
    copy = nodes.held.get(node)
    if copy is None or node not in before.replicas or not is_intact(before, node, copy):
        return None
    if not needless or node in nodes.lost or knows_more(before, nodes.held):
        return None
    already = _DONE if len(before.replicas) == 1 else needless
    held, replicas = dict(nodes.held), dict(before.replicas)
    return KeptCopy(partition_id, node, _last(copy), before.session_id, replicas, held, already)


def choose(partition_id: int, before: PartitionMetadata, node: str, nodes: Nodes) -> KeptCopy:
    """What has to be written for one partition. UnsafeChangeError, which says what to do, when the copy may
    not be taken. Pure."""
    why = _why_unknown(before, nodes) or _why_not_this(before, node, nodes) or _why_not_now(before, nodes)
    if why:
        raise UnsafeChangeError(f"partition {partition_id}: {why}")
    known = max([before.session_id, *(copy.session_id for copy in nodes.held.values())])
    last, session_id = _last(nodes.held[node]), known + FENCE_REACH + 1
    return KeptCopy(partition_id, node, last, session_id, dict(before.replicas), dict(nodes.held))


def _last(copy: NodePartition) -> int:
    return -1 if copy.max_transaction_id is None else copy.max_transaction_id


def _why_unknown(before: PartitionMetadata, nodes: Nodes) -> str:
    """Why it is not known what there is; empty when it is."""
    newer = knows_more(before, nodes.held)
    if newer:
        return f"ZooKeeper is older than {', '.join(sorted(newer))}: run `waltz zk accept-restored` first"
    living = sorted(n for n in {*nodes.lost} & nodes.held.keys() if nodes.held[n].session_id >= 0)
    if living:
        return f"{', '.join(living)} is named as lost, and answers with a copy"
    unclear = {n for n, copy in nodes.held.items() if copy.max_transaction_id is None}
    asked = {*nodes.known, *nodes.assigned, *before.replicas} - {*nodes.lost}
    silent = ", ".join(sorted(asked - {*nodes.answering} | unclear))
    if silent:
        return (
            f"{silent} does not answer, or does not report its last record, and may hold more; bring back: {silent}, or "
            "name it with --lost if its disk is lost for good"
        )
    closed = ", ".join(sorted({*nodes.assigned, *before.replicas} - {*nodes.lost} - nodes.held.keys()))
    if closed:
        return (
            f"no copy is shown by {closed}, and one may be there all the same, which could not be opened, or whose disk is not "
            "mounted (the node's log says which): bring it back, or name the node with --lost if it is lost for good"
        )
    return ""


def _why_not_this(before: PartitionMetadata, node: str, nodes: Nodes) -> str:
    """Why this copy is not the one to take."""
    copy = nodes.held.get(node)
    if copy is None or node not in nodes.assigned:
        return f"{node} has no copy that ZooKeeper assigns to it"
    if not copy.available:
        return f"the copy on {node} is out of service: first `waltz storage availability -o true`"
    if not is_whole(copy):
        return (
            f"the copy on {node} ends at {_last(copy)}, below its own marks; to take it all the same, give these up first: "
            "stop the node, run `waltz storage restore-reset` on its directory, and start it"
        )
    better = [
        f"{name} (session {other.session_id}, last record {_last(other)})"
        for name, other in sorted(nodes.held.items())
        if is_intact(before, name, other)
        and (_last(other) > _last(copy) or _knows_a_later_session(before, name, other, copy))
    ]
    if better:
        return (
            f"{', '.join(better)} was not set back and knows more than {node} (session {copy.session_id}, last record "
            f"{_last(copy)}): keep that one"
        )
    longer = sorted(name for name, other in nodes.held.items() if _last(other) > _last(copy) == -1)
    return (
        f"the copy on {node} is empty, and there are records on {', '.join(longer)}: keep one of these"
        if longer
        else ""
    )


def _knows_a_later_session(
    before: PartitionMetadata, name: str, other: NodePartition, copy: NodePartition
) -> bool:
    """Than the copy that is to be kept, of which that is not known where it was reset: then one that took
    part in the last session knows what was acknowledged."""
    if copy.session_id >= 0:
        return other.session_id > copy.session_id
    listed = before.replicas.get(name)
    if listed is None or listed.resolved:
        return False
    return other.session_id >= max(state.session_id for state in before.replicas.values())


def _why_not_now(before: PartitionMetadata, nodes: Nodes) -> str:
    """Why nothing has to be given up: those who were not set back can decide."""
    intact = [n for n, copy in nodes.held.items() if n in before.replicas and is_intact(before, n, copy)]
    voters = [n for n in intact if not before.replicas[n].resolved]
    if len(intact) < quorum_of(len(before.replicas)) or not voters:
        return ""
    return f"{', '.join(sorted(intact))} were not set back and can decide: nothing has to be given up, start a server"


async def _carry_out(
    metadata: StoreMetadata, view: ClusterView, kept: Sequence[KeptCopy], tls: TlsSettings
) -> None:
    done = [one.partition_id for one in kept if one.already]
    for one in kept:
        if one.already:
            continue
        try:
            await _keep(metadata, view.store, one, tls)
        except (AdminError, ClusterError) as error:
            if not done:
                raise
            ids = ",".join(map(str, done))
            raise PartlyKeptError(f"{error} (partitions {ids} are done, or need nothing)") from error
        done.append(one.partition_id)


async def _keep(metadata: StoreMetadata, params: StoreParams, one: KeptCopy, tls: TlsSettings) -> None:
    """A server that keeps trying to open the partition takes ids meanwhile: then it is done again above
    them."""
    number, session_id = one.partition_id, one.session_id
    for _ in range(_ATTEMPTS):
        current, version = await metadata.read_partition(number)
        if current is None or _others(current.replicas, one) != _others(one.replicas, one):
            raise UnsafeChangeError(f"partition {number}: its replicas were changed meanwhile: try again")
        session_id = max(session_id, current.session_id + 1)
        alone = {one.node: ReplicaState(PartitionId(number), one.node, session_id, UNRESOLVED)}
        taken = PartitionMetadata(current.generation, session_id, {**current.replicas, **alone})
        try:
            version = await metadata.write_partition(number, taken, version)
            await _write_down(params, one, session_id, tls)
            listed = PartitionMetadata(current.generation, session_id, alone)
            await metadata.write_partition(number, listed, version)
        except (VersionConflictError, RequestFailedError) as error:
            failure: Exception = error
            session_id += 1
        else:
            return
    raise AdminError(
        f"partition {number}: the session cannot be written down on {one.node}, or a server keeps taking ids: stop the "
        f"servers and try again ({failure})"
    )


def _others(replicas: Mapping[str, ReplicaState], one: KeptCopy) -> dict[str, ReplicaState]:
    return {node: state for node, state in replicas.items() if node != one.node}


async def _write_down(params: StoreParams, one: KeptCopy, session_id: int, tls: TlsSettings) -> None:
    """The node takes part in the session from its last record on, which is asked in this session: nobody can
    add or cut a record after the answer. RequestFailedError: it knows of a later session."""
    try:
        port = await StorageConnection.open(
            parse_connect_string(one.node),
            cluster_key=params.cluster_key,
            num_partitions=params.num_partitions,
            tls=client_context(tls),
        )
        try:
            last = await port.max_transaction_id(session_id, one.partition_id)
            if last != one.last_transaction:
                raise UnsafeChangeError(
                    f"partition {one.partition_id}: {one.node} holds records up to {last} now, no longer up to "
                    f"{one.last_transaction}: try again"
                )
            await port.set_low_water_mark(session_id, one.partition_id, last)
        finally:
            port.close()
    except RequestFailedError:
        raise
    except (WaltzProtocolError, OSError) as error:
        raise UnreachableError(
            f"partition {one.partition_id}: {one.node} does not answer: {error}"
        ) from error
