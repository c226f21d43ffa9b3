"""The HTTP port under bad, slow and greedy peers: bounded, and one line in the log for each."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from waltz_protocol.aio.tls import TlsSettings, client_context, server_context
from waltz_runtime import http_guard
from waltz_runtime.http import HttpEndpoints
from waltz_runtime.http_guard import HttpPort
from waltz_runtime.metrics import MetricsRegistry
from waltz_runtime.slices import Slices


@contextlib.asynccontextmanager
async def endpoints() -> AsyncIterator[tuple[HttpEndpoints, MetricsRegistry]]:
    registry = MetricsRegistry()
    http = HttpEndpoints("Waltz", "0.1.0", lambda: (True, {"ok": True}), registry)
    await http.start("127.0.0.1", 0)
    try:
        yield http, registry
    finally:
        await http.close()


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def peers(http: HttpEndpoints, count: int) -> AsyncIterator[list[Peer]]:
    made = [await asyncio.open_connection("127.0.0.1", http.port) for _ in range(count)]
    try:
        yield made
    finally:
        for _, writer in made:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def answer(peer: Peer, raw: bytes) -> bytes:
    reader, writer = peer
    async with asyncio.timeout(10):
        try:
            writer.write(raw)
            return await reader.read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /ping HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\n a\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
async def test_a_bad_request_is_one_line_that_names_the_peer(
    raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with endpoints() as (http, _), peers(http, 1) as (peer,):
        assert b"400 Bad Request" in await answer(peer, raw)
    assert [record for record in caplog.records if record.exc_info] == []
    assert all(message.startswith("127.0.0.1:") for message in caplog.messages)
    assert all("\n" not in message for message in caplog.messages)


async def test_a_body_that_is_not_what_its_sender_says_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def read(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", read)
    port = HttpPort(app, logging.getLogger("waltz"))
    number = await port.start("127.0.0.1")
    try:
        for coding in (b"gzip", b"deflate"):
            peer = await asyncio.open_connection("127.0.0.1", number)
            head = (
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: "
                + coding
                + b"\r\nContent-Length: 2\r\n\r\n"
            )
            assert not (await answer(peer, head + b"{}")).startswith(b"HTTP/1.1 200")
            peer[1].close()
    finally:
        await port.close()
    assert [record for record in caplog.records if record.exc_info] == []
    assert any("bad HTTP request" in message for message in caplog.messages)


async def test_bodies_are_not_read() -> None:
    async with endpoints() as (http, _), peers(http, 2) as (plain, chunked):
        head = b"POST /metrics HTTP/1.1\r\nHost: x\r\n"
        assert b"405" in await answer(plain, head + b"Content-Length: 8000000000\r\n\r\n")
        assert b"405" in await answer(chunked, head + b"Transfer-Encoding: chunked\r\n\r\n")


async def test_the_longest_silent_gives_way_and_others_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoints() as (http, _), peers(http, http_guard.MAX_CONNECTIONS) as crowd:
        for _, writer in crowd:
            writer.write(b"GET /ping HTTP/1.1\r\n")
        async with peers(http, 1) as (honest,):
            assert b"pong" in await answer(
                honest, b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
        assert await answer(crowd[0], b"") == b""
    assert any("other peers wait" in message for message in caplog.messages)


async def test_slow_headers_end(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(http_guard, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(http_guard, "_LOOK_SECONDS", 0.01)
    async with endpoints() as (http, _), peers(http, 1) as (slow,):
        assert await answer(slow, b"GET /ping HTTP/1.1\r\nX: ") == b""
    assert any("no complete request was sent, or no answer read" in message for message in caplog.messages)


async def test_metrics_are_put_into_words_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = 0
    async with endpoints() as (http, registry):
        real = registry.prometheus_slices

        def counted() -> Slices:
            nonlocal rendered
            rendered += 1
            return real()

        monkeypatch.setattr(registry, "prometheus_slices", counted)
        request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"
        last = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with peers(http, 1) as (peer,):
            got = await answer(peer, request * 20 + last)
        assert got.count(b"200 OK") == 21
        assert rendered <= 2 + (loop.time() - started)


async def test_connections_whose_tls_is_late_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_guard, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(http_guard, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(http_guard, "_HANDSHAKE_SECONDS", 3.0)
    port = HttpPort(web.Application(), logging.getLogger("waltz"))
    number = await port.start("127.0.0.1", ssl=server_context(TlsSettings()))
    trusting = client_context(TlsSettings(allow_unverified=True))
    try:
        silent = [await asyncio.open_connection("127.0.0.1", number) for _ in range(8)]
        await asyncio.sleep(0.2)  # a few looks, in which their TLS has not begun
        late = silent[:6]
        for _, writer in late:
            await writer.start_tls(trusting, server_hostname="x")  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            for reader, _ in late[:2]:
                assert await reader.read() == b"", "those who waited longest gave way"
            for reader, _ in silent[6:]:
                assert await reader.read() == b"", "TLS has to begin in time"
        assert not any(reader.at_eof() for reader, _ in late[2:])
    finally:
        await port.close()
        for _, writer in silent:
            writer.close()
