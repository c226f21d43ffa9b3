"""A TCP proxy that misbehaves on demand, between all roles of a cluster.

One listener is in front of each port; who connected is found out by `identify`, so every pair of roles
can be treated apart. Faults are `Rule`s: while one is in force it holds for every connection it matches,
those made later included. What is blocked is held and delivered late when the rule goes, as TCP does after a
short partition; `reset` is what a long one does.
"""

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 65_536
_SLOW_PARTS_PER_SECOND = 10
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends RST


class Direction(Enum):
    """Which half of a connection: requests, or answers."""

    TO_TARGET = "towards"
    FROM_TARGET = "back from"


BOTH = frozenset(Direction)


@dataclass(frozen=True, eq=False)
class Rule:
    """What holds for the connections from `source` to `target`; "*" is every role, "server-*" every server.

    `latency_s` is added to each piece; `bytes_per_s` 0 means no limit.
    """

    source: str
    target: str
    blocked: frozenset[Direction] = frozenset()
    latency_s: float = 0.0
    bytes_per_s: int = 0

    def matches(self, source: str, target: str) -> bool:
        return _matches(self.source, source) and _matches(self.target, target)


def _matches(pattern: str, role: str) -> bool:
    return role.startswith(pattern[:-1]) if pattern.endswith("*") else role == pattern


class _Connection:
    """Two sockets that belong together. `cut` makes the next piece in either direction a broken one, and the
    last."""

    def __init__(self, source: str, target: str, sockets: list[socket.socket]) -> None:
        self.source = source
        self.target = target
        self.cut = False
        self._sockets = sockets
        self._writers: list[asyncio.StreamWriter] = []

    def add(self, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        found: socket.socket = writer.get_extra_info("socket")
        self._sockets.append(found)

    def reset(self) -> None:
        """Both peers see "connection reset"."""
        for each in self._sockets:
            if each.fileno() >= 0:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        for writer in self._writers:
            writer.transport.abort()

    def end(self) -> None:
        """Both peers see the end of the stream, after what was sent."""
        for writer in self._writers:
            writer.close()


class FaultProxy:
    """All listeners, connections and rules. Owner: the nemesis, on its loop."""

    def __init__(self, identify: Callable[[int, int], str], rng: random.Random) -> None:
        """`identify(source port, proxy port)` names the role that connected."""
        self._identify = identify
        self._rng = rng
        self._rules: list[Rule] = []
        self._changed = asyncio.Event()
        self._connections: dict[_Connection, None] = {}
        self._handlers: dict[asyncio.Task[None], None] = {}
        self._servers: list[asyncio.Server] = []
        self.pairs: Counter[tuple[str, str]] = Counter()
        """Connections made so far by (source, target)."""

    # -- life ------------------------------------------------------------------------------------------------

    async def listen(self, target: str, port: int, real_port: Callable[[], int]) -> None:
        """Listen in front of a port of `target`; the real one is asked for at every connection."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._handlers[task] = None
            try:
                await self._serve(target, port, real_port, reader, writer)
            except asyncio.CancelledError:
                pass  # close() ended it; nobody waits for the tasks of asyncio.start_server
            finally:
                del self._handlers[task]

        self._servers.append(await asyncio.start_server(accepted, LOOPBACK, port))

    async def close(self) -> None:
        """End everything."""
        for server in self._servers:
            server.close()
        for task in list(self._handlers):
            task.cancel()
        while self._handlers:
            await asyncio.sleep(0.01)
        for server in self._servers:
            await server.wait_closed()

    # -- faults ----------------------------------------------------------------------------------------------

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)
        self._announce()

    def remove(self, rule: Rule) -> None:
        """What was held is delivered now."""
        if rule in self._rules:
            self._rules.remove(rule)
            self._announce()

    def heal(self) -> None:
        """No rule is left, and no cut that did not happen."""
        self._rules.clear()
        for connection in self._connections:
            connection.cut = False
        self._announce()

    def reset(self, source: str, target: str) -> int:
        """Reset the connections there are; how many."""
        found = self._between(source, target)
        for connection in found:
            connection.reset()
        return len(found)

    def cut(self, source: str, target: str) -> int:
        """Let each connection there is end in the middle of the next piece that passes; how many."""
        found = self._between(source, target)
        for connection in found:
            connection.cut = True
        return len(found)

    # -- inside ----------------------------------------------------------------------------------------------

    def _between(self, source: str, target: str) -> list[_Connection]:
        return [
            each
            for each in self._connections
            if _matches(source, each.source) and _matches(target, each.target)
        ]

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(
        self,
        target: str,
        port: int,
        real_port: Callable[[], int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        peer = writer.get_extra_info("peername")
        source = self._identify(peer[1], port) if peer else "unknown"
        connection = _Connection(source, target, [])
        connection.add(writer)
        self._connections[connection] = None
        self.pairs[source, target] += 1
        try:
            # A connection begins only when both ways are open: half of a handshake reaches nobody.
            await self._open(connection, Direction.TO_TARGET)
            await self._open(connection, Direction.FROM_TARGET)
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, real_port())
            connection.add(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(connection, Direction.TO_TARGET, reader, far_writer))
                group.create_task(self._pass(connection, Direction.FROM_TARGET, far_reader, writer))
        except (OSError, ExceptionGroup):
            connection.reset()  # nobody listens, or one side went away: the other one shall notice
        finally:
            connection.end()
            del self._connections[connection]

    async def _open(self, connection: _Connection, direction: Direction) -> tuple[float, int]:
        """Wait until nothing blocks this way; latency in seconds and bytes per second (0 = no limit) that
        hold now."""
        while True:
            rules = [each for each in self._rules if each.matches(connection.source, connection.target)]
            if not any(direction in each.blocked for each in rules):
                latency = sum(each.latency_s for each in rules)
                return latency, min((each.bytes_per_s for each in rules if each.bytes_per_s), default=0)
            await self._changed.wait()

    async def _pass(
        self,
        connection: _Connection,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Copy one way until its end. OSError when either side breaks or the connection was cut."""
        while True:
            _, speed = await self._open(connection, direction)
            data = await reader.read(max(1, speed // _SLOW_PARTS_PER_SECOND) if speed else _CHUNK_BYTES)
            latency, speed = await self._open(connection, direction)
            seconds = latency + (len(data) / speed if speed else 0.0)
            if seconds:
                await asyncio.sleep(seconds)
            if connection.cut and len(data) > 1:
                writer.write(data[: self._rng.randrange(1, len(data))])
                connection.end()
                return
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
