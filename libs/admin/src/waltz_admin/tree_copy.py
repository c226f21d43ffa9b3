"""A cluster's tree out of ZooKeeper and into it again (`waltz zk export`, `waltz zk import`).

An imported tree is an older copy of ZooKeeper, with all that follows (rule A8, ADR 8): nothing here decides
what was committed. The metadata go in byte by byte, so that what the storage nodes know besides is found as
after any other restored copy. Two things come from ZooKeeper's own counters and are made again: a partition
without metadata counts as never started only if it did so where the tree was exported, and no server takes
the assignment of the past for one that was made for those who register now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, ClusterExistsError
from waltz_admin.nested import check_alone, check_none_below
from waltz_admin.nested_roots import is_below, nested_roots
from waltz_admin.restored_metadata import knows_more
from waltz_admin.storage_admin import list_nodes
from waltz_admin.subtree import Subtree, read_subtree
from waltz_admin.tree import BATCH_OPS
from waltz_admin.tree_file import PARTITIONS, PRODUCERS, ROOT, STORE, ClusterTree, Znode
from waltz_admin.view import read_view
from waltz_cluster.errors import NodeExistsError, NoNodeError, VersionConflictError
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.request_size import BATCH_BYTES, check_size
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import CreateOp, DeleteOp, Op, SetOp, ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import PartitionId

_ATTEMPTS = 5
SESSION_SECONDS = 10.0
ANSWER_SECONDS = 10.0


async def read_tree(store: ZooKeeperStore, root: str, exported_at: str) -> ClusterTree:
    """All lasting znodes of the cluster, as they were at one moment: it is read again until nothing has
    changed in between. Other clusters below it are left out. AdminError when there is no cluster, or it keeps
    changing. Nothing is written."""
    await store.sync(root)
    before = await read_subtree(store, root)
    for _ in range(_ATTEMPTS):
        found = await read_subtree(store, root)
        if _versions(found) == _versions(before):
            tree = _tree(found, exported_at)
            if tree.cluster.num_partitions != tree.params.num_partitions:
                raise AdminError(f"the tree at {root} names two numbers of partitions")
            return tree
        before = found
    raise AdminError(f"the tree at {root} keeps changing: nothing was exported, try again")


def _versions(found: Subtree) -> dict[str, tuple[int, int]]:
    """But those of named producers and of other clusters below, which are written all the time, and nothing
    else in the tree depends on them."""
    left_out = {PRODUCERS, *_nested(found)}
    return {
        path: (stat.version, stat.cversion)
        for path, (_, stat) in found.items()
        if path == PRODUCERS or not is_below(path, left_out)
    }


def _nested(found: Subtree) -> tuple[str, ...]:
    return nested_roots({path: data for path, (data, _) in found.items()})


def _tree(found: Subtree, exported_at: str) -> ClusterTree:
    if ROOT not in found:
        raise AdminError("there is no cluster at this root")
    nested = _nested(found)
    lasting = {
        path: Znode(data, stat.version > 0)
        for path, (data, stat) in found.items()
        if not stat.ephemeral_owner and not is_below(path, nested)
    }
    partitions = found.get(PARTITIONS)
    names = sum(path.startswith(f"{PARTITIONS}/") for path in lasting)
    none_deleted = partitions is not None and partitions[1].cversion == names
    return ClusterTree(exported_at, lasting, none_deleted, nested)


async def write_tree(store: ZooKeeperStore, root: str, tree: ClusterTree) -> bool:
    """Put the tree where nothing is; False when exactly this one is there already.

    ClusterExistsError for anything else at the root, or another cluster above it, ZnodeTooLargeError for a
    znode that ZooKeeper does not take; nothing was changed then.
    What makes it a cluster, the data of the root and of the store, is written last, together: an import that
    was interrupted is no cluster for anybody, and the same import completes it.
    """
    tree = tree.settled()
    paths = ClusterPaths(root)
    for batch in _batches(root, {}, tree):
        check_size(batch)
    check_size([SetOp(root + path, tree.znodes[path].data) for path in (ROOT, STORE)])
    for _ in range(_ATTEMPTS):
        there = await read_subtree(store, root)
        if there and there[ROOT][0]:
            if (found := _tree(there, "")).same_as(tree):
                return False
            raise ClusterExistsError(_other_state(root, found, tree))
        await check_alone(store, paths)
        _check_begun(root, there, tree)
        try:
            await _ancestors(store, paths)
            for batch in _batches(root, there, tree):
                await store.transaction(batch)
            await _mark_deleted(store, root, tree)
            await _complete(store, paths, tree)
        except (NodeExistsError, NoNodeError, VersionConflictError):
            continue  # somebody else is at it too: read again
        return True
    raise AdminError(f"{root} keeps changing")


def _other_state(root: str, found: ClusterTree, tree: ClusterTree) -> str:
    """The error for a cluster that is there already. Of this very one the tree may be good, and in use: by
    those who were started after the same command whose answer was lost."""
    try:
        same = found.params.cluster_key == tree.params.cluster_key
    except AdminError:
        same = False
    if same:
        return (
            f"this cluster is at {root} already, in another state: nothing was changed. If it works it has to stay as it "
            "is; `waltz zk delete` would remove all its records"
        )
    return (
        f"there is another cluster at {root}: nothing was changed. A tree is put where nothing is: `waltz zk delete` "
        "first, if that one is not needed, or choose another cluster.root"
    )


def _check_begun(root: str, there: Subtree, tree: ClusterTree) -> None:
    """What is there without being a cluster must be the beginning of this very tree."""
    for path, (data, _) in there.items():
        wanted = tree.znodes.get(path)
        if path != ROOT and (wanted is None or (data and data != wanted.data)):
            raise ClusterExistsError(
                f"{root}{path} is there already and not part of the tree to be written: nothing was changed; `waltz zk delete "
                "--force` removes what is at the root"
            )


async def _ancestors(store: ZooKeeperStore, paths: ClusterPaths) -> None:
    missing = [CreateOp(path) for path in paths.ancestors if await store.exists(path) is None]
    if missing:
        await store.transaction(missing)


def _batches(root: str, there: Subtree, tree: ClusterTree) -> Iterator[list[Op]]:
    """Parents first; without the data of the root and of the store."""
    batch: list[Op] = []
    size = 0
    for path, znode in sorted(tree.znodes.items()):
        data = None if path in (ROOT, STORE) else znode.data
        size += len(data or b"")
        if batch and (size > BATCH_BYTES or len(batch) >= BATCH_OPS):
            yield batch
            batch, size = [], len(data or b"")
        if path not in there:
            later = znode.written and data is not None
            batch.append(CreateOp(root + path, None if later else data))
            if later:
                batch.append(SetOp(root + path, data, 0))
        elif data and there[path][0] != data:
            batch.append(SetOp(root + path, data, there[path][1].version))
    if batch:
        yield batch


async def _mark_deleted(store: ZooKeeperStore, root: str, tree: ClusterTree) -> None:
    """Where metadata may be missing that once were there, a znode that comes and goes keeps that known."""
    if tree.none_deleted or PARTITIONS not in tree.znodes:
        return
    mark = f"{root}{PARTITIONS}/imported"
    await store.transaction([CreateOp(mark), DeleteOp(mark)])


async def _complete(store: ZooKeeperStore, paths: ClusterPaths, tree: ClusterTree) -> None:
    """Other clusters are looked for once more: the root is known as that of a cluster from here on alone."""
    ops = await check_alone(store, paths)
    for path in (ROOT, STORE):
        _, stat = await store.get(paths.root + path)
        ops.append(SetOp(paths.root + path, tree.znodes[path].data, stat.version))
    await store.transaction(ops)
    await check_none_below(store, paths)


# ------------------------------------------------------------------------------------- what the nodes know


@dataclass(frozen=True, slots=True)
class Behind:
    """What an import would take back: partition → node → what it knows and the tree does not. `silent`:
    storage nodes of the tree that did not answer, and why."""

    partitions: dict[int, dict[str, str]]
    silent: dict[str, str]


async def in_memory(tree: ClusterTree, root: str) -> ZooKeeperStore:
    """The tree in a ZooKeeper of this process alone, to be asked as if it were there."""
    store = MemoryZooKeeper().session(SESSION_SECONDS)
    await write_tree(store, root, tree)
    return store


async def behind(tree: ClusterTree, root: str, tls: TlsSettings) -> Behind:
    """Ask the storage nodes that the tree names what they know besides. Nothing is changed."""
    store = await in_memory(tree, root)
    view = await read_view(store, root)
    statuses = {one.node: one for one in await list_nodes(store, root, tls, timeout_seconds=ANSWER_SECONDS)}
    found: dict[int, dict[str, str]] = {}
    silent: dict[str, str] = {}
    copies: dict[int, dict[str, NodePartition]] = {}
    for node, status in statuses.items():
        if status.error is not None:
            silent[node] = status.error
        for copy in status.partitions:
            if copy.assigned:
                copies.setdefault(copy.partition_id, {})[node] = copy
    for partition, held in sorted(copies.items()):
        metadata = view.metadata.get(PartitionId(partition))
        newer = knows_more(metadata if isinstance(metadata, PartitionMetadata) else PartitionMetadata(), held)
        if newer:
            found[partition] = newer
    return Behind(found, silent)
