"""Accepting channels on a port: TLS, limits, who may come in, and one line in the log about who may not.

With TLS the listener accepts sockets itself, so that a peer counts from its first moment and not only after
TLS: what is in its handshake is bounded (`handshakes`) and counts as a connection.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from waltz_protocol.aio.channel import Channel, ChannelHandler, ChannelSettings
from waltz_protocol.aio.handshakes import Handshake, Handshakes
from waltz_protocol.aio.peer_log import PeerLog
from waltz_protocol.aio.receive_budget import ReceiveBudget
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.aio.tls import ServerTls, certificate_names
from waltz_protocol.aio.turns import Turns
from waltz_protocol.errors import ListenError, PortInUseError

__all__ = ["Limits", "ListenError", "Listener", "PortInUseError"]

_log = logging.getLogger(__name__)

DEFAULT_MAX_CONNECTIONS = 10_000
DEFAULT_MAX_HANDSHAKES = 256
_BACKLOG = 512
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.2
_TLS_HEAD_START_SECONDS = 0.005
"""TLS costs a millisecond or two of the loop: the next one starts when this one is done, or after so much
time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a listener lets in. `allowed_peers`: names of client certificates (None: any peer that gets
    through TLS)."""

    max_connections: int = DEFAULT_MAX_CONNECTIONS
    max_handshakes: int = DEFAULT_MAX_HANDSHAKES
    """Connections before the end of the exchange of Hellos; they count as connections too."""
    allowed_peers: Collection[str] | None = None
    allowed_peers_key: str = "allowedPeers"
    """The setting's name, for messages."""


class Listener:
    """One listening port and the channels accepted on it. `async with` closes it."""

    def __init__(self, budget: ReceiveBudget | None = None, turns: Turns | None = None) -> None:
        """Both may be shared by the listeners of a process; without a `budget` unfinished frames have no
        common bound."""
        self.budget = budget
        self.turns = turns if turns is not None else Turns()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._limits = Limits()
        self._handshakes = Handshakes(DEFAULT_MAX_HANDSHAKES)
        self._by_channel: dict[Channel, Handshake] = {}
        self._in_tls: set[asyncio.Task[None]] = set()
        self._channels: dict[Channel, None] = {}
        self._established = 0
        self._peer_log = PeerLog(_log)
        self._closing = False
        self._place = ""

    @property
    def channels(self) -> frozenset[Channel]:
        """The open channels."""
        return frozenset(self._channels)

    @property
    def handshakes(self) -> int:
        """Peers that are on their way in."""
        return len(self._handshakes)

    async def start(
        self,
        host: str,
        port: int,
        settings: ChannelSettings,
        handler_factory: Callable[[], ChannelHandler],
        tls: ServerTls | None,
        limits: Limits = Limits(),
    ) -> None:
        """Listen. `port` 0 takes a free one (see `port`).

        Raises PortInUseError or ListenError, one line with host and port.
        """
        if not 0 <= port < 65536:  # one kind of event loop would take it modulo 65536
            raise ListenError(f"cannot listen on {host}:{port}: not a port")
        self._limits = limits
        self._handshakes.limit = limits.max_handshakes

        def channel() -> Channel:
            return Channel(settings, handler_factory(), connecting=False, owner=self)

        try:
            if tls is None:
                loop = asyncio.get_running_loop()
                self._server = await loop.create_server(channel, host, port, backlog=_BACKLOG)
                self.port = self._server.sockets[0].getsockname()[1]
            else:
                self._sockets = await _bind(host, port)
                self.port = self._sockets[0].getsockname()[1]
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                raise PortInUseError(f"port {port} on {host} is already in use") from None
            raise ListenError(f"cannot listen on {host}:{port}: {e.strerror or e}") from None
        self._place = f"{host}:{self.port}"
        if tls is not None:
            secure = partial(self._secure, channel, tls, settings)
            self._accepting = [spawn(self._accept(s, secure), f"accept {self._place}") for s in self._sockets]

    async def close(self, reason: str = "the listener is shutting down") -> None:
        """Stop listening, close every channel gracefully, wait until they are gone. Idempotent.

        Channels have their own limit (`close_timeout_seconds`) after which they are cut; handshakes are cut
        at once.
        """
        self._closing = True
        server, self._server = self._server, None
        if server is not None:
            server.close()
        accepting, self._accepting = self._accepting, []
        for task in accepting:
            task.cancel()
        if accepting:
            await asyncio.wait(accepting)
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()
        for handshake in self._handshakes.all():
            handshake.cut(reason)
        if self._in_tls:
            await asyncio.wait(self._in_tls)
        channels = list(self._channels)
        for channel in channels:
            channel.close(reason)
        for channel in channels:
            await channel.wait_closed()
        if server is not None:
            await server.wait_closed()

    async def __aenter__(self) -> "Listener":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- TLS -------------------------------------------------------------------------------------------------

    async def _accept(
        self, listening: socket.socket, secure: Callable[[socket.socket, Handshake], Any]
    ) -> None:
        """Take connections as they come; while the process is out of files the peers wait in the kernel's
        queue."""
        loop = asyncio.get_running_loop()
        problem: str | None = None  # named in the log
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    continue  # the peer has gone again
                if problem != error.strerror:
                    problem = error.strerror
                    _log.warning("%s: cannot accept connections for now: %s", self._place, problem)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if problem is not None:
                problem = None
                _log.info("%s: accepts connections again", self._place)
            handshake = Handshake(f"{address[0]}:{address[1]}", partial(_shut, sock))
            if not self._admit(handshake):
                sock.close()
                continue
            task = spawn(secure(sock, handshake), f"TLS with {handshake.peer}")
            self._in_tls.add(task)
            task.add_done_callback(self._in_tls.discard)
            await asyncio.wait((task,), timeout=_TLS_HEAD_START_SECONDS)

    async def _secure(
        self,
        make_channel: Callable[[], Channel],
        tls: ServerTls,
        settings: ChannelSettings,
        sock: socket.socket,
        handshake: Handshake,
    ) -> None:
        """TLS with one peer; the channel takes over its place among the handshakes when it is done."""
        made: list[Channel] = []

        def channel() -> Channel:
            made.append(make_channel())
            self._by_channel[made[0]] = handshake
            return made[0]

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                channel,
                sock,
                ssl=tls,
                ssl_handshake_timeout=settings.handshake_timeout_seconds,
                ssl_shutdown_timeout=settings.close_timeout_seconds,
            )
        except OSError as error:
            self._handshakes.discard(handshake)
            for lost in made:
                self._by_channel.pop(lost, None)
            text = _tls_problem(error)
            if text is not None and not self._closing:
                self._peer_log.warn(handshake.peer, f"the TLS handshake failed: {text}")

    # -- who is let in ---------------------------------------------------------------------------------------

    def _admit(self, handshake: Handshake) -> bool:
        """Room for one more? Handshakes that take too long make room; established connections never do."""
        limits, handshakes = self._limits, self._handshakes
        in_use = self._established + len(handshakes)
        if in_use >= limits.max_connections and not len(handshakes):
            self._peer_log.warn(handshake.peer, f"refused: more than {limits.max_connections} connections")
            return False
        if in_use >= limits.max_connections or len(handshakes) >= limits.max_handshakes:
            victim = handshakes.victim()
            if victim is not None:
                handshakes.discard(victim)
                text = f"cut in its handshake: others want to come in, and {len(handshakes)} more have not finished theirs"
                self._peer_log.warn(victim.peer, text)
                victim.cut(text)
        handshakes.add(handshake)
        return True

    def opened(self, channel: Channel) -> str | None:
        """Called by a channel when its transport is up: TCP, or TLS."""
        if self._closing:
            return "the listener is shutting down"
        handshake = self._by_channel.get(channel)
        if handshake is None:
            handshake = Handshake(channel.peer, channel.abort)
            if not self._admit(handshake):
                return f"more than {self._limits.max_connections} connections"
            self._by_channel[channel] = handshake
        else:
            handshake.cut = channel.abort
        self._channels[channel] = None
        return self._stranger(channel)

    def _stranger(self, channel: Channel) -> str | None:
        """Why the peer's certificate does not let it in."""
        allowed = self._limits.allowed_peers
        if allowed is None:
            return None
        names = certificate_names(channel.extra("peercert"))
        if any(name in allowed for name in names):
            return None
        shown = ", ".join(names) or "no name"
        text = f"refused: its certificate ({shown}) is not in {self._limits.allowed_peers_key}"
        self._peer_log.warn(channel.peer, text)
        return text

    def greeted(self, channel: Channel) -> None:
        """Called by a channel when the Hellos are exchanged: the peer is in."""
        self._established += 1
        handshake = self._by_channel.pop(channel, None)
        if handshake is not None:
            self._handshakes.discard(handshake)

    def lost(self, channel: Channel) -> None:
        """Called by a channel when its transport is gone."""
        handshake = self._by_channel.pop(channel, None)
        if handshake is not None:
            self._handshakes.discard(handshake)
        if self._channels.pop(channel, False) is not None:
            return  # it never got in
        if channel.greeted:
            self._established -= 1
        elif not channel.received_nothing and not self._closing:
            self._peer_log.warn(channel.peer, f"no handshake: {channel.close_reason}")

    def warn(self, channel: Channel, text: str) -> None:
        """One line about a peer, unless its address had too many lately."""
        self._peer_log.warn(channel.peer, text)


async def _bind(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of `host`; empty: every address of both families. OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setblocking(False)
            sock.bind(address)
            sock.listen(_BACKLOG)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _shut(sock: socket.socket, _reason: str) -> None:
    """End a connection whose socket belongs to a transport: TLS fails at once."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended on its own


def _tls_problem(error: OSError) -> str | None:
    """For people; None when the peer just went away, as a port check does."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, ConnectionAbortedError):
        return str(error) or "it took too long"
    if isinstance(error, TimeoutError):
        return "it took too long"
    return None
