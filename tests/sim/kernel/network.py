"""The network between hosts: links with faults, listening ports, connecting.

A *link* is one direction between two hosts. It may be blocked (what is sent waits, as TCP keeps sending it
again, until the sender gives up), slow, or late. Connections are in `transport`. Nothing is ever delivered
out of order or twice: TCP sees to that; but a connection may end anywhere, in the middle of a frame too, and
one side may learn it long after the other.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.kernel.process import CURRENT, Process, check_alive
from tests.sim.kernel.transport import Connection, SimTransport

if TYPE_CHECKING:
    from tests.sim.kernel.loop import SimLoop

SYN_AGAIN_SECONDS = 1.0
"""A connection attempt that nothing answers is repeated that often, until the caller gives up."""

DEFAULT_LATENCY_SECONDS = (0.0001, 0.001)


class Link:
    """One direction between two hosts."""

    def __init__(self, loop: SimLoop, source: str, target: str, latency_seconds: tuple[float, float]) -> None:
        self.source, self.target = source, target
        self.latency_seconds = latency_seconds
        self.bytes_per_second: float | None = None
        self.blocked = False
        self.cut_next = False
        """The next piece of data on it loses its end, and the connection with it."""
        self.rng = loop.rng(f"link {source}>{target}")
        self.waiting: list[Callable[[], None]] = []
        """Called when the link is no longer blocked."""

    def delay(self, size: int) -> float:
        """Seconds for a packet of so many bytes, this time."""
        low, high = self.latency_seconds
        seconds = low + (high - low) * self.rng.random()
        if self.bytes_per_second:
            seconds += size / self.bytes_per_second
        return seconds


class SimServer:
    """A listening port, as much of `asyncio.Server` as is used."""

    def __init__(
        self, network: SimNetwork, process: Process, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.process, self.port, self.factory = process, port, factory
        self._network = network

    @property
    def sockets(self) -> list[SimServer]:
        """The one socket; it only knows its name."""
        return [self]

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return (self.process.host.name, self.port)

    def close(self) -> None:
        """Stop listening; accepted connections stay."""
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """Nothing to wait for."""


class SimNetwork:
    """All hosts, all links, all connections."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.default_latency_seconds = DEFAULT_LATENCY_SECONDS
        """One-way latency of links nobody has changed."""
        self._links: dict[tuple[str, str], Link] = {}
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._connections: dict[int, Connection] = {}
        self._numbers = itertools.count(1)
        self._ports = itertools.count(40_000)

    # -- faults -------------------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """The direction from one host to another."""
        key = (source, target)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(self._loop, source, target, self.default_latency_seconds)
        return link

    def block(self, source: str, target: str) -> None:
        """Nothing gets from one host to the other (one way) until `unblock`."""
        self._loop.note(f"block {source}>{target}")
        self.link(source, target).blocked = True

    def unblock(self, source: str, target: str) -> None:
        """What waited is delivered, unless its connection has died meanwhile."""
        link = self.link(source, target)
        if link.blocked:
            self._loop.note(f"unblock {source}>{target}")
            link.blocked = False
            waiting, link.waiting = link.waiting, []
            for action in waiting:
                action()

    def heal_all(self) -> None:
        """Every link is open and fast again."""
        for source, target in list(self._links):
            self.unblock(source, target)
            link = self._links[source, target]
            link.latency_seconds = self.default_latency_seconds
            link.bytes_per_second, link.cut_next = None, False

    def set_latency(self, source: str, target: str, low_seconds: float, high_seconds: float) -> None:
        """One-way latency, drawn anew for each packet; packets still arrive in order."""
        self.link(source, target).latency_seconds = (low_seconds, high_seconds)

    def set_bandwidth(self, source: str, target: str, bytes_per_second: float | None) -> None:
        """A slow link; `None` = without a limit."""
        self.link(source, target).bytes_per_second = bytes_per_second

    def cut_inside_next_frame(self, source: str, target: str) -> None:
        """Of the next data on this link a part arrives, then the connection is reset."""
        self.link(source, target).cut_next = True

    def reset(self, one: str, other: str) -> int:
        """Reset all connections between two hosts; how many there were."""
        found = [c for c in self._connections.values() if c.hosts in ((one, other), (other, one))]
        for connection in found:
            connection.reset()
        return len(found)

    # -- what the loop's create_server and create_connection do -------------------------------------------

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], port: int) -> SimServer:
        """Listen on the host of the running process."""
        check_alive()
        process = _running()
        port = port or next(self._ports)
        if (process.host.name, port) in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = SimServer(self, process, port, factory)
        self._servers[process.host.name, port] = server
        process.on_death.append(lambda _: server.close())
        return server

    def unlisten(self, server: SimServer) -> None:
        """The port is free again."""
        key = server.getsockname()
        if self._servers.get(key) is server:
            del self._servers[key]

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Connect from the host of the running process; waits as long as nothing answers."""
        check_alive()
        process = _running()
        there, back = self.link(process.host.name, host), self.link(host, process.host.name)
        await asyncio.sleep(there.delay(0))
        while there.blocked or back.blocked or not self._loop.host(host).up:
            await asyncio.sleep(SYN_AGAIN_SECONDS)
        await asyncio.sleep(back.delay(0))
        server = self._servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        number = next(self._numbers)
        connection = Connection(
            self._loop, self, number, process, server.process, there, back, next(self._ports), port
        )
        self._connections[number] = connection
        self._loop.note(f"connect {number} {process.host.name}>{host}:{port}")
        self._loop.call_soon(connection.accepted, server.factory, context=server.process.context)
        protocol = factory()
        connection.client.attach(protocol)
        return connection.client, protocol

    def forget(self, connection: Connection) -> None:
        """Both ends are gone."""
        self._connections.pop(connection.number, None)


def _running() -> Process:
    process = CURRENT.get()
    if process is None:
        raise RuntimeError("sockets belong to processes: use loop.spawn_process")
    return process
