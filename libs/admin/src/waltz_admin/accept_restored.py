"""The way out when ZooKeeper was restored from an older copy: the metadata of a partition made again from
what its nodes hold (rule A8, ADR 8). What is written is decided in `restored_metadata`; here nodes and
servers are asked, and ZooKeeper is written, once `one_history` has found no two histories among the copies. A
copy of before a partition's first session has no metadata of it, and is the oldest one that there can be.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, UnsafeChangeError
from waltz_admin.lock import AdminLock
from waltz_admin.one_history import check_one_history
from waltz_admin.restored_metadata import Nodes, NothingToAcceptError, Rebuilt, knows_more, rebuild
from waltz_admin.same_node import check_distinct
from waltz_admin.storage_admin import NodeStatus, list_nodes, max_transaction_id
from waltz_admin.tree import BATCH_OPS, NodeMaps, admin_endpoint, parse_connect_string
from waltz_admin.verify import Answers, gather
from waltz_admin.view import ClusterView, read_view
from waltz_cluster.errors import NodeExistsError, StoreError, VersionConflictError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.request_size import BATCH_BYTES
from waltz_cluster.store import CreateOp, Op, SetOp, ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint, PartitionId

ANSWER_SECONDS = 10.0
_QUESTIONS = 16
"""How many copies of nodes of release 0.13.2 are asked for their last record at a time."""

Copies = Mapping[str, Sequence[NodePartition]]
"""What each node that answers reports about its copies."""


class PartlyAcceptedError(AdminError):
    """It went wrong half-way; the text says up to which partition it was done. Giving the command again is
    safe."""


async def lowest_free_session(store: ZooKeeperStore, root: str, partition: int, *, tls: TlsSettings) -> int:
    """The lowest session that was surely never given out: all that were stay fenced off by a fence at it.

    Every other storage node must answer, with the partition or without: at most one may be silent, so it is
    the one that is stopped for its fence to be lowered, and not one that knows a later session.
    UnsafeChangeError when not, or when a node knows more than ZooKeeper, which must be settled first;
    AdminError without metadata.
    """
    view = await read_view(store, root)
    before = view.recorded(partition)
    if before is None:
        raise AdminError(f"partition {partition} has no metadata that can be read")
    nodes = await _copies(store, root, view, tls, [partition])
    held = _held(nodes, partition)
    newer = knows_more(before, held)
    if newer:
        raise UnsafeChangeError(
            f"partition {partition}: ZooKeeper is older than {', '.join(sorted(newer))}: run `waltz zk accept-restored` first"
        )
    replicas = {*before.replicas, *(n for n, given in view.nodes.partitions.items() if partition in given)}
    silent = sorted((_known(view) - nodes.keys()) | (replicas - held.keys()))
    if len(silent) > 1:
        raise UnsafeChangeError(
            f"partition {partition}: {', '.join(silent)} do not answer; all storage nodes but the stopped one must"
        )
    return max([before.session_id, *(copy.session_id for copy in held.values())]) + 1


async def ask_everybody(
    store: ZooKeeperStore, root: str, tls: TlsSettings, partitions: Collection[int]
) -> tuple[ClusterView, Answers, Copies]:
    """What ZooKeeper knows, what servers and nodes answer about these partitions, and the copies. AdminError
    for a partition that is not there."""
    view = await read_view(store, root)
    wrong = [partition for partition in partitions if not 0 <= partition < view.params.num_partitions]
    if wrong:
        raise AdminError(f"there is no partition {wrong[0]}: the cluster has {view.params.num_partitions}")
    answers, copies = await asyncio.gather(
        gather(view, tls, ANSWER_SECONDS, partitions), _copies(store, root, view, tls, partitions)
    )
    return view, answers, copies


def nodes_of(
    view: ClusterView,
    partition: int,
    copies: Copies,
    lost: Collection[str],
    removed: Collection[str] = (),
) -> Nodes:
    """What is known of the storage nodes, for one partition."""
    assigned = [node for node, given in view.nodes.partitions.items() if partition in given]
    return Nodes(_known(view), assigned, copies.keys(), _held(copies, partition), lost, removed)


def _known(view: ClusterView) -> set[str]:
    return {*view.nodes.admin_ports, *view.nodes.groups, *view.nodes.partitions}


async def _copies(
    store: ZooKeeperStore, root: str, view: ClusterView, tls: TlsSettings, partitions: Collection[int]
) -> Copies:
    """What each node that answers reports about its copies; of these partitions with the last record, where
    it can be had. A node that is not proven to be another one than the rest counts as silent;
    StorageNodeError where two names are those of one, whose copy would be counted twice."""
    statuses = await list_nodes(store, root, tls, timeout_seconds=ANSWER_SECONDS)
    distinct = await check_distinct(view.nodes, view.store, tls)
    answered = {one.node: one for one in statuses if one.error is None and one.node in distinct}
    places = asyncio.Semaphore(_QUESTIONS)

    async def whole(node: str, copy: NodePartition) -> NodePartition:
        if copy.max_transaction_id is not None or not copy.assigned or copy.partition_id not in partitions:
            return copy
        async with places:
            return await _with_last_record(store, root, view, tls, node, copy)

    async def asked(status: NodeStatus) -> list[NodePartition]:
        return await asyncio.gather(*(whole(status.node, copy) for copy in status.partitions))

    found = await asyncio.gather(*map(asked, answered.values()))
    return dict(zip(answered, found, strict=True))


async def _with_last_record(
    store: ZooKeeperStore, root: str, view: ClusterView, tls: TlsSettings, node: str, copy: NodePartition
) -> NodePartition:
    """A node of release 0.13.2 does not report its last record with the metrics: it is asked as a server
    asks, in the session that it holds, which changes nothing. As it was when that fails."""
    endpoint = admin_endpoint(node, view.nodes.admin_ports[node])
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            last = await max_transaction_id(
                store,
                root,
                endpoint,
                parse_connect_string(node).port,
                copy.partition_id,
                tls=tls,
                offline=not copy.available,
            )
    except (AdminError, TimeoutError):
        return copy
    return replace(copy, max_transaction_id=last)


def _held(nodes: Copies, partition: int) -> dict[str, NodePartition]:
    return {n: c for n, copies in nodes.items() for c in copies if c.partition_id == partition and c.assigned}


async def accept_restored(
    store: ZooKeeperStore,
    root: str,
    partitions: Sequence[int],
    *,
    tls: TlsSettings,
    lost: Collection[str] = (),
    removed: Collection[str] = (),
) -> tuple[list[Rebuilt], list[int]]:
    """Write the metadata of these partitions again; what was written, and the partitions with which nothing
    is wrong.

    All are checked before the first is written, each under the version that was read, with its assignment in
    the same transaction; no partition depends on another one, so many are written in several transactions
    under one lock. Doing it twice does nothing, and after an error half-way does the rest. `lost`: storage
    nodes whose disks are lost for good; `removed`: those that were taken out of the partitions since the copy
    was made. NothingToAcceptError when nothing is wrong with any; UnsafeChangeError when another node does
    not answer, a server is serving the partition, or copies are of different histories; AdminError without
    metadata. Nothing was changed then.
    PartlyAcceptedError when it ended half-way.
    """
    view, answers, copies = await ask_everybody(store, root, tls, partitions)
    found: list[Rebuilt] = []
    fine: list[int] = []
    for partition in partitions:
        try:
            found.append(_checked(view, partition, answers, copies, lost, removed))
        except NothingToAcceptError:
            fine.append(partition)
    if not found:
        raise NothingToAcceptError(
            f"no node knows more than ZooKeeper in partitions {','.join(map(str, partitions))}: nothing to accept"
        )
    await check_one_history(view.store, found, tls)
    await _write(store, root, view, found)
    return found, fine


async def _write(store: ZooKeeperStore, root: str, view: ClusterView, found: Sequence[Rebuilt]) -> None:
    paths, maps, done = ClusterPaths(root), view.nodes, list[int]()
    async with AdminLock(store, paths) as lock:
        for some in _batches(found):
            assigned = _assigned(maps, some)
            ops = [_op(paths, view, one) for one in some]
            changes = maps.changes(paths, partitions=assigned)
            try:
                await lock.transaction(ops + changes)
            except (VersionConflictError, NodeExistsError) as error:
                if not done:
                    raise UnsafeChangeError(
                        "ZooKeeper was changed meanwhile: nothing was written, try again"
                    ) from error
                raise PartlyAcceptedError(_partly("ZooKeeper was changed meanwhile", done, found)) from error
            except (AdminError, StoreError) as error:
                if not done:
                    raise
                raise PartlyAcceptedError(_partly(str(error), done, found)) from error
            done += [one.partition_id for one in some]
            if changes:
                groups, assignment, ports = maps.versions
                maps = replace(maps, partitions=assigned, versions=(groups, assignment + 1, ports))


def _op(paths: ClusterPaths, view: ClusterView, one: Rebuilt) -> Op:
    """The write of one partition's metadata, under what was read: a version, or that there were none."""
    path, partition_id = paths.partition(one.partition_id), PartitionId(one.partition_id)
    if partition_id in view.never_started:
        return CreateOp(path, one.after.to_bytes())
    return SetOp(path, one.after.to_bytes(), view.metadata_versions[partition_id])


def _partly(why: str, done: Sequence[int], found: Sequence[Rebuilt]) -> str:
    return (
        f"{why}; {len(done)} of {len(found)} partitions were written before, up to partition {done[-1]}: run the command "
        "again for the others"
    )


def _batches(found: Sequence[Rebuilt]) -> Iterator[list[Rebuilt]]:
    """As many as one transaction takes."""
    some: list[Rebuilt] = []
    size = 0
    for one in found:
        some.append(one)
        size += len(one.after.to_bytes())
        if size > BATCH_BYTES or len(some) >= BATCH_OPS:
            yield some
            some, size = [], 0
    if some:
        yield some


def _checked(
    view: ClusterView,
    partition: int,
    answers: Answers,
    copies: Copies,
    lost: Collection[str],
    removed: Collection[str],
) -> Rebuilt:
    before = view.recorded(partition)
    if before is None:
        raise AdminError(
            f"partition {partition} has no metadata that can be read: restore any older copy of it first"
        )
    rebuilt = rebuild(partition, before, nodes_of(view, partition, copies, lost, removed))
    server = who_serves(view, partition, answers)
    if server is not None:
        raise UnsafeChangeError(
            f"partition {partition}: server {server} is serving it in a session that ZooKeeper has forgotten; "
            "restart that server first"
        )
    return rebuilt


def who_serves(view: ClusterView, partition: int, answers: Answers) -> Endpoint | None:
    """A server that has the partition open, by its own word."""
    for server in view.servers:
        answer = answers.servers.get(server.server_id)
        if answer is not None and answer.health is not None and answer.health.get(partition, False):
            return server.endpoint
    return None


def _assigned(maps: NodeMaps, found: Sequence[Rebuilt]) -> dict[str, tuple[PartitionId, ...]]:
    given = {node: list(partitions) for node, partitions in maps.partitions.items()}
    for rebuilt in found:
        for node in rebuilt.reassign:
            given.setdefault(node, []).append(PartitionId(rebuilt.partition_id))
        for node in rebuilt.unassign:
            given[node].remove(PartitionId(rebuilt.partition_id))
    return {node: tuple(sorted(partitions)) for node, partitions in given.items()}
