"""ZooKeeper in one process, for tests, simulation and tools without a server: same rules, same test suite.

The tree is in `memory_tree`; here are the sessions and what can go wrong with them. One writer: the loop of
the process. Time is `loop.time()`, so it runs on a simulated clock. Access control is not modelled. Test
controls: `MemoryZooKeeper.restart`, and per session `suspend` / `resume` / `expire` and the `fault`
hook. What a store calls later (watches, session events) runs in the context in which the store was made, and
what the server does (ending a session) in the context in which the server was made, whoever caused it.
"""

import abc
import asyncio
import contextvars
import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from waltz_cluster import errors
from waltz_cluster.memory_tree import MemoryTree
from waltz_cluster.request_size import check_size
from waltz_cluster.session import OneShotWatch, SessionTracker, create_with_parents
from waltz_cluster.store import (
    CreateOp,
    Op,
    SessionEvent,
    SessionListener,
    SessionState,
    SetOp,
    Watch,
    ZnodeStat,
)

T = TypeVar("T")


class Fault(enum.Enum):
    """What happens to one operation: its request or its reply is lost. Both look alike to the caller."""

    LOSE_REQUEST = "request"
    LOSE_REPLY = "reply"


FaultHook = Callable[[str, str], Fault | None]
"""(name of the operation, path) -> fault; names: get, get_children, exists, create, set, delete,
transaction."""


class MemoryZooKeeper(MemoryTree):
    """The server side: one tree, any number of sessions."""

    def __init__(self, *, latency: Callable[[], float] | None = None) -> None:
        """`latency` gives the seconds each half of a round trip takes; none = one turn of the loop."""
        super().__init__()
        self.latency = latency
        self.context = contextvars.copy_context()
        self._stores: list[MemoryStore] = []

    def session(self, timeout_seconds: float = 10.0) -> "MemoryStore":
        """A connected store. Must be called on a running loop."""
        store = MemoryStore(self, timeout_seconds)
        self._stores.append(store)
        return store

    def restart(self, *, down_seconds: float = 0.0) -> None:
        """All connections break now and come back after `down_seconds`; the tree stays, sessions get their
        full timeout again, as with a real restart."""
        for store in self._stores:
            if store.state is SessionState.CONNECTED:
                store.suspend(server_keeps_session=True)
                asyncio.get_running_loop().call_later(down_seconds, store.resume, context=store.context)

    def forget(self, store: "MemoryStore") -> None:
        if store in self._stores:
            self._stores.remove(store)


class TreeOperations(abc.ABC):
    """The operations of a `ZooKeeperStore` on a tree; how a request gets there and back is the
    subclass's."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree

    @property
    @abc.abstractmethod
    def session_id(self) -> int:
        """See `ZooKeeperStore`."""

    @abc.abstractmethod
    def deliver_watch(self, watch: OneShotWatch) -> None:
        """See `memory_tree.Watcher`."""

    @abc.abstractmethod
    async def _call(self, name: str, path: str, action: Callable[[], T]) -> T:
        """Run `action` at the server and bring back what it returns or raises."""

    async def _read(self, name: str, kind: str, path: str, read: Callable[[], T], watch: Watch | None) -> T:
        one_shot = OneShotWatch(watch) if watch is not None else None

        def action() -> T:
            result = read()
            if one_shot is not None:
                self._tree.watch(kind, path, self, one_shot)
            return result

        try:
            return await self._call(name, path, action)
        except BaseException:
            if one_shot is not None:
                one_shot.cancel()
            raise

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        def read() -> tuple[bytes | None, ZnodeStat]:
            node = self._tree.node(path)
            return node.data, node.stat()

        return await self._read("get", "data", path, read, watch)

    async def get_children(self, path: str, watch: Watch | None = None) -> tuple[list[str], ZnodeStat]:
        def read() -> tuple[list[str], ZnodeStat]:
            node = self._tree.node(path)
            return sorted(node.children), node.stat()

        return await self._read("get_children", "children", path, read, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        def read() -> ZnodeStat | None:
            node = self._tree.find(path)
            return None if node is None else node.stat()

        return await self._read("exists", "data", path, read, watch)

    async def sync(self, path: str) -> None:
        await self._call("sync", path, lambda: None)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        check_size([CreateOp(path, data)])
        if make_parents:
            return await create_with_parents(self, path, data, ephemeral=ephemeral, sequential=sequential)

        def action() -> str:
            return self._tree.create(path, data, self.session_id if ephemeral else 0, sequential)

        return await self._call("create", path, action)

    async def set(self, path: str, data: bytes | None, *, version: int = -1) -> ZnodeStat:
        check_size([SetOp(path, data)])
        return await self._call("set", path, partial(self._tree.set, path, data, version))

    async def delete(self, path: str, *, version: int = -1) -> None:
        await self._call("delete", path, partial(self._tree.delete, path, version))

    async def transaction(self, ops: Sequence[Op]) -> None:
        if ops:
            frozen = tuple(ops)
            check_size(frozen)
            await self._call(
                "transaction",
                frozen[0].path,
                lambda: self._tree.transaction(frozen, self.session_id),
            )


class MemoryStore(TreeOperations):
    """A `ZooKeeperStore` on a MemoryZooKeeper."""

    def __init__(self, server: MemoryZooKeeper, timeout_seconds: float) -> None:
        super().__init__(server)
        self.fault: FaultHook | None = None
        self.context = contextvars.copy_context()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._timeout_seconds = timeout_seconds
        self._tracker = SessionTracker()
        self._session_id = server.open_session()
        self._closed = False
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._last_contact: float | None = None  # None while in contact
        self._expiry: asyncio.TimerHandle | None = None
        self._tracker.deliver(SessionEvent(SessionState.CONNECTED, 1, self._loop.time()))

    @property
    def session_timeout_seconds(self) -> float:
        return self._timeout_seconds

    @property
    def epoch(self) -> int:
        return self._tracker.epoch

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._tracker.state

    @property
    def last_contact(self) -> float:
        return self._loop.time() if self._last_contact is None else self._last_contact

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        return self._tracker.add_listener(listener)

    # -- test controls

    def suspend(self, *, noticed_after_seconds: float = 0.0, server_keeps_session: bool = False) -> None:
        """Cut the connection now. The client notices after `noticed_after_seconds`; the server ends the
        session `session_timeout_seconds` after the cut unless asked to keep it."""
        if self._closed or self._last_contact is not None:
            return
        self._last_contact = self._loop.time()
        if not server_keeps_session:
            self._expiry = self._loop.call_later(
                self._timeout_seconds,
                self._server.end_session,
                self._session_id,
                context=self._server.context,
            )
        if noticed_after_seconds > 0:
            self._loop.call_later(
                noticed_after_seconds, self._notice, self._last_contact, context=self.context
            )
        else:
            self._notice(self._last_contact)

    def _notice(self, cut_at: float) -> None:
        if self._closed or self._last_contact != cut_at or self.state is not SessionState.CONNECTED:
            return
        self._break_connection()
        self._tracker.deliver(SessionEvent(SessionState.SUSPENDED, self.epoch, cut_at))

    def _break_connection(self) -> None:
        if not self._broken.done():
            self._broken.set_result(None)
        for watch in self._server.drop_watches(self):
            self.deliver_watch(watch)

    def resume(self) -> None:
        """Connect again: with the same session while the server has it, else LOST and a new one."""
        if self._closed or self._last_contact is None:
            return
        self._notice(self._last_contact)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if not self._server.is_live(self._session_id):
            self._lose()
            return
        self._broken = self._loop.create_future()
        self._last_contact = None
        self._tracker.deliver(SessionEvent(SessionState.CONNECTED, self.epoch, self.last_contact))

    def expire(self, *, reconnect_after_seconds: float = 0.0) -> None:
        """The server ends the session now and the client learns it at once."""
        if self._closed:
            return
        self._server.end_session(self._session_id)
        self._lose(reconnect_after_seconds)

    def _lose(self, reconnect_after_seconds: float = 0.0) -> None:
        if self._last_contact is None:
            self._last_contact = self._loop.time()
        self._break_connection()
        self._tracker.deliver(SessionEvent(SessionState.LOST, self.epoch, self._last_contact))
        self._loop.call_later(reconnect_after_seconds, self._open_new_session, context=self.context)

    def _open_new_session(self) -> None:
        if self._closed or self.state is not SessionState.LOST:
            return
        self._session_id = self._server.open_session()
        self._broken = self._loop.create_future()
        self._last_contact = None
        self._tracker.deliver(SessionEvent(SessionState.CONNECTED, self.epoch + 1, self.last_contact))

    # -- operations

    def deliver_watch(self, watch: OneShotWatch) -> None:
        self._loop.call_soon(watch.fire, context=self.context)

    async def _half(self, what: str, broken: asyncio.Future[None]) -> None:
        """Half of a round trip; ConnectionLostError when the connection breaks meanwhile."""
        await asyncio.sleep(0 if self._server.latency is None else self._server.latency())
        if self._closed:
            raise errors.SessionLostError(f"{what}: the ZooKeeper session is closed")
        if self._last_contact is not None and not broken.done():
            await asyncio.shield(broken)  # cut off but not noticed yet: the answer will not come
        if broken.done():
            raise errors.ConnectionLostError(f"{what}: the connection was lost, the outcome is unknown")

    async def _call(self, name: str, path: str, action: Callable[[], T]) -> T:
        what = f"{name} {path}"
        if self._closed:
            raise errors.SessionLostError(f"{what}: the ZooKeeper session is closed")
        if self.state is not SessionState.CONNECTED:
            raise errors.ConnectionLostError(f"{what}: not connected to ZooKeeper")
        broken = self._broken
        fault = self.fault(name, path) if self.fault is not None else None
        await self._half(what, broken)
        if fault is Fault.LOSE_REQUEST:
            raise errors.ConnectionLostError(f"{what}: the connection was lost, the outcome is unknown")
        result = action()
        await self._half(what, broken)
        if fault is Fault.LOSE_REPLY:
            raise errors.ConnectionLostError(f"{what}: the connection was lost, the outcome is unknown")
        return result

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        self._server.drop_watches(self)
        if not self._broken.done():
            self._broken.set_result(None)
        # cut off: the server cannot hear the goodbye, the session ends by its timeout
        if self._last_contact is None:
            self._server.end_session(self._session_id)
        elif self._server.is_live(self._session_id):
            self._loop.call_later(
                self._timeout_seconds,
                self._server.end_session,
                self._session_id,
                context=self._server.context,
            )
        self._server.forget(self)
