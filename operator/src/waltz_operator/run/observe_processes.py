"""One look at the processes of a cluster: every storage node by its admin port, every server by its client
port. Each answers in bounded time, or becomes an `Unknown` with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from waltz_admin.errors import AdminError
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_admin.tree import admin_endpoint
from waltz_cluster.serializers import StoreParams
from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.model.snapshot import KubeView, NodeView, ServerView, TreeView, Unknown
from waltz_operator.run.access import Access
from waltz_operator.run.kept_reads import Reads
from waltz_operator.run.read_waltz import load_of, node_view, server_view
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.types import Endpoint

K = TypeVar("K")
T = TypeVar("T")
Tree = TreeView | NoTree | BrokenTree | Unknown


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, and how many nodes and servers are asked at the same time."""

    zookeeper_seconds: float = 10.0
    process_seconds: float = 8.0
    concurrency: int = 16


class Processes:
    """Owner of nothing: `reads` says over which connections they are asked."""

    def __init__(self, wall_clock: Callable[[], float], limits: Limits) -> None:
        self._wall_clock = wall_clock
        self._limits = limits

    async def nodes(
        self, cluster: WaltzCluster, kube: KubeView | Unknown, tree: Tree, access: Access, reads: Reads
    ) -> dict[str, NodeView | Unknown]:
        """Of the specification, of the tree, and those that have left both and still run."""
        nodes = [*topology.storage_nodes(cluster), *_left(cluster, kube)]
        ports = {node.connect_string: node.admin_port for node in nodes}
        if not isinstance(tree, TreeView):
            return {node: Unknown("the cluster's key is not known") for node in ports}
        ports |= tree.admin_ports
        known = {*ports, *tree.groups, *tree.assignments}
        tls = access.tls
        if tls is None:
            return {node: Unknown("the operator has no certificate yet") for node in known}
        params = StoreParams(tree.cluster_key, tree.num_partitions)

        async def one(node: str) -> NodeView:
            if node not in ports:
                raise AdminError(f"the admin port of {node} is not known")
            found = await reads.node(admin_endpoint(node, ports[node]), params, tls)
            return node_view(found, self._wall_clock())

        return await self._ask_all(sorted(known), one)

    async def servers(
        self, tree: Tree, access: Access, reads: Reads, *, loads: bool
    ) -> dict[int, ServerView | Unknown]:
        """Of the tree. `loads`: they are asked for their load too."""
        if not isinstance(tree, TreeView):
            return {}
        tls = access.tls
        if tls is None:
            return {server: Unknown("the operator has no certificate yet") for server in tree.servers}

        async def one(server: int) -> ServerView:
            endpoint = Endpoint.parse(tree.servers[server])
            timeout = self._limits.process_seconds
            found = await reads.server(endpoint, tls, timeout)
            if not loads:
                return server_view(found, self._wall_clock())
            report = await reads.report(server, endpoint, tls, timeout / 2)
            return server_view(found, self._wall_clock(), load_of(report))

        return await self._ask_all(sorted(tree.servers), one)

    async def _ask_all(self, keys: Sequence[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | Unknown]:
        """Ask each, a bounded number at the same time, each in bounded time."""
        gate = asyncio.Semaphore(self._limits.concurrency)

        async def one(key: K) -> T | Unknown:
            async with gate:
                try:
                    async with asyncio.timeout(self._limits.process_seconds):
                        return await ask(key)
                except TimeoutError:
                    return Unknown(f"no answer within {self._limits.process_seconds:g} s")
                except (AdminError, WaltzProtocolError, OSError, ValueError) as error:
                    return Unknown(" ".join(str(error).split()) or type(error).__name__)

        return dict(zip(keys, await asyncio.gather(*(one(key) for key in keys)), strict=True))


def _left(cluster: WaltzCluster, kube: KubeView | Unknown) -> list[topology.NodeIdentity]:
    """Storage nodes that have a StatefulSet, in the specification or not."""
    if isinstance(kube, Unknown):
        return []
    known = {node.statefulset for node in topology.storage_nodes(cluster)}
    return [
        topology.node_identity(cluster, view.group, view.node, None)
        for name, view in kube.statefulsets.items()
        if view.group and view.node and name not in known
    ]
