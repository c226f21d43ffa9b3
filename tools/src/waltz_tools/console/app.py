"""The application: its routes, and what every request passes on its way (`waltz_tools.console.safety`).

`/` and `/assets/…` are the same for everybody and hold nothing of a cluster. Everything below `/api/` needs a
session, which `/api/login` gives for the token. An error is one sentence, `{"error": "…"}`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from waltz_admin.errors import AdminError
from waltz_admin.reports import CLIENTS, LATENCY, LOCKS
from waltz_client import WaltzClientError
from waltz_client.errors import AppendError
from waltz_runtime.http_guard import HttpPort
from waltz_tools.cli.transactions import Search
from waltz_tools.console import pages
from waltz_tools.console.collector import Collector, Observation
from waltz_tools.console.records import MAX_PAGE, RecordReader, command
from waltz_tools.console.rows import PartitionRows
from waltz_tools.console.safety import HEADERS, Sessions, why_host_refused, why_origin_refused
from waltz_tools.console.settings import ConsoleSettings
from waltz_tools.lock_names import MAX_NAMES, hashes_of

MAX_STREAMS = 32
BEAT_SECONDS = 5.0
FIRST_SECONDS = 20.0
MAX_BODY_BYTES = 1024 * 1024
WRONG_TOKEN_SECONDS = 1.0

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Render = Callable[[Observation], pages.Page]


class Console:
    """One console. Owner of its sessions and of the rendered pages; the collector and the reader are given.

    `http` keeps the connection of a stream that is of use; it is set when the console listens.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        collector: Collector,
        records: RecordReader,
        sessions: Sessions,
    ) -> None:
        self._settings = settings
        self._collector = collector
        self._records = records
        self._sessions = sessions
        self._assets = _load_assets()
        self._rendered: dict[str, tuple[int, bytes]] = {}
        self._rows = PartitionRows()
        self._streams = 0
        self._guess = asyncio.Lock()
        self.http: HttpPort | None = None

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[self._protect], client_max_size=MAX_BODY_BYTES)
        app.on_response_prepare.append(self._prepare)
        add = app.router.add_get
        add("/", self._index)
        add("/assets/{name}", self._asset)
        add("/api/about", self._about)
        add("/api/events", self._events)
        add("/api/overview", self._overview)
        add("/api/partitions", self._partitions)
        add(r"/api/partitions/{number:\d{1,9}}", self._partition)
        add("/api/nodes", self._page("nodes", pages.nodes))
        add("/api/findings", self._page("findings", pages.findings))
        add("/api/changes", self._changes)
        add("/api/locks", self._page("locks", pages.locks, LOCKS))
        add("/api/clients", self._page("clients", pages.clients, CLIENTS))
        add("/api/hashes", self._hashes)
        add("/api/records", self._records_page)
        add("/api/record", self._record)
        add("/api/follow", self._follow)
        app.router.add_post("/api/login", self._log_in)
        app.router.add_post("/api/logout", self._log_out)
        app.router.add_post("/api/append", self._append)
        return app

    @property
    def cookie(self) -> str:
        """Cookies are shared by all ports of a host, so its name has the port."""
        return f"waltz-console-{self._settings.port}"

    # ---- what every request passes

    @web.middleware
    async def _protect(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        settings = self._settings
        refused = why_host_refused(request.headers.get("Host"), settings.allowed_hosts)
        if not refused and request.path.startswith("/api/"):
            changes = request.method != "GET"
            refused = why_origin_refused(request.headers, settings.scheme, changes=changes)
        if refused:
            return _error(403, refused)
        if _needs_session(request.path) and not self._sessions.knows(request.cookies.get(self.cookie)):
            return _error(401, "log in with the token that the console was started with")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _error(error.status, error.reason)
        except Exception as error:
            if not hasattr(error, "retriable") and not isinstance(error, (ValueError, OSError)):
                _log.exception("a request failed: %s %s", request.method, request.path)
                return _error(500, "an error that was not foreseen: the log of the console has it")
            return _error(_status_of(error), " ".join(str(error).split()) or type(error).__name__)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        for name, value in HEADERS.items():
            response.headers[name] = value

    # ---- files, login

    async def _index(self, request: web.Request) -> web.Response:
        return self._file("index.html")

    async def _asset(self, request: web.Request) -> web.Response:
        return self._file(request.match_info["name"])

    def _file(self, name: str) -> web.Response:
        found = self._assets.get(name)
        if found is None:
            return _error(404, "there is no such file")
        kind, body = found
        return web.Response(body=body, content_type=kind, charset="utf-8")

    async def _log_in(self, request: web.Request) -> web.Response:
        token = (await _body(request)).get("token")
        if not isinstance(token, str) or not self._sessions.is_token(token):
            async with (
                self._guess
            ):  # one at a time, so that guessing is slow; who has the token waits for none
                await asyncio.sleep(WRONG_TOKEN_SECONDS)
            return _error(401, "this is not the token of this console")
        answer = _json({"ok": True})
        secure = self._settings.scheme == "https"
        answer.set_cookie(
            self.cookie, self._sessions.open(), httponly=True, samesite="Strict", secure=secure, path="/"
        )
        return answer

    async def _log_out(self, request: web.Request) -> web.Response:
        self._sessions.close(request.cookies.get(self.cookie))
        answer = _json({"ok": True})
        answer.del_cookie(self.cookie, path="/")
        return answer

    # ---- pages

    def _state(self) -> pages.Page:
        seen = self._collector.latest
        return {
            "number": self._collector.number,
            "at": None if seen is None else seen.at,
            "took": None if seen is None else seen.seconds,
            "error": self._collector.error,
            "failing_since": self._collector.failing_since,
        }

    async def _about(self, request: web.Request) -> web.Response:
        seen = self._collector.latest
        return _json(
            {
                "name": None if seen is None else seen.status.name,
                "allow_data": self._settings.allow_data,
                "allow_append": self._settings.allow_append,
                **self._state(),
            }
        )

    async def _seen(self, part: int = LATENCY) -> Observation:
        seen = await self._collector.fresh(FIRST_SECONDS, part)
        if seen is None:
            reason = self._collector.error or "the cluster was asked and did not answer yet"
            raise web.HTTPServiceUnavailable(reason=reason)
        return seen

    def _page(self, name: str, render: Render, part: int = LATENCY) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            return self._rendered_page(name, await self._seen(part), render)

        return answer

    def _rendered_page(self, name: str, seen: Observation, render: Render) -> web.Response:
        """Made once for each observation, however many ask."""
        number = self._collector.number
        made = self._rendered.get(name)
        if made is None or made[0] != number:
            body = {"cluster": seen.status.name, "state": self._state(), **render(seen)}
            made = (number, json.dumps(body).encode())
            self._rendered[name] = made
        return web.Response(body=made[1], content_type="application/json")

    async def _partitions(self, request: web.Request) -> web.Response:
        """Those that have changed since the observation that the viewer has; all without one."""
        seen = await self._seen()
        self._rows.take(seen)
        head = json.dumps({"cluster": seen.status.name, "state": self._state()})
        body = f"{head[:-1]}, {self._rows.text(_number(request, 'since', 0))}}}"
        return web.Response(body=body.encode(), content_type="application/json")

    async def _overview(self, request: web.Request) -> web.Response:
        collector = self._collector
        return self._rendered_page(
            "overview",
            await self._seen(),
            lambda seen: pages.overview(seen, collector.points, list(collector.changes)),
        )

    async def _changes(self, request: web.Request) -> web.Response:
        collector = self._collector
        return self._rendered_page(
            "changes", await self._seen(), lambda seen: pages.moves(seen, list(collector.changes))
        )

    async def _hashes(self, request: web.Request) -> web.Response:
        """Name of a lock -> the hashes that it may have."""
        names = request.query.getall("name", [])[:MAX_NAMES]
        return _json({name: hashes_of(name) for name in names})

    async def _partition(self, request: web.Request) -> web.Response:
        seen = await self._seen()
        number = int(request.match_info["number"])
        if number >= len(seen.status.partitions):
            return _error(
                404, f"there is no partition {number}: the cluster has {len(seen.status.partitions)}"
            )
        body = pages.partition(seen, number, list(self._collector.changes))
        return _json({"cluster": seen.status.name, "state": self._state(), **body})

    # ---- streams

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """A line for every observation; the page asks for what it shows then."""
        stream = await self._open_stream(request)
        try:
            number = -1
            while True:
                self._collector.watch()
                if await self._collector.changed(number, BEAT_SECONDS):
                    number = self._collector.number
                    await self._send(request, stream, "observation", self._state())
                else:
                    await self._send(request, stream, "beat", {})
        except ConnectionError:
            return stream
        finally:
            self._streams -= 1

    async def _open_stream(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= MAX_STREAMS:
            raise web.HTTPServiceUnavailable(reason=f"{MAX_STREAMS} pages are live already: close one")
        self._streams += 1
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await stream.prepare(request)
        except BaseException:
            self._streams -= 1
            raise
        return stream

    async def _send(
        self,
        request: web.Request,
        stream: web.StreamResponse,
        event: str,
        value: pages.Page,
        position: int | None = None,
    ) -> None:
        """ConnectionError when the page was closed, or its session has ended: with the next beat at the
        latest. `position`: what the browser names after a lost connection (`Last-Event-ID`)."""
        if not self._sessions.knows(request.cookies.get(self.cookie)):
            raise ConnectionAbortedError("the session of this stream has ended")
        if self.http is not None:
            self.http.answered(request)
        name = "" if position is None else f"id: {position}\n"
        await stream.write(f"{name}event: {event}\ndata: {json.dumps(value)}\n\n".encode())

    # ---- records

    def _check_data(self) -> None:
        if not self._settings.allow_data:
            raise web.HTTPForbidden(reason="this console shows no data: it was started without --allow-data")

    async def _records_page(self, request: web.Request) -> web.Response:
        self._check_data()
        partition = _number(request, "partition", 0)
        count = min(max(_number(request, "count", 50), 1), MAX_PAGE)
        start, before = _optional(request, "from"), _optional(request, "before")
        header, client = request.query.get("header") or None, _optional(request, "client")
        wanted = Search.of(header, client)
        found = await self._records.page(partition, before=before, start=start, count=count, wanted=wanted)
        rows = found["rows"]
        first = start
        if before is not None and isinstance(rows, list) and rows:
            first = rows[-1]["id"]
        shown = command(
            self._settings.config, partition, start=first, count=count, header=header, client=client
        )
        return _json({**found, "command": shown})

    async def _record(self, request: web.Request) -> web.Response:
        self._check_data()
        return _json(await self._records.one(_number(request, "partition", 0), _number(request, "id", 0)))

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        self._check_data()
        partition = _number(request, "partition", 0)
        wanted = Search.of(request.query.get("header") or None, _optional(request, "client"))
        seen = _position(request)
        stream = await self._open_stream(request)
        try:
            async with asyncio.TaskGroup() as group:
                beat = group.create_task(self._beat(request, stream))
                try:
                    async for position, page in self._records.follow(partition, wanted, seen):
                        event = "records" if "rows" in page else "position"
                        await self._send(request, stream, event, page, position)
                except (WaltzClientError, AdminError) as error:
                    await self._send(request, stream, "failed", {"error": str(error)})
                beat.cancel()
        except* ConnectionError:
            pass  # see `_send`
        finally:
            self._streams -= 1
        return stream

    async def _beat(self, request: web.Request, stream: web.StreamResponse) -> None:
        while True:
            await self._send(request, stream, "beat", {})
            await asyncio.sleep(BEAT_SECONDS)

    async def _append(self, request: web.Request) -> web.Response:
        if not self._settings.allow_append:
            return _error(403, "this console appends nothing: it was started without --allow-append")
        body = await _body(request)
        partition, data, header = body.get("partition"), body.get("data"), body.get("header", 0)
        if not isinstance(partition, int) or not isinstance(data, str) or not isinstance(header, int):
            return _error(400, "name the partition, the data as text, and the header as a number")
        async with self._records.client() as client:
            try:
                done = await client.append(
                    partition=partition, data=data.encode(), header=header, deadline_seconds=10.0
                )
            except AppendError as error:
                return _error(409, f"{error} (outcome: {error.outcome.value})")
        return _json({"partition": partition, "transaction": done.transaction_id})


def _needs_session(path: str) -> bool:
    return path.startswith("/api/") and path != "/api/login"


def _load_assets() -> dict[str, tuple[str, bytes]]:
    """Every file that a browser may ask for; nothing else is served, whatever its path."""
    folder = resources.files("waltz_tools.console") / "assets"
    found = {}
    for file in folder.iterdir():
        kind = _TYPES.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            found[file.name] = (kind, file.read_bytes())
    return found


def _json(body: object) -> web.Response:
    return web.Response(body=json.dumps(body).encode(), content_type="application/json")


def _error(status: int, sentence: str) -> web.Response:
    return web.Response(
        status=status, body=json.dumps({"error": sentence}).encode(), content_type="application/json"
    )


def _status_of(error: Exception) -> int:
    if isinstance(error, ValueError) or getattr(error, "exit_code", None) == 2:
        return 400
    return 503 if getattr(error, "retriable", True) else 400


async def _body(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(reason="the body has to be JSON")
    try:
        found = json.loads(await request.read())
    except (ValueError, RecursionError, RequestPayloadError):
        raise web.HTTPBadRequest(reason="the body is no JSON") from None
    if not isinstance(found, dict):
        raise web.HTTPBadRequest(reason="the body is no JSON object")
    return found


def _number(request: web.Request, name: str, default: int) -> int:
    found = _optional(request, name)
    return default if found is None else found


def _position(request: web.Request) -> int | None:
    """The last transaction that a page that follows knows of, where its connection was cut, or where the page
    has ended it (`seen`); -1 is before the first one."""
    name, text = "Last-Event-ID", request.headers.get("Last-Event-ID", "")
    if not text:
        name, text = "seen", request.query.get("seen", "")
    return -1 if text == "-1" else _parsed(name, text)


def _optional(request: web.Request, name: str) -> int | None:
    return _parsed(name, request.query.get(name, ""))


def _parsed(name: str, text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError(f"{name} is a number, not {text[:40]!r}")
    return int(text)
