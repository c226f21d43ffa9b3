"""The state of a cluster for those who ask again and again: the value of `waltz_admin.status.read_status` at
a small part of its price.

Watches say what has changed in ZooKeeper (`watched_view`), storage nodes report what has changed since the
last report (`observed_node`), connections stay open, and a partition of which nothing has changed keeps its
value (`status.Summary`). A cluster at rest costs one `sync`, a report of each node, and three short answers
of each server. Only where a copy is not current or a partition not open its server is asked for more
(`verify.with_reports`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.errors import StorageNodeError
from waltz_admin.kept_connections import KeptConnections
from waltz_admin.kept_reports import KeptReports
from waltz_admin.observed_node import ObservedNode, close_all
from waltz_admin.reports import ServerReport
from waltz_admin.status import ASSIGNMENT_SECONDS, Summary, with_own_certificate
from waltz_admin.storage_admin import NodeStatus
from waltz_admin.tree import admin_endpoint
from waltz_admin.verify import Answers, NodeAnswer, ask_server, with_reports
from waltz_admin.view import ClusterView
from waltz_admin.watched_view import WatchedView
from waltz_cluster.replica_rules import Standing
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

LATE_SECONDS = 60.0
"""So long the last report of a server counts in place of one that is late."""
_JUDGED = frozenset({Standing.CURRENT, Standing.UNREACHABLE})
"""Of such copies no server knows more."""


class ClusterObserver:
    """Owner of its watches and connections; the store is the caller's. Not for two tasks at a time."""

    def __init__(
        self,
        store: ZooKeeperStore,
        root: str,
        *,
        tls: TlsSettings,
        timeout_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """`clock`: seconds, never goes back."""
        self._view = WatchedView(store, root)
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._servers = KeptConnections(tls, timeout_seconds)
        self._reports = KeptReports(self._servers, timeout_seconds, clock)
        self._reported: dict[int, tuple[float, ServerReport]] = {}
        """Server id -> when it reported last, and what."""
        self._nodes: dict[str, ObservedNode] = {}
        self._summary = Summary()
        self._stale_since: float | None = None

    async def observe(self) -> ClusterStatus:
        """The state now. Who does not answer in time is shown so; errors of `read_status`."""
        view = await self._view.read()
        self._forget_others(view)
        servers, nodes = await asyncio.gather(
            asyncio.gather(
                *(ask_server(self._servers.to(one.endpoint), self._timeout_seconds) for one in view.servers)
            ),
            asyncio.gather(*(self._observe(view, node) for node in sorted(view.nodes.partitions))),
        )
        found = dict(zip(sorted(view.nodes.partitions), nodes, strict=True))
        answers = Answers(
            {server.server_id: answer for server, answer in zip(view.servers, servers, strict=True)},
            {node: answer for node, (_, answer) in found.items()},
        )
        statuses = {node: status for node, (status, _) in found.items() if status is not None}
        status = self._summary.make(view, answers, statuses)
        unwell = [
            p.partition_id
            for p in status.partitions
            if not p.healthy or not _JUDGED.issuperset(r.standing for r in p.replicas)
        ]
        if unwell:
            answers = await with_reports(view, answers, unwell, self._report)
        if answers.refused or answers.not_open:
            status = self._summary.make(view, answers, statuses)
        ahead = [p.partition_id for p in status.partitions if p.ahead]
        if ahead:  # or a session began after ZooKeeper was read: read again
            self._view.doubt(ahead)
            fresh = await self._view.read()
            status = self._summary.make(replace(view, metadata=fresh.metadata), answers, statuses)
        return with_own_certificate(self._settled(status), self._tls)

    async def _report(self, servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        """A server that has worked for others rests before it answers. What it reported last counts for a
        while when its answer is late, or a refused copy would be called behind for a moment."""
        found = await self._reports.ask(servers, parts)
        now = self._clock()
        kept = {one: last for one, last in self._reported.items() if now - last[0] < LATE_SECONDS}
        self._reported = kept | {one.server_id: (now, one) for one in found if not one.problem}
        return [self._reported.get(one.server_id, (now, one))[1] for one in found]

    def _settled(self, status: ClusterStatus) -> ClusterStatus:
        """Without an assignment that may be about to be made anew."""
        if status.left_out is None:
            self._stale_since = None
            return status
        now = self._clock()
        if self._stale_since is None:
            self._stale_since = now
        return status if now - self._stale_since >= ASSIGNMENT_SECONDS else replace(status, left_out=None)

    async def _observe(self, view: ClusterView, node: str) -> tuple[NodeStatus | None, NodeAnswer]:
        """None: its admin port is not known."""
        port = view.nodes.admin_ports.get(node)
        if port is None:
            return None, NodeAnswer()
        known = self._nodes.get(node)
        try:
            endpoint = admin_endpoint(node, port)
        except StorageNodeError as error:
            return NodeStatus(Endpoint(node, port), error=str(error)), NodeAnswer()
        if known is None or known.endpoint != endpoint:
            known = self._nodes[node] = ObservedNode(endpoint, view.store, self._tls, self._clock)
        return await known.observe(view.nodes.partitions[node], self._timeout_seconds)

    def _forget_others(self, view: ClusterView) -> None:
        """End connections to those who are no longer in ZooKeeper, or are at another address."""
        self._servers.keep({server.endpoint for server in view.servers})
        for node, known in list(self._nodes.items()):
            port = view.nodes.admin_ports.get(node)
            if port is None or admin_endpoint(node, port) != known.endpoint:
                self._nodes.pop(node).close()

    async def close(self) -> None:
        """End all connections, and wait until they are gone; watches end with the session of the store."""
        nodes = list(self._nodes.values())
        self._nodes.clear()
        await close_all(nodes)
        await self._servers.close()
