"""Sessions with ZooKeeper: one per ensemble and credentials, shared by the clusters that live in it, opened when first needed.

A session that was lost comes back by itself (``waltz_cluster.zk_client``); one that never came up is tried again at the next call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from waltz_cluster.errors import ConfigError
from waltz_cluster.settings import ZooKeeperSettings
from waltz_cluster.store import ZooKeeperStore

Connect = Callable[[ZooKeeperSettings], Awaitable[ZooKeeperStore]]
Owner = tuple[str, str]
"""Namespace and name of a cluster."""

CONNECT_TIMEOUT_SECONDS = 5.0
SESSION_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Where ZooKeeper is and who we are there. ``credentials``: user:password, or none."""

    connect_string: str
    root: str
    scheme: str = "digest"
    credentials: str | None = None
    acl: str = "open"

    def settings(self) -> ZooKeeperSettings:
        """As every other process of Waltz is configured; ConfigError."""
        keys: dict[str, object] = {
            "zookeeper.connectString": self.connect_string,
            "zookeeper.sessionTimeout": int(SESSION_TIMEOUT_SECONDS * 1000),
            "zookeeper.connectTimeout": int(CONNECT_TIMEOUT_SECONDS * 1000),
            "cluster.root": self.root,
            "zookeeper.auth.scheme": self.scheme,
            "zookeeper.acl": self.acl,
        }
        if self.credentials is not None:
            keys["zookeeper.auth"] = self.credentials
        return ZooKeeperSettings.from_mapping(keys, source="the WaltzCluster")


_Key = tuple[str, str, str | None, str]


async def _connect(settings: ZooKeeperSettings) -> ZooKeeperStore:
    from waltz_cluster.zk_client import (
        connect,
    )  # kazoo comes with it: not for commands that need no ZooKeeper

    return await connect(settings)


class Ensembles:
    """One writer: the loop. A session is closed when the last cluster that used it is released."""

    def __init__(self, connect: Connect = _connect) -> None:
        self._connect = connect
        self._stores: dict[_Key, ZooKeeperStore] = {}
        self._locks: dict[_Key, asyncio.Lock] = {}
        self._users: dict[Owner, _Key] = {}

    async def store(self, owner: Owner, ensemble: Ensemble) -> ZooKeeperStore:
        """The session for a cluster; ConfigError, ConnectError (within CONNECT_TIMEOUT_SECONDS)."""
        if not ensemble.connect_string:
            raise ConfigError("the WaltzCluster names no ZooKeeper")
        key = (ensemble.connect_string, ensemble.scheme, ensemble.credentials, ensemble.acl)
        if self._users.get(owner, key) != key:
            await self.release(owner)
        self._users[owner] = key
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._stores:
                self._stores[key] = await self._connect(ensemble.settings())
            return self._stores[key]

    async def release(self, owner: Owner) -> None:
        """The cluster is gone, or moved."""
        key = self._users.pop(owner, None)
        if key is not None and key not in self._users.values():
            self._locks.pop(key, None)
            store = self._stores.pop(key, None)
            if store is not None:
                await store.close()

    async def close(self) -> None:
        """End all sessions."""
        for owner in list(self._users):
            await self.release(owner)
