"""Creating, deleting and naming a cluster in ZooKeeper (docs/zookeeper-layout.md).

`create` is one transaction: all znodes or none. It completes the tree of an older tool that died half-way,
but only while nothing shows that the cluster was ever used; and once a cluster key has been recorded
somewhere (operator status, control files of storage nodes) a tree that is missing, or has another key, is a
fault and never seeded again: new keys would cut all storage nodes off from their own data.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID, uuid4

from waltz_admin.errors import (
    AdminError,
    ClusterExistsError,
    ClusterInUseError,
    ClusterTreeLostError,
    WrongClusterNameError,
)
from waltz_admin.nested import check_alone, check_none_below, clusters_below, foreign
from waltz_admin.subtree import read_subtree
from waltz_cluster.cluster_params import MAX_PARTITIONS, read_store_params
from waltz_cluster.errors import (
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SerializationError,
    VersionConflictError,
)
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import (
    ClusterParams,
    ConnectionMetadata,
    Counter,
    GroupDescriptor,
    PartitionAssignment,
    ReplicaAssignments,
    StoreParams,
)
from waltz_cluster.store import CreateOp, DeleteOp, Op, SetOp, ZnodeStat, ZooKeeperStore

_ATTEMPTS = 5
_MAX_NAME_BYTES = 65535

Tree = dict[str, tuple[bytes | None, ZnodeStat]]


@dataclass(frozen=True, slots=True)
class CreateResult:
    """`created` is False when the complete cluster was there already."""

    created: bool
    params: StoreParams


async def create(
    store: ZooKeeperStore,
    root: str,
    name: str,
    num_partitions: int,
    *,
    recorded_cluster_key: UUID | None = None,
    exist_ok: bool = False,
    new_key: Callable[[], UUID] = uuid4,
) -> CreateResult:
    """Make the cluster, or complete a half-made one of the same name and number of partitions.

    ClusterExistsError: it is there (unless `exist_ok`) or another one is. ClusterTreeLostError: see the
    module; give `recorded_cluster_key` whenever one is known. ConnectionLostError: run it again.
    """
    paths = ClusterPaths(root)
    if not 0 <= num_partitions <= MAX_PARTITIONS:
        raise AdminError(f"the number of partitions must be 0 to {MAX_PARTITIONS}, not {num_partitions}")
    check_name(name)
    for attempt in range(_ATTEMPTS):
        tree = await _read(store, paths)
        found = await _checked(store, paths, tree, name, num_partitions, recorded_cluster_key)
        wanted = _wanted(paths, name, num_partitions, found, new_key)
        ops = await _missing(store, paths, tree, wanted)
        if not ops:
            if found is None:
                raise ClusterTreeLostError(f"{paths.store} cannot be read")
            if not exist_ok:
                raise ClusterExistsError(f"there is already a cluster {name!r} at {root}")
            return CreateResult(False, found)
        checks = await check_alone(store, paths)
        try:
            await store.transaction([*checks, *ops])
        except (NodeExistsError, NoNodeError, VersionConflictError):
            if attempt + 1 == _ATTEMPTS:
                raise
            continue  # somebody else is creating it too: read again
        if paths.root in tree:
            await check_none_below(store, paths)
        return CreateResult(True, StoreParams.from_bytes(wanted[paths.store]))
    raise AdminError(f"{root} keeps changing")


def check_name(name: str) -> None:
    """AdminError for what cannot be the name of a cluster."""
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        raise AdminError("the name of a cluster must be UTF-8 text") from None
    if size_bytes > _MAX_NAME_BYTES:
        raise AdminError("the name of the cluster is too long")


async def create_exactly(
    store: ZooKeeperStore, root: str, name: str, num_partitions: int, cluster_key: UUID
) -> bool:
    """Make the cluster with this very key, where nothing is; False when exactly this cluster is there
    already.

    ClusterExistsError when anything else is at the root, also a half-made tree: nothing is completed or taken
    over here.
    """
    paths = ClusterPaths(root)
    for _ in range(_ATTEMPTS):
        tree = await _read(store, paths)
        if any(data for data, _ in tree.values()) or len(tree) > 1:
            return await _is_this_one(store, paths, tree, name, num_partitions, cluster_key)
        ops = await _missing(
            store, paths, tree, _wanted(paths, name, num_partitions, None, lambda: cluster_key)
        )
        checks = await check_alone(store, paths)
        try:
            await store.transaction([*checks, *ops])
        except (NodeExistsError, NoNodeError, VersionConflictError):
            continue  # somebody else is creating something: read again
        if paths.root in tree:
            await check_none_below(store, paths)
        return True
    raise AdminError(f"{root} keeps changing")


async def _is_this_one(
    store: ZooKeeperStore, paths: ClusterPaths, tree: Tree, name: str, num_partitions: int, cluster_key: UUID
) -> bool:
    """False (nothing to do) for exactly this cluster, complete; ClusterExistsError for anything else."""
    found = await _checked(store, paths, tree, name, num_partitions, None)
    if found is None or found.cluster_key != cluster_key or any(path not in tree for path in _members(paths)):
        if found is None:
            await check_alone(store, paths)  # it may be the znodes above another cluster
        key = "an incomplete tree" if found is None else f"a cluster with key {found.cluster_key}"
        raise ClusterExistsError(f"there is {key} at {paths.root} already: nothing was changed")
    return False


async def _read(store: ZooKeeperStore, paths: ClusterPaths) -> Tree:
    tree: Tree = {}
    for path in (paths.root, *_members(paths)):
        try:
            tree[path] = await store.get(path)
        except NoNodeError:
            continue
    return tree


def _members(paths: ClusterPaths) -> tuple[str, ...]:
    """All znodes below the root in the order of their creation."""
    return (
        paths.server_descriptors,
        paths.ids,
        paths.client_ids,
        paths.server_ids,
        paths.store,
        paths.partitions,
        paths.group,
        paths.assignment,
        paths.connection,
    )


async def _checked(
    store: ZooKeeperStore,
    paths: ClusterPaths,
    tree: Tree,
    name: str,
    num_partitions: int,
    recorded_cluster_key: UUID | None,
) -> StoreParams | None:
    """As `_check`; what only looks like a cluster that was in use may be the znodes above another one."""
    try:
        return _check(paths, tree, name, num_partitions, recorded_cluster_key)
    except ClusterTreeLostError:
        if recorded_cluster_key is None:
            await check_alone(store, paths)
        raise


def _check(
    paths: ClusterPaths, tree: Tree, name: str, num_partitions: int, recorded_cluster_key: UUID | None
) -> StoreParams | None:
    """Refuse what must not be created over; returns the store parameters if they are there."""
    params, found = tree.get(paths.root, (None, None))[0], tree.get(paths.store, (None, None))[0]
    try:
        cluster = ClusterParams.from_bytes(params) if params else None
        stored = StoreParams.from_bytes(found) if found else None
    except SerializationError as error:
        raise ClusterExistsError(f"{paths.root} holds something that is not a cluster: {error}") from None
    if cluster is not None and (cluster.name, cluster.num_partitions) != (name, num_partitions):
        raise ClusterExistsError(
            f"there is already a cluster {cluster.name!r} with {cluster.num_partitions} partitions at {paths.root}"
        )
    if stored is not None and stored.num_partitions != num_partitions:
        raise ClusterExistsError(f"the store at {paths.store} has {stored.num_partitions} partitions already")
    complete = all(path in tree for path in _members(paths)) and all(
        tree[path][0] for path in (paths.root, *_members(paths)) if path not in (paths.ids, paths.partitions)
    )
    if recorded_cluster_key is not None:
        if stored is None or not complete:
            raise ClusterTreeLostError(
                f"the cluster with key {recorded_cluster_key} is not (completely) at {paths.root}: "
                "restore ZooKeeper, it is never seeded again"
            )
        if stored.cluster_key != recorded_cluster_key:
            raise ClusterTreeLostError(
                f"{paths.root} has the key {stored.cluster_key}, but {recorded_cluster_key} was recorded"
            )
    elif not complete and _was_used(paths, tree):
        raise ClusterTreeLostError(
            f"the cluster at {paths.root} was in use and lost part of its znodes: restore ZooKeeper"
        )
    return stored


def _was_used(paths: ClusterPaths, tree: Tree) -> bool:
    """Whether a server, a client or a store session ever was here."""
    for path in (paths.client_ids, paths.server_ids):
        if path in tree and tree[path][1].version > 0:
            return True
    return any(
        path in tree and tree[path][1].cversion > 0 for path in (paths.partitions, paths.server_descriptors)
    )


def _wanted(
    paths: ClusterPaths,
    name: str,
    num_partitions: int,
    found: StoreParams | None,
    new_key: Callable[[], UUID],
) -> Mapping[str, bytes | None]:
    params = found or StoreParams(new_key(), num_partitions)
    return {
        paths.root: ClusterParams(name, num_partitions).to_bytes(),
        paths.server_descriptors: PartitionAssignment().to_bytes(),
        paths.ids: None,
        paths.client_ids: Counter().to_bytes(),
        paths.server_ids: Counter().to_bytes(),
        paths.store: params.to_bytes(),
        paths.partitions: None,
        paths.group: GroupDescriptor().to_bytes(),
        paths.assignment: ReplicaAssignments().to_bytes(),
        paths.connection: ConnectionMetadata().to_bytes(),
    }


async def _missing(
    store: ZooKeeperStore, paths: ClusterPaths, tree: Tree, wanted: Mapping[str, bytes | None]
) -> list[Op]:
    """The writes that complete the tree, with the data versions release 0.13.2 ends up with."""
    set_later = {paths.root, paths.store, paths.group, paths.assignment, paths.connection}
    ops: list[Op] = []
    if paths.root not in tree:
        ops += [CreateOp(path) for path in paths.ancestors if await store.exists(path) is None]
    for path, data in wanted.items():
        if path not in tree:
            ops.append(CreateOp(path, None if path in set_later else data))
            if path in set_later:
                ops.append(SetOp(path, data, 0))
        elif data is not None and not tree[path][0]:
            ops.append(SetOp(path, data, tree[path][1].version))
    return ops


async def name_of(store: ZooKeeperStore, root: str) -> str:
    """The name of the cluster there, as it is; empty where it has lost it. AdminError: there is none."""
    paths = ClusterPaths(root)
    await store.sync(root)
    try:
        data, _ = await store.get(paths.root)
        return ClusterParams.from_bytes(data).name if data else ""
    except NoNodeError:
        raise AdminError(f"there is no cluster at {root}") from None
    except SerializationError:
        return ""


async def delete(
    store: ZooKeeperStore, root: str, name: str, *, force: bool = False, cluster_key: UUID | None = None
) -> None:
    """Delete the cluster and everything below its root. There is no way back.

    WrongClusterNameError unless the name is that of the cluster (a half-made one that never got a name and
    was never used may go under any); AdminError when something below the root is not part of a cluster.
    `force` skips these two checks. ClusterInUseError while servers are registered, ClusterExistsError while
    another cluster lies below this one: that one goes first, by its own name. Running it
    again after a crash completes it: the root with the name and the store with the key go last, together.
    With `cluster_key` only the cluster of this key is deleted (WrongClusterNameError).
    """
    paths = ClusterPaths(root)
    await store.sync(root)
    tree = await _read(store, paths)
    if paths.root not in tree:
        raise AdminError(f"there is no cluster at {root}")
    found = await read_subtree(store, root)
    for inner in clusters_below(paths, found):
        raise ClusterExistsError(
            f"there is another cluster at {inner}, below {paths.root}: nothing was deleted. Delete that one first, if it "
            "is meant to go"
        )
    if not force:
        _check_name(paths, tree, name)
        if others := foreign(paths, found):
            raise AdminError(
                f"{others[0]} is not part of a Waltz cluster: nothing was deleted; use force to delete it with the cluster"
            )
    if cluster_key is not None:
        _check_key(paths, tree, cluster_key)
    if paths.server_descriptors in tree:
        servers, _ = await store.get_children(paths.server_descriptors)
        if servers:
            raise ClusterInUseError(f"{len(servers)} servers are registered at {paths.root}: stop them first")
    for _ in range(_ATTEMPTS):
        try:
            await _delete_tree(store, paths)
            return
        except (NotEmptyError, NoNodeError):
            continue  # something appeared behind us, or somebody else is deleting it too
    raise AdminError(f"{root} cannot be deleted: new znodes keep appearing below it")


def _check_name(paths: ClusterPaths, tree: Tree, name: str) -> None:
    data = tree[paths.root][0]
    if data:
        try:
            stored = ClusterParams.from_bytes(data).name
        except SerializationError as error:
            raise WrongClusterNameError(f"{paths.root} is not a cluster ({error}); use force") from None
        if stored != name:
            raise WrongClusterNameError(
                f"the cluster at {paths.root} is {stored!r}, not {name!r}: not deleted"
            )
    elif _was_used(paths, tree) or tree.get(paths.store, (None,))[0]:
        raise WrongClusterNameError(f"the cluster at {paths.root} has lost its name; use force to delete it")


def _check_key(paths: ClusterPaths, tree: Tree, cluster_key: UUID) -> None:
    """The root without a store is what a deletion by an older version left: its key was checked then."""
    data = tree.get(paths.store, (None,))[0]
    try:
        found = StoreParams.from_bytes(data).cluster_key if data else None
    except SerializationError as error:
        raise WrongClusterNameError(
            f"the key of the cluster at {paths.root} cannot be read: {error}"
        ) from None
    if found != cluster_key and (found is not None or paths.store in tree):
        raise WrongClusterNameError(
            f"the cluster at {paths.root} has the key {found}, not {cluster_key}: not deleted"
        )


async def _delete_tree(store: ZooKeeperStore, paths: ClusterPaths) -> None:
    """From the leaves up; what identifies the cluster, the root with the name and the store with the key,
    together at the end."""
    await _delete_below(store, paths.root, keep=paths.store)
    await _delete_below(store, paths.store)
    left = [path for path in (paths.store, paths.root) if await store.exists(path) is not None]
    await store.transaction([DeleteOp(path) for path in left])


async def _delete_below(store: ZooKeeperStore, path: str, *, keep: str = "") -> None:
    try:
        names, _ = await store.get_children(path)
    except NoNodeError:
        return
    for below in (f"{path}/{name}" for name in sorted(names)):
        if below != keep:
            await _delete_below(store, below)
            with suppress(NoNodeError):
                await store.delete(below)


async def show_key(store: ZooKeeperStore, root: str) -> UUID:
    """The cluster key; ClusterNotFoundError (never an empty answer)."""
    return (await read_store_params(store, root)).cluster_key
