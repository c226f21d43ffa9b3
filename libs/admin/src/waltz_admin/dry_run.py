"""A ZooKeeper store that reads and never writes: an administrative action runs through all its checks and
changes nothing.

What it would have written is in `DryRunStore.writes`, in order. A lock is "taken" without a trace, so two
dry runs, or a dry run and a real change, do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from waltz_cluster.errors import NodeExistsError
from waltz_cluster.request_size import check_size
from waltz_cluster.store import (
    CheckOp,
    CreateOp,
    DeleteOp,
    Op,
    SessionListener,
    SessionState,
    SetOp,
    Watch,
    ZnodeStat,
    ZooKeeperStore,
)


class DryRunStore:
    """Reads of `store`; writes are remembered as (verb, path)."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store
        self.writes: list[tuple[str, str]] = []

    @property
    def session_timeout_seconds(self) -> float:
        """See the protocol."""
        return self._store.session_timeout_seconds

    @property
    def epoch(self) -> int:
        """See the protocol."""
        return self._store.epoch

    @property
    def session_id(self) -> int:
        """See the protocol."""
        return self._store.session_id

    @property
    def state(self) -> SessionState:
        """See the protocol."""
        return self._store.state

    @property
    def last_contact(self) -> float:
        """See the protocol."""
        return self._store.last_contact

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        """See the protocol."""
        return self._store.add_session_listener(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        """See the protocol."""
        return await self._store.get(path, watch)

    async def get_children(self, path: str, watch: Watch | None = None) -> tuple[list[str], ZnodeStat]:
        """See the protocol."""
        return await self._store.get_children(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        """See the protocol."""
        return await self._store.exists(path, watch)

    async def sync(self, path: str) -> None:
        """See the protocol."""
        await self._store.sync(path)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Remembered, unless it is ephemeral (a lock). NodeExistsError and ZnodeTooLargeError as the real
        one."""
        check_size([CreateOp(path, data)])
        if not sequential and await self._store.exists(path) is not None:
            raise NodeExistsError(path)
        if not ephemeral:
            self.writes.append(("create", path))
        return path

    async def set(self, path: str, data: bytes | None, *, version: int = -1) -> ZnodeStat:
        """Remembered; NoNodeError, ZnodeTooLargeError as the real one."""
        check_size([SetOp(path, data)])
        stat = (await self._store.get(path))[1]
        self.writes.append(("set", path))
        return stat

    async def delete(self, path: str, *, version: int = -1) -> None:
        """Remembered."""
        self.writes.append(("delete", path))

    async def transaction(self, ops: Sequence[Op]) -> None:
        """Remembered; ZnodeTooLargeError as the real one."""
        check_size(ops)
        for op in ops:
            match op:
                case CreateOp():
                    self.writes.append(("create", op.path))
                case SetOp():
                    self.writes.append(("set", op.path))
                case DeleteOp():
                    self.writes.append(("delete", op.path))
                case CheckOp():
                    pass

    async def close(self) -> None:
        """The session belongs to whoever opened the store."""
