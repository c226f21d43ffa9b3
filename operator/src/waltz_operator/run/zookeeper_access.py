"""The permissions of a managed ZooKeeper: reading the mark on its root, and setting those of every znode (ADR
22).

The mark is the permissions of `/` themselves: everybody, everybody and we, or only we. It is changed before
the first and after the last of the other znodes, so a crash at any write leaves CHANGING, and the next pass
goes through all of them again.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Protocol, runtime_checkable

from waltz_cluster.errors import AuthError, ConfigError, NoNodeError
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.model.snapshot import Closure

OPEN = "world:anyone:cdrwa"
OWN = "auth::cdrwa"
ROOT = "/"
FIXED = "/zookeeper/config"
"""Only a superuser may change it; everybody may read the addresses of the servers there."""


@runtime_checkable
class Guarded(Protocol):
    """What is needed besides a `ZooKeeperStore`."""

    async def acl(self, path: str) -> list[str]:
        """Permissions of a znode, as `scheme:id:permissions`."""
        ...

    async def set_acl(self, path: str, acl: str) -> None:
        """Set them, in the form of `zookeeper.acl`."""
        ...


class GuardedStore(ZooKeeperStore, Guarded, Protocol):
    """A session that can do both."""


def guarded(store: ZooKeeperStore) -> GuardedStore:
    """The session, with permissions. ConfigError when it has none."""
    if not isinstance(store, Guarded):
        raise ConfigError("this session with ZooKeeper knows no permissions")
    return store


def identity(credentials: str) -> str:
    """How permissions name who has these credentials (user:password)."""
    user = credentials.partition(":")[0]
    digest = base64.b64encode(hashlib.sha1(credentials.encode(), usedforsecurity=False).digest()).decode()
    return f"digest:{user}:{digest}"


async def read_mark(store: GuardedStore, credentials: str) -> Closure | None:
    """The mark; None for permissions that nobody of ours has set."""
    found = await store.acl(ROOT)
    everybody = OPEN in found
    ours = any(entry.startswith(f"{identity(credentials)}:") for entry in found)
    if everybody:
        return Closure.CHANGING if ours else Closure.OPEN
    return Closure.CLOSED if ours else None


async def set_mark(store: GuardedStore, mark: Closure, cluster_root: str) -> None:
    """Set the mark, and with CLOSED and OPEN the permissions of every znode before. StoreError."""
    if mark is Closure.CHANGING:
        await store.set_acl(ROOT, f"{OPEN},{OWN}")
        return
    acl = OWN if mark is Closure.CLOSED else OPEN
    await _below(store, ROOT, acl, cluster_root)
    await store.set_acl(ROOT, acl)


async def _below(store: GuardedStore, path: str, acl: str, cluster_root: str) -> None:
    """Every znode below, children last: those that are made meanwhile have the same permissions already."""
    try:
        names, _ = await store.get_children(path)
    except NoNodeError:
        return
    for name in names:
        child = f"{path.rstrip('/')}/{name}"
        if child == FIXED:
            continue
        try:
            await store.set_acl(child, acl)
            await _below(store, child, acl, cluster_root)
        except NoNodeError:
            continue
        except AuthError:
            if f"{child}/".startswith(f"{cluster_root}/") or f"{cluster_root}/".startswith(f"{child}/"):
                raise  # else it is a stranger's, made while everybody could
