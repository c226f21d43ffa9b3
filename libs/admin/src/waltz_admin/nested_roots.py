"""Which znodes below the root of a cluster are roots of other clusters. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from waltz_cluster.errors import SerializationError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams


def nested_roots(data: Mapping[str, bytes | None]) -> tuple[str, ...]:
    """The outermost ones as paths below the root, of the data by such paths.

    The data of a znode alone do not decide: other records of a cluster can be read as a name and a number.
    """
    roots = {path for path in data if path not in OWN and f"{path}/store" in data and has_params(data[path])}
    return tuple(sorted(path for path in roots if not is_below(path, roots - {path})))


def is_below(path: str, roots: Collection[str]) -> bool:
    """Whether a path is one of these, or below one of them."""
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _own() -> set[str]:
    paths = ClusterPaths("/root")
    known = {
        paths.root,
        paths.ids,
        paths.client_ids,
        paths.server_ids,
        paths.server_descriptors,
        paths.challenges,
        paths.preferences,
        paths.producers,
        paths.store,
        paths.partitions,
        paths.group,
        paths.assignment,
        paths.connection,
        paths.admin_lock,
    }
    return {path.removeprefix(paths.root) for path in known}


OWN = _own()
"""The znodes of a cluster whose names are always the same, as paths below its root."""


def has_params(data: bytes | None) -> bool:
    """Whether the data of a znode can be those of a cluster's root."""
    try:
        ClusterParams.from_bytes(data)
    except SerializationError:
        return False
    return True
