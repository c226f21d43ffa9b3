"""What keeps an HTTP port cheap whoever connects: a bound on connections and on waiting, and log lines
without stacks.

A connection that has not been answered for `SILENT_SECONDS` (no whole request came, or the answer is not
taken) is cut; one that rests after its answer is closed before. Above `MAX_CONNECTIONS` the one that has
waited longest gives way to a new one. Scrapers and health checks come back with a new connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from waltz_protocol.aio.peer_log import PeerLog

MAX_CONNECTIONS = 128
SILENT_SECONDS = 20.0
_LOOK_SECONDS = 1.0
_HANDSHAKE_SECONDS = 5.0
"""Of TLS: until it is done there is a connection, and nothing here that could be cut."""
_KEEP_SECONDS = 15.0
"""Of a connection that rests after an answer: it is closed before it would be cut as a silent one."""

_CROWDED = f"other peers wait for a connection, and {MAX_CONNECTIONS} are open"
_log = logging.getLogger(__name__)


class RequestLog(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's log: a request that is no HTTP, or whose sender has gone, is one line, not a stack trace."""

    def __init__(self, peer_log: PeerLog) -> None:
        super().__init__(_log, {})
        self._peer_log = peer_log

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        """Called by aiohttp with the exception, and mostly with the peer's address as the only argument."""
        error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]
        if isinstance(error, (HttpProcessingError, RequestPayloadError, ConnectionError)):
            peer = f"{args[0]}:?" if args else "?:?"
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._peer_log.warn(peer, f"bad HTTP request: {first[:200]}")
        else:
            super().exception(msg, *args, exc_info=exc_info, **kwargs)


class ConnectionGuard:
    """The connections of one HTTP port. `accept` is its protocol factory; `answered` is notified of every
    answer."""

    def __init__(self, server: web.Server, peer_log: PeerLog) -> None:
        self._server = server
        self._peer_log = peer_log
        self._loop = asyncio.get_running_loop()
        self._since: dict[Any, float] = {}
        """Connection -> when it was accepted or last answered; in that order."""
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)

    def accept(self) -> asyncio.Protocol:
        """A protocol for a new connection."""
        self._forget_the_gone()
        if len(self._since) >= MAX_CONNECTIONS:
            self._cut(next(iter(self._since)), _CROWDED)
        made: Callable[[], asyncio.Protocol] = self._server
        handler = made()
        self._since[handler] = self._loop.time()
        return handler

    def answered(self, handler: object) -> None:
        """An answer to this connection begins."""
        if self._since.pop(handler, None) is not None:
            self._since[handler] = self._loop.time()

    def close(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _forget_the_gone(self) -> None:
        if len(self._since) >= MAX_CONNECTIONS:
            known = set(self._server.connections)
            now = self._loop.time()
            for handler, since in list(self._since.items()):
                if (
                    handler not in known and now - since > _LOOK_SECONDS
                ):  # younger ones may not be connected yet
                    del self._since[handler]

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)
        connected = self._server.connections
        known, now = set(connected), self._loop.time()
        for handler in connected:
            self._since.setdefault(handler, now)  # of one whose TLS took longer than a look
        for handler in list(self._since)[: max(0, len(self._since) - MAX_CONNECTIONS)]:
            self._cut(handler, _CROWDED)
        for handler, since in list(self._since.items()):
            if now - since <= _LOOK_SECONDS:
                break
            if handler not in known:
                del self._since[handler]
            elif now - since > SILENT_SECONDS:
                self._cut(
                    handler, f"no complete request was sent, or no answer read, within {SILENT_SECONDS:g} s"
                )

    def _cut(self, handler: Any, reason: str) -> None:
        self._since.pop(handler, None)
        transport = handler.transport
        if transport is not None:
            address = transport.get_extra_info("peername") or ("?", "?")
            self._peer_log.warn(f"{address[0]}:{address[1]}", f"HTTP connection cut: {reason}")
            handler.force_close()
            transport.abort()


class HttpPort:
    """One HTTP port that serves an application under a guard. Owner: whoever calls `start` and `close`.

    `log` gets a line for each peer that is cut or whose request is no HTTP. `options` are those of aiohttp's
    runner. No answer names the library and its version to whoever asks.
    """

    def __init__(self, app: web.Application, log: logging.Logger, **options: Any) -> None:
        app.on_response_prepare.append(self._prepare)
        self._peer_log = PeerLog(log)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            # a scrape in progress may delay the end of the process by at most this much
            shutdown_timeout=1.0,
            lingering_time=0,
            keepalive_timeout=_KEEP_SECONDS,
            logger=RequestLog(self._peer_log),
            **options,
        )
        self._guard: ConnectionGuard | None = None
        self._server: asyncio.Server | None = None

    async def start(
        self,
        host: str = "",
        port: int = 0,
        *,
        sock: socket.socket | None = None,
        ssl: ssl.SSLContext | None = None,
    ) -> int:
        """Listen on `host` and `port` or on a socket that is bound; the bound port. OSError when the address
        cannot be bound: nothing is open then."""
        await self._runner.setup()
        if self._runner.server is None:
            raise RuntimeError("the HTTP server was not created")
        self._guard = ConnectionGuard(self._runner.server, self._peer_log)
        loop, accept = asyncio.get_running_loop(), self._guard.accept
        options: dict[str, Any] = {} if ssl is None else {"ssl_handshake_timeout": _HANDSHAKE_SECONDS}
        try:
            if sock is None:
                self._server = await loop.create_server(accept, host, port, ssl=ssl, **options)
            else:
                self._server = await loop.create_server(accept, sock=sock, ssl=ssl, **options)
        except OSError:
            await self.close()
            raise
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop serving; harmless when not started or already closed."""
        if self._guard is not None:
            self._guard.close()
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self._runner.cleanup()

    def answered(self, request: web.Request) -> None:
        """A stream has sent something: its connection is of use."""
        if self._guard is not None:
            self._guard.answered(request.protocol)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.pop("Server", None)
        self.answered(request)
