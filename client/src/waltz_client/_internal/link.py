"""A link keeps one connection to one server alive: connect, hand it over, wait for its end, back off, again.

Used twice per server, for the stream and for RPC. The session object (one per TCP connection) is the channel
handler and does the talking; the link only replaces it. Owner of `session`: the link's task.

Reconnecting: at once after a connection that had lived a while, otherwise with a growing, spread delay,
whatever the reason of the failure (TCP, TLS or Hello), so that a server that refuses us is not hammered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from waltz_protocol.aio.channel import Channel, ChannelHandler, ChannelSettings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.tls import ClientTls
from waltz_protocol.backoff import Backoff, Random
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.messages.client import CloseNotice
from waltz_protocol.types import Endpoint

log = logging.getLogger(__name__)

HEALTHY_SECONDS = 1.0
"""A connection that lived this long is replaced at once."""


class Session(ChannelHandler, Protocol):
    """What a link needs of its session: a channel handler that is informed when the channel is ready to
    use."""

    def established(self, channel: Channel) -> None:
        """The handshake is done; the session may send."""
        ...


class Connector(Protocol):
    """How a connection is made: `waltz_protocol.aio.connector.connect`, or a substitute for it."""

    async def __call__(
        self,
        endpoint: Endpoint,
        settings: ChannelSettings,
        handler: ChannelHandler,
        tls: ClientTls | None,
        connect_timeout_seconds: float,
    ) -> Channel:
        """A channel that is ready; WaltzProtocolError or OSError."""
        ...


class LinkObserver(Protocol):
    """Who is informed of what happens to connections: see `waltz_client.observer`."""

    def connected(self, server: Endpoint) -> None:
        """It is ready."""
        ...

    def disconnected(self, server: Endpoint, reason: str) -> None:
        """It has ended."""
        ...

    def connect_failed(self, server: Endpoint, reason: str) -> None:
        """It could not be made."""
        ...


def close_noticed(channel: Channel, notice: CloseNotice) -> None:
    """The server's last word on a connection: it is the reason that logs and observers hear of."""
    channel.close(f"the server closed the connection: {notice.text or 'no reason is given'}")


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Timeouts and TLS of all links of a client, and how connections are made."""

    channel: ChannelSettings
    tls: ClientTls | None
    connect_timeout_seconds: float
    initial_backoff_seconds: float = 0.05
    max_backoff_seconds: float = 1.0
    connect: Connector = connect

    def limited(self, newest: int) -> LinkSettings:
        """The same, with versions of the protocol up to `newest`."""
        versions = tuple(version for version in self.channel.versions if version <= newest)
        return replace(self, channel=replace(self.channel, versions=versions))


class Link:
    """One connection to one endpoint, replaced for as long as `run` runs."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: LinkSettings,
        new_session: Callable[[], Session],
        random: Random,
        observer: LinkObserver | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.last_error: str | None = None
        self._about = {"server": str(endpoint)}
        self._settings = settings
        self._new_session = new_session
        self._observer = observer
        self._backoff = Backoff(settings.initial_backoff_seconds, settings.max_backoff_seconds, random)

    async def run(self) -> None:
        """Keep the connection until cancelled; on cancellation the connection is closed."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            established = await self._one_connection()
            if established and loop.time() - started >= HEALTHY_SECONDS:
                self._backoff.reset()
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(self._backoff.next_seconds())

    async def _one_connection(self) -> bool:
        session = self._new_session()
        settings = self._settings
        try:
            channel = await settings.connect(
                self.endpoint,
                settings.channel,
                session,
                settings.tls,
                settings.connect_timeout_seconds,
            )
        except Exception as error:
            self._connect_failed(error)
            return False
        self.last_error = None
        if self._observer is not None:
            self._observer.connected(self.endpoint)
        try:
            try:
                session.established(channel)
            except Exception:  # a defect, and no reason to end the link: everything else waits for it
                log.exception(
                    "server %s: a new connection could not be used", self.endpoint, extra=self._about
                )
                return False
            await channel.wait_closed()
        finally:
            channel.close("the client closed the connection")
            if self._observer is not None:
                self._observer.disconnected(self.endpoint, str(channel.close_reason))
        log.info(
            "server %s: the connection ended: %s", self.endpoint, channel.close_reason, extra=self._about
        )
        return True

    def _connect_failed(self, error: Exception) -> None:
        """Also by a defect, which is no reason to end the link; it is logged with its stack trace."""
        if self.last_error != str(error):
            defect = None if isinstance(error, (WaltzProtocolError, OSError)) else error
            log.warning(
                "server %s: %s; trying again", self.endpoint, error, extra=self._about, exc_info=defect
            )
            if self._observer is not None:
                self._observer.connect_failed(self.endpoint, str(error))
        self.last_error = str(error)
