"""The operator's HTTP port: `/healthz` (alive), `/readyz` (holds the Lease and watches), `/metrics`.

Alive is the process, never an object: its loop (it answers), the thread of the watches, and the workers
(passes end). What one object makes fail, and however long, is in `waltz_operator_reconcile_age_seconds` and
in its status: a new process would fail in the same way, and stop for all others meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from waltz_operator.run.metrics import OperatorMetrics
from waltz_runtime.errors import HttpBindError
from waltz_runtime.http_guard import HttpPort

Check = Callable[[], str]
"""What is wrong, in one line; empty when nothing is."""
_log = logging.getLogger(__name__)


def _everywhere(port: int) -> socket.socket:
    """One socket for both IP families; for IPv4 alone where the machine, or the pod, has no IPv6."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return socket.create_server(("", port))


class HealthServer:
    """Owner: the main coroutine, which calls `start` and `close`."""

    def __init__(self, metrics: OperatorMetrics, alive: Check, ready: Check) -> None:
        self._metrics = metrics
        self._alive = alive
        self._ready = ready
        self._http: HttpPort | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """`host`: empty = every address, of both IP families where there are two. HttpBindError, one line,
        when the address cannot be bound."""
        app = web.Application()
        app.router.add_get("/healthz", self._answer(self._alive))
        app.router.add_get("/readyz", self._answer(self._ready))
        app.router.add_get("/metrics", self._text)
        http = HttpPort(app, _log)
        try:
            if host:
                self.port = await http.start(host, port)
            else:
                self.port = await http.start(sock=_everywhere(port))
        except OSError as error:
            raise HttpBindError(f"cannot serve HTTP on {host}:{port}: {error.strerror or error}") from error
        self._http = http

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def _answer(self, check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_: web.Request) -> web.Response:
            problem = check()
            return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

        return answer

    async def _text(self, _: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        return web.Response(body=self._metrics.text(now), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
