"""Clusters whose roots lie below each other: none is created that way, and none is deleted with another one.

Whoever deletes, exports or restricts a cluster does it to everything below its root, so a nested cluster is
looked for at every znode below it, also among the cluster's own. One that was created below another one by an
earlier release is used like any other.

Two that are created at the same time: the inner one is written under the versions of the znodes above it
(`check_alone`), which the root of the outer one has changed or not yet; in the second case the outer one
finds it afterwards (`check_none_below`).
"""

from __future__ import annotations

from waltz_admin.errors import ClusterExistsError
from waltz_admin.nested_roots import OWN, has_params, nested_roots
from waltz_admin.subtree import Subtree, read_subtree
from waltz_cluster.errors import AuthError, NoNodeError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import CheckOp, Op, ZooKeeperStore


async def check_alone(store: ZooKeeperStore, paths: ClusterPaths) -> list[Op]:
    """ClusterExistsError when there is a cluster at a znode above the root, or below it.

    The checks belong to the transaction that makes the cluster: with them no cluster has been made above it
    meanwhile.
    """
    checks: list[Op] = []
    for path in paths.ancestors:
        try:
            data, stat = await store.get(path)
        except (AuthError, NoNodeError):
            continue  # of somebody else, who does not let us see it, or yet to be created
        if has_params(data) and await store.exists(ClusterPaths(path).store) is not None:
            raise ClusterExistsError(
                f"{paths.root} lies below the root of another cluster, {path}: choose a root that is not below it"
            )
        checks.append(CheckOp(path, stat.version))
    for path in clusters_below(paths, await read_subtree(store, paths.root)):
        raise ClusterExistsError(
            f"{paths.root} lies above the root of another cluster, {path}: choose a root that is not above it"
        )
    return checks


async def check_none_below(store: ZooKeeperStore, paths: ClusterPaths) -> None:
    """After a cluster was made at a znode that was there before: ClusterExistsError when another one came
    below it in the same moment. From then on none does."""
    for path in clusters_below(paths, await read_subtree(store, paths.root)):
        raise ClusterExistsError(
            f"the cluster at {paths.root} was created, and at the same time another one at {path}, below it: neither is "
            "deleted with the other one, delete the one that is not wanted (the one below first)"
        )


def clusters_below(paths: ClusterPaths, found: Subtree) -> list[str]:
    """The roots of the outermost clusters below this one's root; `found` is everything at and below it."""
    return [paths.root + path for path in nested_roots({path: data for path, (data, _) in found.items()})]


def foreign(paths: ClusterPaths, found: Subtree) -> list[str]:
    """The znodes at the root that are none of a cluster's, of this release or of 0.13.2."""
    return [paths.root + path for path in found if path.count("/") == 1 and path not in OWN]
