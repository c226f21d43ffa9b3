"""Accepting channels on a port."""

import asyncio
import errno
import logging
from collections.abc import Callable

from waltz_protocol.aio.channel import Channel, ChannelHandler, ChannelSettings
from waltz_protocol.aio.tls import ServerTls
from waltz_protocol.errors import ListenError, PortInUseError

__all__ = ["ListenError", "Listener", "PortInUseError"]

_log = logging.getLogger(__name__)

DEFAULT_MAX_CONNECTIONS = 10_000


class Listener:
    """One listening port and the channels accepted on it. `async with` closes it."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._channels: set[Channel] = set()
        self._max_connections = DEFAULT_MAX_CONNECTIONS
        self._closing = False
        self._host = ""
        self.port = 0

    @property
    def channels(self) -> frozenset[Channel]:
        """The open channels."""
        return frozenset(self._channels)

    async def start(
        self,
        host: str,
        port: int,
        settings: ChannelSettings,
        handler_factory: Callable[[], ChannelHandler],
        tls: ServerTls | None,
        max_connections: int = DEFAULT_MAX_CONNECTIONS,
    ) -> None:
        """Listen. `port` 0 takes a free one (see `port`). Above `max_connections` new ones are cut.

        Raises PortInUseError or ListenError, one line with host and port.
        """
        if not 0 <= port < 65536:  # one kind of event loop would take it modulo 65536
            raise ListenError(f"cannot listen on {host}:{port}: not a port")
        loop = asyncio.get_running_loop()
        self._max_connections = max_connections
        self._host = host

        def accept() -> Channel:
            return Channel(settings, handler_factory(), connecting=False, owner=self)

        try:
            if tls is None:
                self._server = await loop.create_server(accept, host, port, backlog=512)
            else:
                self._server = await loop.create_server(
                    accept,
                    host,
                    port,
                    backlog=512,
                    ssl=tls,
                    ssl_handshake_timeout=settings.handshake_timeout_seconds,
                    ssl_shutdown_timeout=settings.close_timeout_seconds,
                )
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                raise PortInUseError(f"port {port} on {host} is already in use") from None
            raise ListenError(f"cannot listen on {host}:{port}: {e.strerror or e}") from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self, reason: str = "the listener is shutting down") -> None:
        """Stop listening, close every channel gracefully, wait until they are gone. Idempotent.

        Channels have their own limit (`close_timeout_seconds`) after which they are cut.
        """
        self._closing = True
        server, self._server = self._server, None
        if server is not None:
            server.close()
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

    def opened(self, channel: Channel) -> str | None:
        """Called by a channel when its transport is up."""
        if self._closing:
            return "the listener is shutting down"
        if len(self._channels) >= self._max_connections:
            _log.warning("%s:%d: more than %d connections", self._host, self.port, self._max_connections)
            return f"more than {self._max_connections} connections"
        self._channels.add(channel)
        return None

    def lost(self, channel: Channel) -> None:
        """Called by a channel when its transport is gone."""
        self._channels.discard(channel)
