"""Partitions that change their server though no server came or went: a new assignment for the same members.

What is written is what a server writes whose preferences changed: the same znode, with the version that was
read, for the same child version. Every server adopts it, one of release 0.13.2 as well. Nothing else is left
behind, so nothing has to be taken back: the policy lets a server keep what it has.

That is also the limit. `moved` refuses an assignment that the policy would not keep as it is, be it for the
numbers of partitions or for somebody's preference: the next evaluation, by whichever server, would move
partitions again.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from waltz_cluster.assignment import LAST_GENERATION, assign, same_owners
from waltz_cluster.errors import ClusterError, VersionConflictError
from waltz_cluster.membership import MembershipReader
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.types import Generation, PartitionId


class ServerMove(NamedTuple):
    """One partition, from one server to another (server ids)."""

    partition: int
    source: int
    target: int


def moved(
    assignment: PartitionAssignment, members: Mapping[int, ServerDescriptor], moves: Iterable[ServerMove]
) -> PartitionAssignment:
    """The assignment after these moves, each partition in its next generation. Pure.

    ClusterError when a partition is not with its source, a target is not a member, or the policy would not
    keep the result.
    """
    servers = {server_id: list(given) for server_id, given in assignment.servers.items()}
    for move in moves:
        generation = dict(servers.get(move.source, ())).get(PartitionId(move.partition))
        if generation is None:
            raise ClusterError(f"partition {move.partition} is not with server {move.source}")
        if generation == LAST_GENERATION:
            raise ClusterError(
                f"partition {move.partition} stays with server {move.source}: it is in its last generation"
            )
        if move.target not in members:
            raise ClusterError(f"server {move.target} is not registered")
        servers[move.source].remove((PartitionId(move.partition), generation))
        servers.setdefault(move.target, []).append((PartitionId(move.partition), Generation(generation + 1)))
    found = PartitionAssignment(
        assignment.cversion,
        assignment.num_partitions,
        {server_id: tuple(given) for server_id, given in servers.items()},
    )
    kept = assign(found.cversion, found, found.num_partitions, members, lambda _: None)
    if not same_owners(kept, found):
        raise ClusterError(
            "the partitions would move again at the next evaluation: "
            "servers have a fair share each, and what they prefer"
        )
    return found


async def move_partitions(
    store: ZooKeeperStore, root: str, moves: Iterable[ServerMove], *, cversion: int
) -> None:
    """Write the assignment with these moves, for the members that `cversion` is the child version of.

    VersionConflictError when servers came or left, or the assignment is another one than was just read;
    ClusterError as of `moved`, StoreError: the outcome is not known.
    """
    paths = ClusterPaths(root)
    snapshot = await MembershipReader(store, paths, lambda: None).snapshot(watch=False)
    if snapshot.cversion != cversion or not snapshot.consistent:
        raise VersionConflictError("the servers have changed since the moves were chosen")
    found = moved(snapshot.assignment, snapshot.members, moves)
    await store.set(paths.server_descriptors, found.to_bytes(), version=snapshot.version)
