"""Sessions with ZooKeeper: one per ensemble and credentials, shared by the clusters that live in it, opened
when first needed.

A session that was lost is renewed (`waltz_cluster.zk_client`); one that never came up is tried again at the
next call. One without a connection for `REPLACE_SECONDS` is given up for a new one: a ZooKeeper whose data
were lost, or are an older copy, refuses everybody who has seen later changes than it has, so only a new
session sees what is there. A call waits `patience_seconds` for a new session, which continues to be opened
behind its back: clusters whose ZooKeeper is away must not take up the passes of the others.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import ClusterError, ConfigError, ConnectError
from waltz_cluster.store import SessionState, ZooKeeperStore
from waltz_protocol.aio.tasks import spawn

Connect = Callable[[ZooKeeperSettings], Awaitable[ZooKeeperStore]]
Owner = tuple[str, str]
"""Namespace and name of a cluster."""

CONNECT_TIMEOUT_SECONDS = 5.0
SESSION_TIMEOUT_SECONDS = 15.0
PATIENCE_SECONDS = 1.0
REPLACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Where ZooKeeper is and who we are there. `credentials`: user:password, or none. `certificates`: the
    directory with tls.crt, tls.key and ca.crt for TLS; none for plaintext."""

    connect_string: str
    root: str
    scheme: str = "digest"
    credentials: str | None = None
    acl: str = "open"
    certificates: str | None = None

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
        if self.certificates is not None:
            keys["zookeeper.ssl.keyStore.location"] = self.certificates
            keys["zookeeper.ssl.trustStore.location"] = self.certificates
        return ZooKeeperSettings.from_mapping(keys, source="the WaltzCluster")


_Key = tuple[str, str, str | None, str, str | None]


async def _connect(settings: ZooKeeperSettings) -> ZooKeeperStore:
    from waltz_cluster.zk_client import (
        connect,
    )  # kazoo comes with it: not for commands that need no ZooKeeper

    return await connect(settings)


def _names_without_namespace(connect_string: str, owner: Owner) -> str:
    """The names of Services that only pods of the cluster's namespace find, as the end of a message; empty
    when there are none."""
    hosts = (member.partition("/")[0].rpartition(":")[0] for member in connect_string.split(","))
    bare = [host for host in hosts if host and not host.startswith("[") and "." not in host]
    if not bare:
        return ""
    whole = ", ".join(f"{host}.{owner[0]}.svc" for host in bare)
    return (
        f"; the operator looks {', '.join(bare)} up in its own namespace: "
        f"if a Service of the cluster's namespace is meant, write {whole}"
    )


class Ensembles:
    """One writer: the loop. A session is closed when the last cluster that used it is released."""

    def __init__(self, connect: Connect = _connect, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._connect = connect
        self._patience = patience_seconds
        self._stores: dict[_Key, ZooKeeperStore] = {}
        self._opening: dict[_Key, asyncio.Task[ZooKeeperStore | ClusterError]] = {}
        self._users: dict[Owner, _Key] = {}
        self._since: dict[_Key, float] = {}  # without a connection, as far as calls have seen; loop.time()

    def credentials(self, owner: Owner) -> str | None:
        """Those of the cluster's last session; None where it had none."""
        key = self._users.get(owner)
        return None if key is None else key[2]

    async def store(self, owner: Owner, ensemble: Ensemble) -> ZooKeeperStore:
        """The session for a cluster; ConfigError, ConnectError (also when there is none yet)."""
        if not ensemble.connect_string:
            raise ConfigError("the WaltzCluster names no ZooKeeper")
        key = (
            ensemble.connect_string,
            ensemble.scheme,
            ensemble.credentials,
            ensemble.acl,
            ensemble.certificates,
        )
        if self._users.get(owner, key) != key:
            await self.release(owner)
        self._users[owner] = key
        await self._give_up(key)
        if key in self._stores:
            return self._stores[key]
        opening = self._opening.get(key)
        if opening is None:
            opening = spawn(self._open(key, ensemble.settings()), f"session with {ensemble.connect_string}")
            self._opening[key] = opening
        await asyncio.wait({opening}, timeout=self._patience)
        if not opening.done():
            hint = _names_without_namespace(ensemble.connect_string, owner)
            raise ConnectError(f"ZooKeeper at {ensemble.connect_string} has not answered yet{hint}")
        if self._opening.get(key) is opening:
            del self._opening[key]  # a failure is reported once; the next call tries again
        if opening.cancelled():
            raise ConnectError(f"the session with ZooKeeper at {ensemble.connect_string} is no longer needed")
        found = opening.result()
        if isinstance(found, ConnectError):
            raise ConnectError(f"{found}{_names_without_namespace(ensemble.connect_string, owner)}")
        if isinstance(found, ClusterError):
            raise found
        return found

    async def _give_up(self, key: _Key) -> None:
        """Close a session that has had no connection for long."""
        store, now = self._stores.get(key), asyncio.get_running_loop().time()
        if store is None or store.state is SessionState.CONNECTED:
            self._since.pop(key, None)
        elif now - self._since.setdefault(key, now) >= REPLACE_SECONDS:
            del self._since[key], self._stores[key]
            await store.close()

    async def _open(self, key: _Key, settings: ZooKeeperSettings) -> ZooKeeperStore | ClusterError:
        try:
            store = self._stores[key] = await self._connect(settings)
        except ClusterError as error:
            return error
        return store

    async def release(self, owner: Owner) -> None:
        """The cluster is gone, or moved."""
        key = self._users.pop(owner, None)
        if key is None or key in self._users.values():
            return
        opening = self._opening.pop(key, None)
        if opening is not None:
            opening.cancel()
            await asyncio.wait({opening})
        store = self._stores.pop(key, None)
        if store is not None:
            await store.close()

    async def close(self) -> None:
        """End all sessions."""
        for owner in list(self._users):
            await self.release(owner)
