"""Connections to servers that stay open between questions, for those who ask again and again: a handshake
costs more than an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from waltz_admin.server_admin import ServerAdminConnection
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint


class KeptConnections:
    """Owner of at most one connection per server. A connection on which anything went wrong is ended: an
    answer that comes late must not be taken for that to a later question."""

    def __init__(self, tls: TlsSettings, timeout_seconds: float) -> None:
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._open: dict[Endpoint, ServerAdminConnection] = {}

    @asynccontextmanager
    async def to(self, endpoint: Endpoint) -> AsyncIterator[ServerAdminConnection]:
        """The connection to this server, opened if there is none; UnreachableError. A second user
        at the same time has one of its own, of which the one that is given back last is kept."""
        connection = self._open.pop(endpoint, None)
        if connection is None or connection.closed:
            connection = ServerAdminConnection(endpoint, self._tls, timeout_seconds=self._timeout_seconds)
            await connection.__aenter__()
        try:
            yield connection
        except BaseException:
            connection.end()
            raise
        other = self._open.get(endpoint)
        if other is not None:
            other.end()
        self._open[endpoint] = connection

    def keep(self, endpoints: set[Endpoint]) -> None:
        """End the connections to all others."""
        for endpoint in [one for one in self._open if one not in endpoints]:
            self._open.pop(endpoint).end()

    async def close(self) -> None:
        """End all, and wait until they are gone."""
        ended = list(self._open.values())
        self.keep(set())
        for connection in ended:
            await connection.wait_closed()
