"""All znodes at and below a root, as they are found: what an export, a deletion and the search for nested
clusters begin with."""

from __future__ import annotations

import asyncio

from waltz_cluster.errors import NoNodeError
from waltz_cluster.store import ZnodeStat, ZooKeeperReads

_PARALLEL = 64
"""Znodes that are read at a time."""

Subtree = dict[str, tuple[bytes | None, ZnodeStat]]
"""Data and Stat by the path below the root (`""` is the root), parents first."""


async def read_subtree(store: ZooKeeperReads, root: str) -> Subtree:
    """Level by level; what comes or goes meanwhile is found or not. Empty when there is no root."""
    found: Subtree = {}
    level = [""]
    while level:
        below: list[str] = []
        for start in range(0, len(level), _PARALLEL):
            chosen = level[start : start + _PARALLEL]
            answers = await asyncio.gather(*(_one(store, root, path) for path in chosen))
            for path, one in zip(chosen, answers, strict=True):
                if one is not None:
                    found[path] = one[0]
                    below += [f"{path}/{name}" for name in one[1]]
        level = below
    return found


async def _one(
    store: ZooKeeperReads, root: str, path: str
) -> tuple[tuple[bytes | None, ZnodeStat], list[str]] | None:
    try:
        data, stat = await store.get(root + path)
        names = (await store.get_children(root + path))[0] if stat.num_children else []
    except NoNodeError:
        return None  # it went meanwhile: the next look differs
    return (data, stat), names
