"""Why a partition is with its server, and its copies on their nodes: the assignment policy
(`waltz_cluster.assignment`) and the groups of storage nodes in the words of a reader. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from waltz_admin.cluster_status import ClusterStatus, PartitionStatus, ServerStatus


def placement(status: ClusterStatus, partition: PartitionStatus) -> Iterable[str]:
    """A sentence for each reason."""
    yield from _owner(status, partition)
    yield _generation(partition)
    yield from _replicas(status, partition)
    if partition.session_id is not None and partition.recorded_at is not None:
        at = datetime.datetime.fromtimestamp(partition.recorded_at, datetime.UTC).isoformat(" ", "seconds")
        yield (
            f"its records in ZooKeeper, with store session {partition.session_id}, were last written at {at}"
        )


def _owner(status: ClusterStatus, partition: PartitionStatus) -> Iterable[str]:
    number = partition.partition_id
    if not status.servers:
        yield "no server is registered, so it is assigned to none"
        return
    willing = sorted((one for one in status.servers if number in one.preferred), key=_by_id)
    owner = next((one for one in status.servers if one.endpoint == partition.server), None)
    if owner is None:
        yield (
            "the assignment names no server that is registered: the registered server with the lowest id "
            "writes a new one as soon as it notices"
        )
    elif willing and owner is willing[0]:
        yield _preferred(owner, willing)
    elif willing:
        yield (
            f"server {willing[0].endpoint} prefers it: it moves there with the next assignment, "
            "when a server comes or goes or its preferences change"
        )
    else:
        yield _by_share(status, owner)


def _by_id(server: ServerStatus) -> int:
    return server.server_id


def _preferred(owner: ServerStatus, willing: Sequence[ServerStatus]) -> str:
    others = ", ".join(str(one.endpoint) for one in willing[1:])
    among = f" with the lowest id of those that prefer it (also: {others})" if others else " that prefers it"
    return f"server {owner.endpoint} (id {owner.server_id}) is the one{among}"


def _by_share(status: ClusterStatus, owner: ServerStatus) -> str:
    share, extra = divmod(len(status.partitions), len(status.servers))
    fair = f"{share} or {share + 1}" if extra else str(share)
    return (
        f"no server prefers it, so it stays where it is while its server is registered and has at most its "
        "fair "
        f"share: server {owner.endpoint} (id {owner.server_id}) has {len(owner.partitions)} of "
        f"{len(status.partitions)} partitions, its share of {len(status.servers)} servers is {fair}; "
        "`waltz server add-preferred-partition` moves it"
    )


def _generation(partition: PartitionStatus) -> str:
    if partition.generation is None:
        return "it has no owner now; the next one begins a new generation"
    if partition.generation <= 1:
        return "generation 1: it has had no other owner"
    return f"generation {partition.generation}: it has changed its owner {partition.generation - 1} times"


def _replicas(status: ClusterStatus, partition: PartitionStatus) -> Iterable[str]:
    groups = {node.node: node.group for node in status.nodes}
    if not partition.replicas:
        yield "no storage node is assigned to it in ZooKeeper"
        return
    where = ", ".join(
        replica.node if groups.get(replica.node) is None else f"{replica.node} (group {groups[replica.node]})"
        for replica in partition.replicas
    )
    count = len(partition.replicas)
    what = "its copy is" if count == 1 else f"its {count} copies are"
    yield f"{what} on the nodes that ZooKeeper assigns it to: {where}"
    used = [groups[replica.node] for replica in partition.replicas if groups.get(replica.node) is not None]
    if len(used) == count and len(set(used)) == count and count > 1:
        yield "each of them is in another group, so the loss of a group costs one copy"
    elif len(set(used)) < len(used):
        yield "two of them are in one group: the loss of a group costs more than one copy"
