"""A tree made from what the storage nodes hold, when ZooKeeper's data are lost and no copy is left (`waltz zk
rebuild`).

A tree is made in memory with the cluster's key, the nodes that a person names, the partitions that each of
them reports as assigned, and metadata without replicas: the oldest copy that there can be. Then
`accept_restored` is asked of it, whose proofs hold for every older copy (rule A8, ADR 8): every node must
answer or be named as lost, only those that completed the last session decide, and the session ids are above
every one that a node has. What it cannot know is whether a storage node was forgotten by the person: so the
number of copies of each partition is asked for, and each copy must be found, or a lost node be there for it;
and one node under two names, which would be counted for a forgotten one, is refused (`same_node`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from waltz_admin.accept_restored import ANSWER_SECONDS, accept_restored
from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, UnsafeChangeError
from waltz_admin.nodes import check_entry
from waltz_admin.restored_metadata import NothingToAcceptError, Rebuilt
from waltz_admin.seeding import check_name
from waltz_admin.storage_admin import list_nodes
from waltz_admin.tree import NodeMaps
from waltz_admin.tree_copy import SESSION_SECONDS, read_tree, write_tree
from waltz_admin.tree_file import PARTITIONS, ROOT, SERVERS, STORE, ClusterTree, Znode
from waltz_cluster.cluster_params import MAX_PARTITIONS
from waltz_cluster.errors import NoNodeError, SerializationError
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.quorum import quorum_of
from waltz_cluster.serializers import (
    ClusterParams,
    ConnectionMetadata,
    Counter,
    GroupDescriptor,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    StoreParams,
)
from waltz_cluster.store import ZooKeeperReads, ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Generation, PartitionId

_NO_SERVER = 0
"""Ids of servers begin at 1: what this one had goes to others, in the next generation."""
_WRITTEN_ONCE = 1
"""The version of a counter that was set after it was created, and never again."""


@dataclass(frozen=True, slots=True)
class NodeGiven:
    """A storage node as a person names it: as it was in ZooKeeper, by which servers and files know it."""

    connect_string: str
    admin_port: int
    group: int


@dataclass(frozen=True, slots=True)
class ClusterGiven:
    """What no storage node says. `copies`: of each partition. `first_number`: ids of clients and servers, and
    generations, continue from here; it must be above all that were given out, and no node remembers them."""

    name: str
    cluster_key: UUID
    num_partitions: int
    copies: int
    first_number: int


@dataclass(frozen=True, slots=True)
class RebuiltTree:
    """The tree, and what was decided; `unused`: partitions of which every copy says that it never had a
    session."""

    tree: ClusterTree
    partitions: tuple[Rebuilt, ...]
    unused: tuple[int, ...]


async def begun_number(store: ZooKeeperReads, root: str) -> int | None:
    """The `first_number` of a tree that is at this root already, written whole or in part, and from which no
    id has been given out yet. None: there is none, or it was used.

    A rebuild that is run again continues with it: with another one it would be another tree.
    """
    paths = ClusterPaths(root)
    numbers: set[int] = set()
    for path in (paths.client_ids, paths.server_ids):
        try:
            data, stat = await store.get(path)
            number = Counter.from_bytes(data).value
        except (NoNodeError, SerializationError):
            return None
        if stat.version != _WRITTEN_ONCE:
            return None
        numbers.add(number)
    return numbers.pop() if len(numbers) == 1 else None


async def rebuild_tree(
    given: ClusterGiven,
    nodes: Sequence[NodeGiven],
    lost: Collection[str],
    *,
    tls: TlsSettings,
    root: str,
    at: str,
) -> RebuiltTree:
    """The tree; nothing is written anywhere. UnsafeChangeError, which says what to do, when it is not proven
    that nothing is lost. `lost`: nodes (also of `nodes`) whose disks are lost for good. `at`: RFC 3339."""
    _check(given, nodes, lost)
    store = MemoryZooKeeper().session(SESSION_SECONDS)
    await write_tree(store, root, _tree(given, nodes, {}, at))
    held = await _held(store, root, nodes, lost, tls)
    _check_copies(given, held, lost)
    assigned = {
        node.connect_string: tuple(PartitionId(p) for p in sorted(held.get(node.connect_string, {})))
        for node in nodes
    }
    await store.set(ClusterPaths(root).assignment, ReplicaAssignments(assigned).to_bytes())
    wanted = range(given.num_partitions)
    found: list[Rebuilt] = []
    unused = list(wanted)
    try:
        found, unused = await accept_restored(store, root, wanted, tls=tls, lost=lost)
    except NothingToAcceptError:
        pass  # no session ever was
    _check_unused(given, unused, held)
    return RebuiltTree(await read_tree(store, root, at), tuple(found), tuple(unused))


def _check(given: ClusterGiven, nodes: Sequence[NodeGiven], lost: Collection[str]) -> None:
    check_name(given.name)
    names = [node.connect_string for node in nodes]
    if len(set(names)) != len(names):
        raise AdminError("a storage node is named twice")
    for number, node in enumerate(nodes):
        before = nodes[:number]
        maps = NodeMaps(
            {n.connect_string: n.group for n in before},
            {},
            {n.connect_string: n.admin_port for n in before},
            (0, 0, 0),
        )
        check_entry(maps, node.connect_string, node.admin_port, node.group)
    if not 0 < given.num_partitions <= MAX_PARTITIONS:
        raise AdminError(
            f"the number of partitions must be 1 to {MAX_PARTITIONS}, not {given.num_partitions}"
        )
    if given.copies < 1:
        raise AdminError(f"the number of copies must be at least 1, not {given.copies}")
    unknown = sorted(set(lost) - set(names))
    if unknown:
        raise AdminError(f"{', '.join(unknown)} is named as lost and not as a storage node: name it as both")


def _tree(
    given: ClusterGiven,
    nodes: Sequence[NodeGiven],
    assigned: Mapping[str, tuple[PartitionId, ...]],
    at: str,
) -> ClusterTree:
    """With metadata that list nobody. The counters and the generations begin at `first_number`: an id that
    was given out before is not given out again, and clients that have seen a generation do not wait."""
    number = Counter(given.first_number).to_bytes()
    generations = tuple((PartitionId(p), Generation(given.first_number)) for p in range(given.num_partitions))
    served = PartitionAssignment(-1, given.num_partitions, {_NO_SERVER: generations})
    znodes = {
        ROOT: Znode(ClusterParams(given.name, given.num_partitions).to_bytes(), True),
        SERVERS: Znode(served.to_bytes(), True),
        "/ids": Znode(None),
        "/ids/client": Znode(number, True),
        "/ids/server": Znode(number, True),
        STORE: Znode(StoreParams(given.cluster_key, given.num_partitions).to_bytes(), True),
        "/store/group": Znode(GroupDescriptor({n.connect_string: n.group for n in nodes}).to_bytes(), True),
        "/store/assignment": Znode(
            ReplicaAssignments(
                {n.connect_string: assigned.get(n.connect_string, ()) for n in nodes}
            ).to_bytes(),
            True,
        ),
        "/store/connection": Znode(
            ConnectionMetadata({n.connect_string: n.admin_port for n in nodes}).to_bytes(), True
        ),
        PARTITIONS: Znode(None),
    }
    empty = PartitionMetadata().to_bytes()
    znodes |= {f"{PARTITIONS}/{p}": Znode(empty, True) for p in range(given.num_partitions)}
    return ClusterTree(at, znodes, True)


async def _held(
    store: ZooKeeperStore, root: str, nodes: Sequence[NodeGiven], lost: Collection[str], tls: TlsSettings
) -> dict[str, dict[int, NodePartition]]:
    """Node → partition → its copy. UnsafeChangeError: a node that is not named as lost refuses, or does not
    answer."""
    statuses = {one.node: one for one in await list_nodes(store, root, tls, timeout_seconds=ANSWER_SECONDS)}
    found: dict[str, dict[int, NodePartition]] = {}
    silent: dict[str, str] = {}
    refusing: dict[str, str] = {}
    for node in nodes:
        status = statuses[node.connect_string]
        if status.error is None:
            found[node.connect_string] = {int(c.partition_id): c for c in status.partitions if c.assigned}
        elif node.connect_string not in lost:
            (refusing if status.refused else silent)[node.connect_string] = status.error
    if refusing:
        first = min(refusing)
        raise UnsafeChangeError(
            f"{', '.join(sorted(refusing))} answers, and is not of this cluster ({refusing[first]}): check the key, the number of "
            "partitions and the address; do not name it with --lost, its copies are there"
        )
    if silent:
        first = min(silent)
        raise UnsafeChangeError(
            f"{', '.join(sorted(silent))} does not answer ({silent[first]}), and may know a later session: bring it back, or "
            "name it with --lost if its disk is lost for good"
        )
    return found


def _check_copies(
    given: ClusterGiven, held: Mapping[str, Mapping[int, NodePartition]], lost: Collection[str]
) -> None:
    """Every copy is found, or a lost node is there for it: a node that nobody named may hold what only it and
    another lost one know."""
    for partition in range(given.num_partitions):
        known = {node for node, copies in held.items() if partition in copies} | set(lost)
        if len(known) < given.copies:
            raise UnsafeChangeError(
                f"partition {partition}: {given.copies} copies are to be found, and only {', '.join(sorted(known)) or 'none'} "
                "has one or is lost: name all storage nodes, and with --lost those whose disks were lost"
            )


def _check_unused(
    given: ClusterGiven, unused: Collection[int], held: Mapping[str, Mapping[int, NodePartition]]
) -> None:
    """That a partition never was used needs the word of a majority of its copies (ADR 4)."""
    for partition in unused:
        count = sum(partition in copies for copies in held.values())
        if count < quorum_of(given.copies):
            raise UnsafeChangeError(
                f"partition {partition}: {count} of its {given.copies} copies answer, all empty: it is not proven that it never "
                "was used; bring a majority of its storage nodes back"
            )
