"""One simulated TCP connection: two transports and, for each direction, what is on its way.

Bytes a program writes wait in its transport until the window has room (the peer's receive buffer plus the
wire), travel with the link's latency and wait at the other side until the program there reads. A process that
is paused or does not read so fills the window, then the writer's buffer. Bytes that nobody acknowledges for
the sender's TCP_USER_TIMEOUT end the connection on the sender's side only.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.kernel.process import Process, check_alive

if TYPE_CHECKING:
    from tests.sim.kernel.loop import SimHandle, SimLoop
    from tests.sim.kernel.network import Link, SimNetwork

WINDOW_BYTES = 256 * 1024
DEFAULT_USER_TIMEOUT_SECONDS = 900.0
"""How long Linux tries on its own."""


class SimSocket:
    """What protocols ask the socket of a transport for: its options."""

    family = socket.AF_INET

    def __init__(self, unacknowledged_seconds: Callable[[], float | None]) -> None:
        self.user_timeout_seconds = DEFAULT_USER_TIMEOUT_SECONDS
        self._unacknowledged_seconds = unacknowledged_seconds

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Only TCP_USER_TIMEOUT (milliseconds) has an effect."""
        if level == socket.IPPROTO_TCP and option == socket.TCP_USER_TIMEOUT and value:
            self.user_timeout_seconds = value / 1000

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """TCP_INFO: whether something waits for its acknowledgement, and for how many milliseconds."""
        if (level, option) != (socket.IPPROTO_TCP, socket.TCP_INFO):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        seconds = self._unacknowledged_seconds()
        words = [0] * 13
        if seconds is not None:
            words[4], words[12] = 1, int(seconds * 1000)
        return struct.pack("=8x13I", *words)[:size]


class Connection:
    """Both ends of one connection."""

    def __init__(
        self,
        loop: SimLoop,
        network: SimNetwork,
        number: int,
        client: Process,
        server: Process,
        there: Link,
        back: Link,
        client_port: int,
        server_port: int,
    ) -> None:
        self.number = number
        self.hosts = (client.host.name, server.host.name)
        self._network = network
        self.client = SimTransport(loop, self, client, there, (server.host.name, server_port))
        self.server = SimTransport(loop, self, server, back, (client.host.name, client_port))
        self.client.peer, self.server.peer = self.server, self.client

    def accepted(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """The listening process takes the connection."""
        if self.server.open:
            self.server.attach(factory())

    def reset(self) -> None:
        """Both ends get a reset now."""
        for end in (self.client, self.server):
            end.lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def ended(self) -> None:
        """One end is gone."""
        if not self.client.open and not self.server.open:
            self._network.forget(self)


class SimTransport(asyncio.Transport):
    """One end. `link` is the direction it sends in."""

    peer: SimTransport

    def __init__(
        self, loop: SimLoop, connection: Connection, process: Process, link: Link, peername: tuple[str, int]
    ) -> None:
        super().__init__({"peername": peername, "socket": SimSocket(self._unacknowledged_seconds)})
        self.open = True
        """The kernel still has this end."""
        self._loop, self._connection, self._process, self._link = loop, connection, process, link
        self._socket: SimSocket = self.get_extra_info("socket")
        self._protocol: Any = None
        self._buffered = False  # whether the protocol has a buffer of its own
        self._closing = False
        # sending
        self._unsent: deque[memoryview] = deque()  # what the window has no room for
        self._unsent_bytes = 0
        self._in_window = 0
        self._last_arrival = 0.0
        self._unacknowledged_since: float | None = None
        self._user_timer: SimHandle | None = None
        self._high, self._low = 64 * 1024, 16 * 1024
        self._writing_paused = False
        self._on_wire: deque[bytes | None] = deque()  # None = FIN
        # receiving
        self._received: deque[bytes | memoryview] = deque()
        self._fin_received = False
        self._reading_paused = False
        self._delivery_scheduled = False
        process.on_death.append(self._process_died)

    # -- life ---------------------------------------------------------------------------------------------

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Give it its protocol, which hears of the connection in the next turn, as asyncio does it."""
        self.set_protocol(protocol)
        self._soon(self._made)

    def _made(self) -> None:
        if self.open or self._closing:
            self._protocol.connection_made(self)
            self._schedule_delivery()

    def _soon(self, action: Callable[..., None], *args: object) -> None:
        self._loop.call_soon(action, *args, context=self._process.context)

    def lose(self, error: Exception | None) -> None:
        """The kernel gives up this end; the protocol hears of it."""
        if not self.open:
            return
        self.open, self._closing = False, True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._received.clear()
        if self._user_timer is not None:
            self._user_timer.cancel()
        if self._process_died in self._process.on_death:
            self._process.on_death.remove(self._process_died)
        self._loop.note(f"lost {self._connection.number} at {self._process.name} {type(error).__name__}")
        if self._protocol is not None:
            self._soon(self._protocol.connection_lost, error)
        self._connection.ended()

    def _process_died(self, silent: bool) -> None:
        if self.open:
            self._protocol = None
            if not silent:
                self._say_goodbye()
            self.lose(None)

    def _say_goodbye(self) -> None:
        """What is in the kernel still goes out; then FIN, or a reset that may overtake what the peer has not
        read."""
        if self._link.rng.random() < 0.5:
            self._send_wire(None)
        else:
            self._after_link(self._reset_peer)

    def _reset_peer(self) -> None:
        self.peer.lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _after_link(self, action: Callable[[], None]) -> None:
        """Do it when a packet without data has crossed the link; never, if the connection was lost to a power
        cut."""
        if self._link.blocked:
            self._link.waiting.append(lambda: self._after_link(action))
        else:
            self._loop.kernel_later(self._link.delay(0), action)

    # -- sending ------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes; they leave as the window allows."""
        check_alive()
        if self._closing or not data:
            return
        size = len(data)
        if not self._unsent and self._in_window + size <= WINDOW_BYTES:
            self._in_window += size
            self._send_wire(bytes(data))
            return
        self._unsent.append(memoryview(bytes(data)))
        self._unsent_bytes += size
        self._pump()
        if self._unsent_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _pump(self) -> None:
        while self._unsent and self._in_window < WINDOW_BYTES:
            first = self._unsent.popleft()
            room = WINDOW_BYTES - self._in_window
            if len(first) > room:
                self._unsent.appendleft(first[room:])
                first = first[:room]
            self._unsent_bytes -= len(first)
            self._in_window += len(first)
            self._send_wire(bytes(first))
        if self._writing_paused and self._unsent_bytes <= self._low and self._protocol is not None:
            self._writing_paused = False
            self._soon(self._protocol.resume_writing)
        if self._closing and self.open and not self._unsent:
            self._send_wire(None)
            self.lose(None)

    def _send_wire(self, data: bytes | None) -> None:
        self._on_wire.append(data)
        if data is not None and self._unacknowledged_since is None:
            self._unacknowledged_since = self._loop.now
            if self._user_timer is None:
                self._user_timer = self._loop.kernel_later(
                    self._socket.user_timeout_seconds, self._check_user_timeout
                )
        self._travel(0 if data is None else len(data))

    def _travel(self, size: int) -> None:
        link = self._link
        if link.blocked:
            link.waiting.append(lambda: self._travel(size))
            return
        now = self._loop.now
        arrival = now + link.delay(size)
        if arrival < self._last_arrival:
            arrival = self._last_arrival
        self._last_arrival = arrival
        self._loop.kernel_later(arrival - now, self._arrive, size)

    def _arrive(self, size: int) -> None:
        if self._link.blocked:
            self._link.waiting.append(lambda: self._travel(size))
            return
        if not self._on_wire:
            return
        data = self._on_wire.popleft()
        peer, link = self.peer, self._link
        if not peer._process.host.up:
            return  # a power cut: nobody acknowledges, nobody objects
        if not peer.open:
            if self.open and data is not None:
                peer._after_link(peer._reset_peer)
            return
        if data is None:
            peer._fin_received = True
        else:
            if link.cut_next and len(data) > 1:
                link.cut_next = False
                peer._received.append(memoryview(data)[: link.rng.randrange(1, len(data))])
                peer._schedule_delivery()
                self._loop.kernel_later(0.0, self._connection.reset)
                return
            peer._received.append(data)
            self._acknowledge(peer._link)
        peer._deliver_now()

    def _acknowledge(self, back: Link) -> None:
        if back.blocked:
            back.waiting.append(lambda: self._acknowledge(back))
        elif any(self._on_wire):
            self._unacknowledged_since = self._loop.now
        else:
            self._unacknowledged_since = None

    def _unacknowledged_seconds(self) -> float | None:
        since = self._unacknowledged_since
        return None if since is None else self._loop.now - since

    def _check_user_timeout(self) -> None:
        since, limit = self._unacknowledged_since, self._socket.user_timeout_seconds
        self._user_timer = None
        if since is None or not self.open:
            return
        if self._loop.now >= since + limit - 1e-9:
            self._loop.note(f"user timeout {self._connection.number}")
            self._after_link(self._reset_peer)
            self.lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        else:
            self._user_timer = self._loop.kernel_later(
                since + limit - self._loop.now, self._check_user_timeout
            )

    # -- receiving ----------------------------------------------------------------------------------------

    def _schedule_delivery(self) -> None:
        if self._delivery_scheduled or self._protocol is None or self._reading_paused or self._closing:
            return
        if self._received or self._fin_received:
            self._delivery_scheduled = True
            self._soon(self._deliver)

    def _deliver_now(self) -> None:
        """What has just arrived is read at once, unless something else has to be read before."""
        if self._delivery_scheduled or self._protocol is None or self._reading_paused or self._closing:
            return
        self._delivery_scheduled = True
        self._loop.run_in(self._process, self._deliver)

    def _deliver(self) -> None:
        """One read of the socket: usually all there is, sometimes a piece."""
        self._delivery_scheduled = False
        if self._reading_paused or self._closing:
            return
        if not self._received:
            if self._fin_received:
                self._fin_received = False
                if not self._protocol.eof_received():
                    self.close()
            return
        first = self._received.popleft()
        size = len(first)
        rng = self._link.rng
        if rng.random() < 0.1:
            taken = self._hand_over(memoryview(first)[: rng.randrange(1, size + 1)])
        else:
            taken = self._hand_over(first)
        if taken < size:
            self._received.appendleft(memoryview(first)[taken:])
        peer = self.peer
        peer._in_window -= taken
        if peer.open and (peer._unsent or peer._writing_paused or peer._closing):
            peer._pump()
        if self._received or self._fin_received:
            self._schedule_delivery()

    def _hand_over(self, data: bytes | memoryview) -> int:
        protocol = self._protocol
        if self._buffered:
            room = protocol.get_buffer(-1)
            size = len(data)
            if size > len(room):
                size = len(room)
                data = memoryview(data)[:size]
            room[:size] = data
            protocol.buffer_updated(size)
            return size
        protocol.data_received(bytes(data))
        return len(data)

    def pause_reading(self) -> None:
        """Let the bytes wait in the kernel."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Read on."""
        self._reading_paused = False
        self._schedule_delivery()

    def is_reading(self) -> bool:
        """Whether bytes are handed over."""
        return not self._reading_paused and not self._closing

    # -- the rest of asyncio.Transport --------------------------------------------------------------------

    def close(self) -> None:
        """Send what is queued, then FIN."""
        check_alive()
        if self._closing:
            return
        self._closing = True
        self._pump()

    def abort(self) -> None:
        """Drop what is queued; the kernel still delivers what it has, or resets."""
        check_alive()
        if self.open:
            self._say_goodbye()
            self.lose(None)

    def is_closing(self) -> bool:
        """After `close`, `abort` or the end of the connection."""
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high mark."""
        return (self._low, self._high)

    def get_write_buffer_size(self) -> int:
        """Bytes that have not left."""
        return self._unsent_bytes

    def get_protocol(self) -> Any:
        """The protocol."""
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        """Exchange the protocol."""
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol) or hasattr(protocol, "get_buffer")
