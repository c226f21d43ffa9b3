"""Are two names of storage nodes those of one node? Asked before a node is added, and before the copies of
all nodes are counted.

Two names of one node would be counted as two replicas on two disks: the proof for the removal of a copy would
count that very copy, and a tree would be made again without a node that nobody named. A node of this release
states the id of its process in the Hello of both its ports (docs/protocol.md). The connections that are
compared are open at the same time, so no process was exchanged for another one in between, and different ids
are different nodes. Where one side has no id, since it does not answer or is of an older release, the
addresses of the names decide: two processes cannot share a port.

Nodes that are known are compared again with each proof, by its own connections (`safety.AdminPortProbe`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias
from uuid import UUID

from waltz_admin.errors import StorageNodeError
from waltz_admin.tree import NodeMaps, admin_endpoint, parse_connect_string, read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.storage_connection import StorageAdminConnection, StorageConnection
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.types import Endpoint

ANSWER_SECONDS = 10.0
"""For the lookup of a name, and for opening a connection."""
_Connection: TypeAlias = StorageConnection | StorageAdminConnection
Identity: TypeAlias = UUID | str


def identity(connection: _Connection) -> Identity:
    """What distinguishes the node at the other end from all others that answer at this time: the id of its
    process, and of a node of an older release, which states none, the address that is connected to."""
    return connection.process_id or connection.peer


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """What distinguishes a storage node from others: addresses and ports of both its ports, and the ids of
    the processes that answered there."""

    addresses: frozenset[tuple[str, int]]
    ids: frozenset[UUID]
    answers: bool = False
    """Whether its admin port answered."""

    def is_same(self, other: NodeProcess) -> bool:
        """Whether both are one node, as far as it can be known."""
        if self.ids and other.ids:
            return bool(self.ids & other.ids)
        return bool(self.addresses & other.addresses)


class Names:
    """The names under which nodes have answered so far."""

    def __init__(self) -> None:
        self._names: dict[Identity, str] = {}

    def check(self, connect_string: str, connection: _Connection) -> None:
        """StorageNodeError when the node at the other end has answered under another name before."""
        known = self._names.setdefault(identity(connection), connect_string)
        if known != connect_string:
            raise _one_node(connect_string, known)


def _one_node(name: str, other: str) -> StorageNodeError:
    return StorageNodeError(
        f"{name} and {other} are one storage node under two names, whose copies cannot be counted twice: unassign the "
        "partitions from one of the names, then remove that storage node; in `waltz zk rebuild` name the node once"
    )


async def check_new_node(
    store: ZooKeeperStore, root: str, tls: TlsSettings, connect_string: str, admin_port: int
) -> None:
    """StorageNodeError when the node is one of those that are known under another name, or when its storage
    port and its admin port belong to two processes. None of the nodes needs to answer."""
    _, params = await read_params(store, root)
    maps = await read_maps(store, ClusterPaths(root))
    ports = {node: maps.admin_ports.get(node) for node in maps.names} | {connect_string: admin_port}
    found = await _processes(ports, params, tls)
    this = found.pop(connect_string)
    _check_ports(connect_string, admin_port, this)
    for node, other in found.items():
        if this.is_same(other):
            raise StorageNodeError(
                f"{connect_string} with admin port {admin_port} is the storage node {node}, which is known "
                "already: under two names it would be counted as two replicas. Pass another node; to change the "
                "name of a node, replace it with one that has a directory of its own"
            )


async def check_distinct(maps: NodeMaps, params: StoreParams, tls: TlsSettings) -> frozenset[str]:
    """The nodes that answered, each of which is another one. StorageNodeError when two of those that are
    known are one node under two names, or when the two ports of one belong to two processes."""
    found = await _processes({node: maps.admin_ports.get(node) for node in maps.names}, params, tls)
    for node, process in found.items():
        _check_ports(node, maps.admin_ports.get(node), process)
    for (name, one), (node, other) in combinations(found.items(), 2):
        if one.is_same(other):
            raise _one_node(node, name)
    return frozenset(node for node, process in found.items() if process.answers)


def _check_ports(connect_string: str, admin_port: int | None, process: NodeProcess) -> None:
    if len(process.ids) > 1:
        raise StorageNodeError(
            f"the storage port of {connect_string} and the admin port {admin_port} belong to two processes: "
            "give the admin port of the node that has this storage port (one that ZooKeeper knows is removed and added again)"
        )


async def _processes(
    admin_ports: Mapping[str, int | None], params: StoreParams, tls: TlsSettings
) -> dict[str, NodeProcess]:
    """What distinguishes each of these nodes, whose connections are open at the same time."""
    opening = _Opening(params, tls)
    try:
        opened = await asyncio.gather(
            *(opening.storage(node) for node in admin_ports),
            *(opening.admin(node, port) for node, port in admin_ports.items()),
        )
        ids = [_process_ids(one) for one in opened]  # while all are open
        answers = [one is not None and not one.closed for one in opened[len(admin_ports) :]]
    finally:
        opening.close()
    addresses = await asyncio.gather(*(_addresses(node, port) for node, port in admin_ports.items()))
    both = zip(ids, ids[len(admin_ports) :], strict=False)
    return {
        node: NodeProcess(where, storage | admin, answered)
        for node, where, (storage, admin), answered in zip(admin_ports, addresses, both, answers, strict=True)
    }


class _Opening:
    """Opens connections, and owns them until `close`. A port that is not known or can be nobody's, or at
    which nobody answers in time, gives None; so do all where no TLS is set up: a node can be added with
    access to ZooKeeper alone."""

    def __init__(self, params: StoreParams, tls: TlsSettings) -> None:
        self._params = params
        self._tls = tls
        self._opened: list[_Connection] = []

    async def storage(self, node: str) -> _Connection | None:
        with suppress(StorageNodeError):
            return await self._open(StorageConnection, parse_connect_string(node))
        return None

    async def admin(self, node: str, port: int | None) -> _Connection | None:
        with suppress(StorageNodeError):
            return (
                None if port is None else await self._open(StorageAdminConnection, admin_endpoint(node, port))
            )
        return None

    async def _open(self, kind: type[_Connection], endpoint: Endpoint) -> _Connection | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = await kind.open(
                    endpoint,
                    cluster_key=self._params.cluster_key,
                    num_partitions=self._params.num_partitions,
                    tls=client_context(self._tls),
                )
        except (WaltzProtocolError, OSError, TimeoutError):
            return None
        self._opened.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


def _process_ids(connection: _Connection | None) -> frozenset[UUID]:
    """That of the process at the other end, if it is still there."""
    if connection is None or connection.closed or connection.process_id is None:
        return frozenset()
    return frozenset({connection.process_id})


async def _addresses(node: str, admin_port: int | None) -> frozenset[tuple[str, int]]:
    """All that its name is resolved to, with both ports; the name itself where it cannot be resolved. None
    where it is no host:port."""
    try:
        host, storage_port = parse_connect_string(node)
    except StorageNodeError:
        return frozenset()
    host = host.removeprefix("[").removesuffix("]").lower()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, storage_port, type=socket.SOCK_STREAM)
        addresses = {str(address[0]) for *_, address in found}
    except (OSError, TimeoutError, ValueError):
        addresses = {host}
    ports = {storage_port} if admin_port is None else {storage_port, admin_port}
    return frozenset((address, port) for address in addresses for port in ports)
