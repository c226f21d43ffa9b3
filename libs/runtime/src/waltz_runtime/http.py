"""The HTTP port of a service: `/ping`, `/buildinfo`, `/health`, `/metrics`, on the service's own loop.

GET and HEAD; any other path is 404, any other method 405. `/metrics` is Prometheus text, and the JSON of
release 0.13.2 for a request that accepts `application/json` or has no Accept header: tools of 0.13.2 send no
Accept header and read JSON, Prometheus, browsers and curl always send one. `?pretty=true` indents JSON.
`/health` is 200, 500 with the reasons, or 503 when the check itself failed; a metric that cannot be read is
left out, or has its error in its place in JSON. Every answer forbids caching. Metrics are put into words at
most once a second, health once per turn of the loop, however often they are asked for. Bodies of requests are
never read; connections are watched by `http_guard`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from waltz_runtime.counting import loop_counters
from waltz_runtime.errors import HttpBindError
from waltz_runtime.http_guard import HttpPort
from waltz_runtime.instruments import Gauge, plain
from waltz_runtime.metrics import TICK_SECONDS, MetricsRegistry
from waltz_runtime.slices import between_turns

Health = Callable[[], tuple[bool, dict[str, object]]]
"""(healthy, whole JSON body), e.g. `(True, {"server-health-check": {"healthy": True, ...}})`."""

METRICS_SECONDS = 1.0
_log = logging.getLogger(__name__)
_NO_CACHE = "must-revalidate,no-cache,no-store"


class HttpEndpoints:
    """One HTTP server. Owner: the service's main coroutine, which calls `start` and `close`.

    `service_name` and `version` are what `/buildinfo` shows; `health_name` is the member under which a health
    check that raised is reported. While started, it brings the registry's rates up to date every five
    seconds.
    """

    def __init__(
        self,
        service_name: str,
        version: str | None,
        health: Health,
        metrics: MetricsRegistry,
        *,
        health_name: str = "health-check",
    ) -> None:
        self._service_name = service_name
        self._version = version
        self._health = health
        self._health_name = health_name
        self._metrics = metrics
        process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=process)
        self._process = Gauge("figures of the process", lambda: generate_latest(process).decode())
        self._http: HttpPort | None = None
        self._texts: dict[tuple[bool, bool], tuple[float, str]] = {}
        self._writing = asyncio.Lock()
        """Held while metrics are put into words: who asks meanwhile gets the same text."""
        self._health_now: tuple[int, object] | None = None
        """The status and the body in this turn of the loop."""
        self._health_error: str | None = None
        """Why the last check failed."""
        self._ticker: asyncio.TimerHandle | None = None
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The bound port (the real one when 0 was asked for); RuntimeError before `start`."""
        if self._port is None:
            raise RuntimeError("the HTTP endpoints are not started")
        return self._port

    async def start(self, host: str, port: int) -> None:
        """Bind and serve. HttpBindError, one clear line, when the address cannot be bound."""
        app = web.Application()
        app.router.add_get("/ping", self._ping)
        app.router.add_get("/buildinfo", self._build_info)
        app.router.add_get("/health", self._answer_health)
        app.router.add_get("/metrics", self._answer_metrics)
        app.on_response_prepare.append(self._prepare)
        http = HttpPort(app, _log)
        try:
            self._port = await http.start(host, port)
        except OSError as failure:
            raise _bind_error(host, port, failure) from failure
        self._http = http
        counters = loop_counters()
        if counters is not None:
            counters.publish(self._metrics)
        self._tick()

    async def close(self) -> None:
        """Stop serving; harmless when not started or already closed."""
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def _tick(self) -> None:
        self._metrics.tick()
        self._ticker = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    async def _ping(self, request: web.Request) -> web.Response:
        return web.Response(text="pong\n", content_type="text/plain")

    async def _build_info(self, request: web.Request) -> web.Response:
        return _json_response({"service_name": self._service_name, "version": self._version}, end="\n")

    async def _answer_health(self, request: web.Request) -> web.Response:
        if self._health_now is None:
            self._health_now = self._checked()
            asyncio.get_running_loop().call_soon(self._forget_health)
        status, body = self._health_now
        return _json_response(body, pretty=_pretty(request), status=status)

    def _checked(self) -> tuple[int, object]:
        """A stack trace is for the log, once while the reason stays the same: everybody may ask here."""
        error, before = None, self._health_error
        try:
            healthy, report = self._health()
            status, body = 200 if healthy else 500, plain(report)
        except Exception as failure:
            name = self._health_name
            error = (
                f"the check {name} failed: {type(failure).__name__}: {failure}; the log has the stack trace"
            )
            status, body = 503, {name: {"healthy": False, "message": error}}
            if error != before:
                _log.exception("%s", error)
        if before is not None and error is None:
            _log.info("the check %s works again", self._health_name)
        self._health_error = error
        return status, body

    def _forget_health(self) -> None:
        self._health_now = None

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        accepted = request.headers.get("Accept")
        as_json = not accepted or "application/json" in accepted
        async with self._writing:
            text = await self._metrics_text(as_json, as_json and _pretty(request))
        if as_json:
            return web.Response(text=text, content_type="application/json")
        # half of a surrogate pair, as in the name of a file, is in no UTF-8
        return web.Response(
            body=text.encode(errors="replace"), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    async def _metrics_text(self, as_json: bool, pretty: bool) -> str:
        """At most `METRICS_SECONDS` old when it was asked for: it takes milliseconds of the loop, which has
        better things to do, and half a second with a thousand partitions, in slices."""
        now = asyncio.get_running_loop().time()
        made_at, text = self._texts.get((as_json, pretty), (now - METRICS_SECONDS, ""))
        if now - made_at >= METRICS_SECONDS:
            if as_json:
                text = await between_turns(self._metrics.json_slices(pretty=pretty))
            else:
                text = await between_turns(self._metrics.prometheus_slices())
                process, _ = self._process.value()
                text += str(process or "")
            now = asyncio.get_running_loop().time()
            self._texts[as_json, pretty] = (now, text)
        return text

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Cache-Control"] = _NO_CACHE


def _pretty(request: web.Request) -> bool:
    return request.query.get("pretty", "").lower() == "true"


def _json_response(body: object, *, pretty: bool = False, status: int = 200, end: str = "") -> web.Response:
    text = json.dumps(body, indent=2 if pretty else None, default=str) + end
    return web.Response(text=text, status=status, content_type="application/json")


def _bind_error(host: str, port: int, failure: OSError) -> HttpBindError:
    if failure.errno == errno.EADDRINUSE:
        return HttpBindError(f"HTTP port {host}:{port} is already in use")
    return HttpBindError(f"cannot serve HTTP on {host}:{port}: {failure.strerror or failure}")
