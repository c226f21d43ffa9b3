"""The ZooKeeper in memory with permissions, as far as a managed one needs them: each znode is everybody's, or
of those who know certain credentials, or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import AuthError
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.session import create_with_parents
from waltz_cluster.store import CheckOp, CreateOp, Op, Watch, ZnodeStat, ZooKeeperStore
from waltz_operator.run.zookeeper_access import OPEN, OWN, identity
from waltz_protocol.aio.tls import client_context


class Ensemble(Protocol):
    """Where the processes of a test have their sessions."""

    async def login(self, settings: ZooKeeperSettings, timeout_seconds: float, who: str) -> ZooKeeperStore:
        """A session as these settings ask for it."""
        ...


class GuardedZooKeeper(MemoryZooKeeper):
    """`permissions`: of znodes that are not simply everybody's. `refused`: who was refused what. `elsewhere`:
    other ensembles by their connect string."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: dict[str, GuardedZooKeeper] = {}
        self.permissions: dict[str, tuple[str, ...]] = {}
        self.refused: list[str] = []

    def closed(self) -> set[str]:
        """The znodes that strangers cannot use."""
        return {
            path for path, entries in self.permissions.items() if OPEN not in entries and path in self._nodes
        }

    async def login(self, settings: ZooKeeperSettings, timeout_seconds: float, who: str) -> ZooKeeperStore:
        """A session as these settings say: what they need for TLS has to be there."""
        tls = settings.zookeeper_tls()
        if settings.zookeeper_connect_string.endswith(":2281"):
            assert tls is not None, f"{who} knows nothing of TLS"
            assert client_context(tls) is not None
        other = self.elsewhere.get(settings.zookeeper_connect_string)
        if other is not None and other is not self:
            return await other.login(settings, timeout_seconds, who)
        credentials = settings.credentials()
        store: Any = GuardedSession(
            self,
            self.session(timeout_seconds),
            identity(credentials[1]) if credentials else None,
            settings.zookeeper_acl,
            who,
        )
        found: ZooKeeperStore = store
        return found


class GuardedSession:
    """A session of somebody, who may do what the permissions say; the rest is the session's."""

    def __init__(
        self, tree: GuardedZooKeeper, store: MemoryStore, identity_: str | None, acl: str, who: str
    ) -> None:
        self._tree = tree
        self._store = store
        self._identity = identity_
        self._acl = self._entries({"open": OPEN, "creator": OWN}[acl])
        self._who = who

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _entries(self, acl: str) -> tuple[str, ...]:
        return tuple(acl.replace("auth:", str(self._identity)).split(","))

    def _check(self, path: str) -> None:
        entries = self._tree.permissions.get(path, (OPEN,))
        if OPEN not in entries and f"{self._identity}:cdrwa" not in entries:
            self._tree.refused.append(f"{self._who}: {path}")
            raise AuthError(f"{path}: ZooKeeper does not permit it")

    @staticmethod
    def _parent(path: str) -> str:
        return path.rpartition("/")[0] or "/"

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        self._check(path)
        return await self._store.get(path, watch)

    async def get_children(self, path: str, watch: Watch | None = None) -> tuple[list[str], ZnodeStat]:
        self._check(path)
        return await self._store.get_children(path, watch)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        if make_parents:
            return await create_with_parents(self, path, data, ephemeral=ephemeral, sequential=sequential)
        self._check(self._parent(path))
        created = await self._store.create(path, data, ephemeral=ephemeral, sequential=sequential)
        self._tree.permissions[created] = self._acl
        return created

    async def set(self, path: str, data: bytes | None, *, version: int = -1) -> ZnodeStat:
        self._check(path)
        return await self._store.set(path, data, version=version)

    async def delete(self, path: str, *, version: int = -1) -> None:
        self._check(self._parent(path))
        await self._store.delete(path, version=version)

    async def transaction(self, ops: Sequence[Op]) -> None:
        made = {op.path for op in ops if isinstance(op, CreateOp)}
        for op in ops:
            about = op.path if not isinstance(op, CreateOp) else self._parent(op.path)
            if about not in made and not isinstance(op, CheckOp):
                self._check(about)
        await self._store.transaction(ops)
        self._tree.permissions |= dict.fromkeys(made, self._acl)

    async def acl(self, path: str) -> list[str]:
        self._check(path)
        await self._store.sync(path)
        return list(self._tree.permissions.get(path, (OPEN,)))

    async def set_acl(self, path: str, acl: str) -> None:
        self._check(path)
        await self._store.sync(path)
        self._tree.permissions[path] = self._entries(acl)
