"""Clusters whose roots lie below each other: none is created that way, and none is deleted with another one.

Whoever deletes, exports or restricts a cluster does it to everything below its root. One that was created
below another one by an earlier release is used like any other.
"""

from __future__ import annotations

from waltz_admin.errors import ClusterExistsError
from waltz_cluster.errors import AuthError, NoNodeError, SerializationError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams
from waltz_cluster.store import ZooKeeperReads


async def check_alone(store: ZooKeeperReads, paths: ClusterPaths) -> None:
    """ClusterExistsError when there is a cluster at a znode above the root, or below it."""
    for path in paths.ancestors:
        try:
            above = await _is_cluster(store, path)
        except AuthError:
            continue  # of somebody else, who does not let us see it
        if above:
            raise ClusterExistsError(
                f"{paths.root} lies below the root of another cluster, {path}: choose a root that is not below it"
            )
    for path in await foreign(store, paths):
        if (below := await cluster_at_or_below(store, path)) is not None:
            raise ClusterExistsError(
                f"{paths.root} lies above the root of another cluster, {below}: choose a root that is not above it"
            )


async def foreign(store: ZooKeeperReads, paths: ClusterPaths) -> list[str]:
    """The znodes at the root, in `ids` and in `store` that are none of a cluster's, of this release or of
    0.13.2."""
    known = {
        paths.root: {
            paths.ids,
            paths.server_descriptors,
            paths.challenges,
            paths.store,
            paths.preferences,
            paths.producers,
        },
        paths.ids: {paths.client_ids, paths.server_ids},
        paths.store: {paths.partitions, paths.group, paths.assignment, paths.connection, paths.admin_lock},
    }
    found: list[str] = []
    for parent, names in known.items():
        found += [path for path in await _children(store, parent) if path not in names]
    return found


async def cluster_at_or_below(store: ZooKeeperReads, path: str) -> str | None:
    """The root of a cluster: this znode, or the first one below it; None when there is none."""
    pending = [path]
    while pending:
        at = pending.pop()
        if await _is_cluster(store, at):
            return at
        pending += reversed(await _children(store, at))
    return None


async def _is_cluster(store: ZooKeeperReads, path: str) -> bool:
    try:
        data, _ = await store.get(path)
        ClusterParams.from_bytes(data)
    except (NoNodeError, SerializationError):
        return False
    return True


async def _children(store: ZooKeeperReads, path: str) -> list[str]:
    try:
        names, _ = await store.get_children(path)
    except NoNodeError:
        return []
    return [f"{path}/{name}" for name in names]
