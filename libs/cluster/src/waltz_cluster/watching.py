"""Reads that leave a watch, for those who keep what they have read until it is said to be out of date.

At most one watch is outstanding per znode and kind, however often it is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from waltz_cluster.store import Watch, ZnodeStat, ZooKeeperReads

T = TypeVar("T")


class Watches:
    """The watches of one reader: `changed` is called when one of them fires."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._armed: set[tuple[str, str]] = set()

    async def read(self, kind: str, path: str, read: Callable[[Watch | None], Awaitable[T]]) -> T:
        """The result of `read`, which gets the watch to set, or None while there is one. A read that fails
        has set none."""
        watch = self._arm((kind, path))
        try:
            return await read(watch)
        except BaseException:
            if watch is not None:
                self._armed.discard((kind, path))
            raise

    def _arm(self, key: tuple[str, str]) -> Watch | None:
        if key in self._armed:
            return None
        self._armed.add(key)

        def fired() -> None:
            self._armed.discard(key)
            self._changed()

        return fired


class WatchingReads:
    """`ZooKeeperReads` of a store, each of which leaves a watch."""

    def __init__(self, store: ZooKeeperReads, changed: Callable[[], None]) -> None:
        self._store = store
        self._watches = Watches(changed)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        return await self._watches.read("data", path, lambda own: self._store.get(path, own))

    async def get_children(self, path: str, watch: Watch | None = None) -> tuple[list[str], ZnodeStat]:
        return await self._watches.read("children", path, lambda own: self._store.get_children(path, own))

    async def sync(self, path: str) -> None:
        await self._store.sync(path)
