"""Connections of Spark's Python processes: one client on an event loop in a thread of its own, kept between
uses.

Spark's worker processes run many short tasks one after another. Opening a client takes a connection to
ZooKeeper or to a server, a client id and a mount, so a worker keeps the one it has and closes it when nobody
has used it for a while. Users of the same settings share it, but for those that claim under different
headers: the rows of a client belong to its newest claim, and a task sees no claim under another header.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from waltz_spark.errors import UnavailableError, mapped

if TYPE_CHECKING:
    from waltz_client import WaltzClient
    from waltz_spark.options import ClientKeys

T = TypeVar("T")

EXIT_SECONDS = 5.0
"""So long the end of a process waits for the end of each connection that nobody uses."""
IDLE_SECONDS = 20.0
"""How long a connection that nobody uses is kept."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What a cluster is: the key its storage nodes carry, its name, how many partitions."""

    key: str
    name: str
    num_partitions: int


class Connection:
    """A client, its loop and its thread. Use `lease`.

    Invariants: `users` > 0 keeps it open; once `ended`, it is never used again; client and loop are
    touched by the thread only.
    """

    def __init__(self, keys: ClientKeys, claim_header: int | None = None) -> None:
        self.users = 0
        self.idle_since = time.monotonic()
        self.ended = False
        self._keys = keys
        self._shared_as = (keys, claim_header)
        self._opened: concurrent.futures.Future[tuple[WaltzClient, ClusterIdentity]] = (
            concurrent.futures.Future()
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="waltz-spark", daemon=True)
        self._thread.start()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                raise
        finally:
            self._end()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        async with AsyncExitStack() as stack:
            client, identity = await self._open(stack)
            self._opened.set_result((client, identity))
            while not self.ended:
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_SECONDS / 2):
                        await self._idle.wait()
                self._idle.clear()
                self._end_if_idle(IDLE_SECONDS)

    async def _open(self, stack: AsyncExitStack) -> tuple[WaltzClient, ClusterIdentity]:
        from waltz_client import WaltzClient
        from waltz_cluster.cluster_params import patiently, read_params

        settings = self._keys.settings()
        if settings.servers:
            client = await stack.enter_async_context(WaltzClient.connect(settings))
            return client, ClusterIdentity(
                str(client.cluster_key), client.cluster_name, client.num_partitions
            )
        from waltz_cluster.zk_client import connect  # not in a process that is given servers

        store = await connect(settings, gives_up=True)
        stack.push_async_callback(store.close)
        cluster, params = await patiently(lambda: read_params(store, settings.cluster_root))
        client = await stack.enter_async_context(WaltzClient.connect(settings, store=store))
        return client, ClusterIdentity(str(params.cluster_key), cluster.name, cluster.num_partitions)

    def _end(self) -> None:
        with _lock:
            self.ended = True
            if _connections.get(self._shared_as) is self:
                del _connections[self._shared_as]

    def _end_if_idle(self, idle_seconds: float) -> None:
        with _lock:
            if not self.users and time.monotonic() - self.idle_since >= idle_seconds:
                self.ended = True
                if _connections.get(self._shared_as) is self:
                    del _connections[self._shared_as]

    # -- its users -------------------------------------------------------------------------------------------

    @property
    def identity(self) -> ClusterIdentity:
        """The cluster; waits until the client is open. UnavailableError, ClusterAccessError."""
        with mapped():
            return self._opened.result()[1]

    def call(self, use: Callable[[WaltzClient], Coroutine[Any, Any, T]]) -> T:
        """Run `use(client)` on the loop and wait for its result. An interrupted call is cancelled there."""
        with mapped():
            client, _ = self._opened.result()
            loop = self._loop
            if loop is None or loop.is_closed():
                raise UnavailableError("the connection was closed")
            future = asyncio.run_coroutine_threadsafe(use(client), loop)
            try:
                return future.result()
            except BaseException:
                future.cancel()
                raise

    def close_now(self, at_most_seconds: float | None = None) -> None:
        """End it when nobody else uses it, and wait for that."""
        self._end_if_idle(0.0)
        if self.ended:
            loop, idle = self._loop, self._idle
            if loop is not None and idle is not None:
                with suppress(RuntimeError):  # the loop is closed already
                    loop.call_soon_threadsafe(idle.set)
            self._thread.join(at_most_seconds)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return None
    return uvloop.new_event_loop


_lock = threading.Lock()
_connections: dict[tuple[ClientKeys, int | None], Connection] = {}


@contextmanager
def lease(keys: ClientKeys) -> Iterator[Connection]:
    """The process's connection for these settings, opened when there is none; it stays open for later
    users."""
    connection = take(keys)
    try:
        yield connection
    finally:
        give_back(connection)


def pinned(keys: ClientKeys) -> ClientKeys:
    """The same settings with the key of the cluster that this process, the driver, follows. An address of
    `servers` can have passed to another cluster: without the key, tasks could read and write that one."""
    if not keys.leaves_cluster_open:
        return keys
    with lease(keys) as connection:
        return keys.of_cluster(connection.identity.key)


def take(keys: ClientKeys, claim_header: int | None = None) -> Connection:
    """As `lease`, for users that are not a block; `give_back` it. `claim_header`: of a user that claims, see
    the module."""
    with _lock:
        connection = _connections.get((keys, claim_header))
        if connection is None or connection.ended:
            connection = _connections[keys, claim_header] = Connection(keys, claim_header)
        connection.users += 1
        return connection


def give_back(connection: Connection) -> None:
    """The end of a use."""
    with _lock:
        connection.users -= 1
        connection.idle_since = time.monotonic()


def close_all(at_most_seconds: float | None = None) -> None:
    """End every connection of this process that nobody uses, and wait for that, so long for each."""
    with _lock:
        connections = list(_connections.values())
    for connection in connections:
        connection.close_now(at_most_seconds)


# a loop that still runs in its thread while the interpreter ends can crash it
atexit.register(close_all, EXIT_SECONDS)
