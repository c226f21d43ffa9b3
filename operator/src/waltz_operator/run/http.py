"""The operator's HTTP port: `/healthz` (alive), `/readyz` (holds the Lease and watches), `/metrics`.

Alive is the process, never an object: its loop (it answers), the thread of the watches, and the workers
(passes end). What one object makes fail, and however long, is in `waltz_operator_reconcile_age_seconds` and
in its status: a new process would fail in the same way, and stop for all others meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from waltz_operator.run.metrics import OperatorMetrics
from waltz_runtime.errors import HttpBindError

Check = Callable[[], str]
"""What is wrong, in one line; empty when nothing is."""


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
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """`host`: empty = every address, of both IP families where there are two. HttpBindError, one line,
        when the address cannot be bound."""
        app = web.Application()
        app.router.add_get("/healthz", self._answer(self._alive))
        app.router.add_get("/readyz", self._answer(self._ready))
        app.router.add_get("/metrics", self._text)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port) if host else web.SockSite(runner, _everywhere(port))
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise HttpBindError(f"cannot serve HTTP on {host}:{port}: {error.strerror or error}") from error
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _answer(self, check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_: web.Request) -> web.Response:
            problem = check()
            return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

        return answer

    async def _text(self, _: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        return web.Response(body=self._metrics.text(now), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
