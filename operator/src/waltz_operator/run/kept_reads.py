"""How the processes of a cluster, and its tree in ZooKeeper, are read: anew, on connections of their own, or
with what is kept between two passes over a cluster at rest.

What is kept are watches in ZooKeeper and connections, on which a storage node reports what has changed since
the last report. So a cluster of which nothing changes costs a `sync` and a few short answers. Such a look may
be a moment older than a fresh one, and a record that a node has shown at a low-water mark counts as shown for
some minutes. It decides, like the objects it is put together with (`retained_looks`), only that nothing is to
be done: no write and no proof depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from waltz_admin.errors import AdminError
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_admin.kept_connections import KeptConnections
from waltz_admin.observed_node import ObservedNode, close_all
from waltz_admin.reports import LOAD, ServerReport, ask_reports, read_reports
from waltz_admin.server_admin import ServerInspection, inspect_over, inspect_server
from waltz_admin.storage_admin import NodeInspection, inspect_node
from waltz_admin.view import ClusterView, probe
from waltz_admin.watched_view import WatchedView
from waltz_cluster.errors import ClusterMismatchError, ClusterNotFoundError, NoNodeError, SerializationError
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.model.snapshot import TreeView
from waltz_operator.run.read_waltz import tree_view
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint


class Reads(Protocol):
    """One question to each; each is bounded in time by who asks."""

    async def tree(self, store: ZooKeeperStore, root: str) -> TreeView | NoTree | BrokenTree:
        """What is at the root; ClusterError."""

    async def node(self, endpoint: Endpoint, params: StoreParams, tls: TlsSettings) -> NodeInspection:
        """All of a storage node; AdminError when any part is missing."""

    async def server(self, endpoint: Endpoint, tls: TlsSettings, seconds: float) -> ServerInspection:
        """All of a server, each answer within `seconds`; AdminError when any part is missing."""

    async def report(self, server: int, endpoint: Endpoint, tls: TlsSettings, seconds: float) -> ServerReport:
        """The load of a server, after the rest of it, because an old one closes the connection."""


class FreshReads:
    """Nothing is kept."""

    async def tree(self, store: ZooKeeperStore, root: str) -> TreeView | NoTree | BrokenTree:
        return tree_view(await probe(store, root))

    async def node(self, endpoint: Endpoint, params: StoreParams, tls: TlsSettings) -> NodeInspection:
        return await inspect_node(endpoint, params, tls)

    async def server(self, endpoint: Endpoint, tls: TlsSettings, seconds: float) -> ServerInspection:
        return await inspect_server(endpoint, tls, timeout_seconds=seconds)

    async def report(self, server: int, endpoint: Endpoint, tls: TlsSettings, seconds: float) -> ServerReport:
        (found,) = await read_reports([(server, endpoint)], LOAD, tls=tls, timeout_seconds=seconds)
        return found


_NO_VIEW = (ClusterNotFoundError, ClusterMismatchError, AdminError, SerializationError, NoNodeError)
"""What a view cannot be made of; `probe` says what is there instead."""


class WatchedTree:
    """Of one cluster, and kept as long as that: a watch cannot be taken back, so one view for each look would
    leave its watches, and itself, to the session for as long as nothing changes. The store is the
    caller's."""

    def __init__(self) -> None:
        self._watched: tuple[ZooKeeperStore, str, WatchedView] | None = None
        self._tree: tuple[ClusterView, TreeView | NoTree | BrokenTree] | None = None

    def doubt_everything(self) -> None:
        """A new look begins: nothing is taken from the one before."""
        if self._watched is not None:
            self._watched[2].doubt_everything()

    async def read(self, store: ZooKeeperStore, root: str) -> TreeView | NoTree | BrokenTree:
        """The same object while nothing has changed."""
        if self._watched is None or self._watched[0] is not store or self._watched[1] != root:
            self._watched, self._tree = (store, root, WatchedView(store, root)), None
        try:
            view = await self._watched[2].read()
        except _NO_VIEW:
            return tree_view(await probe(store, root))
        if self._tree is None or self._tree[0] is not view:
            self._tree = view, tree_view(view)
        return self._tree[1]


class KeptReads:
    """Of one cluster. Owner of its connections. Not for two passes at a time."""

    def __init__(
        self, tls: TlsSettings, seconds: float, clock: Callable[[], float], watched: WatchedTree
    ) -> None:
        """`seconds`: for one answer of a server. `clock`: seconds. Of `watched` everything is read anew."""
        self._servers = KeptConnections(tls, seconds)
        self._clock = clock
        self._nodes: dict[tuple[Endpoint, StoreParams], ObservedNode] = {}
        self._watched = watched
        self.tls = tls
        watched.doubt_everything()

    async def tree(self, store: ZooKeeperStore, root: str) -> TreeView | NoTree | BrokenTree:
        """The same object while nothing has changed."""
        return await self._watched.read(store, root)

    async def node(self, endpoint: Endpoint, params: StoreParams, tls: TlsSettings) -> NodeInspection:
        known = self._nodes.get((endpoint, params))
        if known is None:
            known = self._nodes[endpoint, params] = ObservedNode(endpoint, params, tls, self._clock)
        return await known.inspect()

    async def server(self, endpoint: Endpoint, tls: TlsSettings, seconds: float) -> ServerInspection:
        async with self._servers.to(endpoint) as connection:
            return await inspect_over(connection)

    async def report(self, server: int, endpoint: Endpoint, tls: TlsSettings, seconds: float) -> ServerReport:
        (found,) = await ask_reports([(server, endpoint)], LOAD, self._servers.to, timeout_seconds=seconds)
        return found

    def end_connections(self) -> None:
        """The next questions open new ones, which show the certificates that are in use by then."""
        self._servers.keep(set())
        for node in self._nodes.values():
            node.close()

    async def close(self) -> None:
        """End all connections, and wait until they are gone."""
        nodes = list(self._nodes.values())
        self._nodes.clear()
        await close_all(nodes)
        await self._servers.close()
