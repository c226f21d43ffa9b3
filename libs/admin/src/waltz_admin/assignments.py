"""Giving partitions to storage nodes and taking them away (docs/zookeeper-layout.md, *How it is used*).

Only ZooKeeper is changed here; servers notice and start new sessions, nodes are informed by
`storage_admin`. Each call is one transaction: all partitions or none, after the check of safety rule A6 for
every one of them. Repeating a call changes nothing: what is assigned (or not) already is left as it is.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from waltz_admin.errors import AssignmentError
from waltz_admin.lock import AdminLock
from waltz_admin.safety import AdminPortProbe, ReplicaProbe, check_added, check_change
from waltz_admin.tree import NodeMaps, read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.errors import VersionConflictError
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import CheckOp, ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import PartitionId

Placement = Mapping[str, tuple[PartitionId, ...]]
_ATTEMPTS = 5


async def assign(
    store: ZooKeeperStore,
    root: str,
    partitions: Iterable[int],
    connect_string: str,
    *,
    tls: TlsSettings | None = None,
    probe: ReplicaProbe | None = None,
    allow_pause: bool = False,
    lock_wait_seconds: float = 60.0,
) -> tuple[PartitionId, ...]:
    """Add the partitions to the node; returns those that were not there yet.

    AssignmentError for an unknown node or partition, UnsafeChangeError by rule A6 (see
    `safety.check_change` for `allow_pause`) and for a copy that is out of service on the node. `tls` is for
    the admin ports of the nodes that are asked.
    """

    def change(maps: NodeMaps, num_partitions: int) -> Placement:
        chosen = _check_ids(partitions, num_partitions)
        if connect_string not in maps.partitions:
            raise AssignmentError(f"{connect_string} is not a storage node of the cluster at {root}")
        return {
            **maps.partitions,
            connect_string: tuple(sorted({*maps.partitions[connect_string], *chosen})),
        }

    before, after = await _change(
        store,
        root,
        change,
        tls=tls,
        probe=probe,
        allow_pause=allow_pause,
        lock_wait_seconds=lock_wait_seconds,
    )
    return tuple(p for p in after[connect_string] if p not in before[connect_string])


async def unassign(
    store: ZooKeeperStore,
    root: str,
    partitions: Iterable[int],
    connect_string: str,
    *,
    tls: TlsSettings | None = None,
    probe: ReplicaProbe | None = None,
    keep_group_copy: bool = True,
    lock_wait_seconds: float = 60.0,
) -> tuple[PartitionId, ...]:
    """Take the partitions from the node; returns those that were there.

    AssignmentError for an unknown node or partition, and when the node's group would hold no other copy
    (unless `keep_group_copy` is False); UnsafeChangeError by rule A6.
    """

    def change(maps: NodeMaps, num_partitions: int) -> Placement:
        chosen = _check_ids(partitions, num_partitions)
        if connect_string not in maps.partitions:
            raise AssignmentError(f"{connect_string} is not a storage node of the cluster at {root}")
        held = maps.partitions[connect_string]
        for partition_id in chosen:
            if (
                keep_group_copy
                and partition_id in held
                and not _other_copy(maps, connect_string, partition_id)
            ):
                raise AssignmentError(
                    f"partition {partition_id}: group {maps.groups.get(connect_string)} would hold no other copy of it "
                    "(--drop-group-copy, in the library keep_group_copy=False, if that is meant)"
                )
        return {**maps.partitions, connect_string: tuple(p for p in held if p not in chosen)}

    before, after = await _change(
        store, root, change, tls=tls, probe=probe, allow_pause=False, lock_wait_seconds=lock_wait_seconds
    )
    return tuple(p for p in before[connect_string] if p not in after[connect_string])


async def auto_assign(
    store: ZooKeeperStore,
    root: str,
    group: int,
    *,
    tls: TlsSettings | None = None,
    probe: ReplicaProbe | None = None,
    allow_pause: bool = False,
    lock_wait_seconds: float = 60.0,
) -> dict[str, tuple[PartitionId, ...]]:
    """Give the group one copy of every partition it does not hold yet; returns what each node got.

    Deterministic: nodes in the order of their connect strings, each partition to the node with the fewest, so
    partition i of an empty group of n nodes goes to node i mod n. Copies that exist stay where they are.
    """

    def change(maps: NodeMaps, num_partitions: int) -> Placement:
        nodes = sorted(node for node, of in maps.groups.items() if of == group and node in maps.partitions)
        if not nodes:
            raise AssignmentError(f"group {group} has no storage node")
        held = {node: list(maps.partitions[node]) for node in nodes}
        present = {p for partitions in held.values() for p in partitions}
        for partition_id in map(PartitionId, range(num_partitions)):
            if partition_id not in present:
                held[min(nodes, key=lambda node: len(held[node]))].append(partition_id)
        return {**maps.partitions, **{node: tuple(sorted(given)) for node, given in held.items()}}

    before, after = await _change(
        store,
        root,
        change,
        tls=tls,
        probe=probe,
        allow_pause=allow_pause,
        lock_wait_seconds=lock_wait_seconds,
    )
    return {
        node: tuple(p for p in given if p not in before[node])
        for node, given in after.items()
        if given != before[node]
    }


async def change_assignments(
    store: ZooKeeperStore,
    root: str,
    *,
    expect_version: int,
    add: Mapping[str, Iterable[int]] | None = None,
    remove: Mapping[str, Iterable[int]] | None = None,
    tls: TlsSettings | None = None,
    probe: ReplicaProbe | None = None,
    allow_pause: bool = False,
    lock_wait_seconds: float = 60.0,
) -> bool:
    """Add partitions to nodes and take others away, exactly once, decided on the assignments of data version
    `expect_version`.

    For callers that decide on what they read before: AssignmentError when the assignments have another
    version by now, unless they are already what was wanted (then False: nothing to do). UnsafeChangeError by
    rule A6 for every partition concerned.
    """
    added = {node: tuple(partitions) for node, partitions in (add or {}).items()}
    removed = {node: tuple(partitions) for node, partitions in (remove or {}).items()}

    def change(maps: NodeMaps, num_partitions: int) -> Placement:
        after = dict(maps.partitions)
        for node in (*added, *removed):
            if node not in after:
                raise AssignmentError(f"{node} is not a storage node of the cluster at {root}")
        for node, partitions in added.items():
            after[node] = tuple(sorted({*after[node], *_check_ids(partitions, num_partitions)}))
        for node, partitions in removed.items():
            gone = _check_ids(partitions, num_partitions)
            after[node] = tuple(p for p in after[node] if p not in gone)
        if after != dict(maps.partitions) and maps.versions[1] != expect_version:
            raise AssignmentError(
                f"the assignments changed meanwhile (version {maps.versions[1]}, decided on {expect_version})"
            )
        return after

    before, after = await _change(
        store,
        root,
        change,
        tls=tls,
        probe=probe,
        allow_pause=allow_pause,
        lock_wait_seconds=lock_wait_seconds,
    )
    return dict(before) != dict(after)


def _check_ids(partitions: Iterable[int], num_partitions: int) -> tuple[PartitionId, ...]:
    chosen = tuple(sorted({PartitionId(p) for p in partitions}))
    for partition_id in chosen:
        if not 0 <= partition_id < num_partitions:
            raise AssignmentError(f"there is no partition {partition_id}: the cluster has {num_partitions}")
    return chosen


def _other_copy(maps: NodeMaps, connect_string: str, partition_id: PartitionId) -> bool:
    group = maps.groups.get(connect_string)
    return any(
        partition_id in held and node != connect_string and maps.groups.get(node) == group
        for node, held in maps.partitions.items()
    )


def replicas(placement: Placement, partition_id: int) -> tuple[str, ...]:
    """The nodes that hold a partition, in the order of the placement."""
    return tuple(node for node, held in placement.items() if partition_id in held)


def _by_partition(placement: Placement) -> Mapping[int, Sequence[str]]:
    """The nodes that hold each partition, in the order of the placement."""
    found: dict[int, list[str]] = {}
    for node, held in placement.items():
        for partition_id in dict.fromkeys(held):
            found.setdefault(partition_id, []).append(node)
    return found


async def _change(
    store: ZooKeeperStore,
    root: str,
    change: Callable[[NodeMaps, int], Placement],
    *,
    tls: TlsSettings | None,
    probe: ReplicaProbe | None,
    allow_pause: bool,
    lock_wait_seconds: float,
) -> tuple[Placement, Placement]:
    """Read, compute, check and write under the lock; again after a version conflict. Returns (before,
    after)."""
    paths = ClusterPaths(root)
    _, params = await read_params(store, root)
    metadata = StoreMetadata(store, root)
    for attempt in range(_ATTEMPTS):
        async with AdminLock(store, paths, wait_seconds=lock_wait_seconds) as lock:
            maps = await read_maps(store, paths)
            after = change(maps, params.num_partitions)
            ops = maps.changes(paths, partitions=after)
            if not ops:
                return maps.partitions, after
            asker = probe or AdminPortProbe(
                dict(maps.admin_ports), params.cluster_key, params.num_partitions, tls or TlsSettings()
            )
            silent: set[str] = set()
            fresh: list[int] = []
            held, given = _by_partition(maps.partitions), _by_partition(after)
            for partition_id in range(params.num_partitions):
                old, new = held.get(partition_id, ()), given.get(partition_id, ())
                version = await check_change(metadata, asker, partition_id, old, new, allow_pause=allow_pause)
                if version is not None:
                    added = [node for node in new if node not in old and node not in silent]
                    silent |= await check_added(asker, partition_id, added)
                    ops.append(CheckOp(paths.partition(partition_id), version))
                elif set(old) != set(new):
                    fresh.append(partition_id)
            if fresh and not await _still_fresh(store, paths, metadata, fresh):
                continue  # the first session of one has begun: what was decided without it is worth nothing
            try:
                await lock.transaction(ops)
                return maps.partitions, after
            except VersionConflictError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        await asyncio.sleep(0)
    raise AssignmentError("the assignments keep changing")


async def _still_fresh(
    store: ZooKeeperStore, paths: ClusterPaths, metadata: StoreMetadata, partitions: Iterable[int]
) -> bool:
    """Whether none of these partitions has been started yet. ZooKeeper cannot check in a transaction that a
    znode is absent, so this is asked right before it; what begins in between is seen by the server, and
    taken back by `assign`."""
    await store.sync(paths.partitions)
    return all([await metadata.never_started(partition_id) for partition_id in partitions])
