"""The HTTP port, byte by byte where release 0.13.2 fixes the bytes."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Never

import pytest
from prometheus_client.parser import text_string_to_metric_families

from waltz_runtime.errors import HttpBindError
from waltz_runtime.http import Health, HttpEndpoints
from waltz_runtime.metrics import MetricsRegistry


def healthy() -> tuple[bool, dict[str, object]]:
    return True, {"server-health-check": {"healthy": True, "partitions": {0: True}}}


@asynccontextmanager
async def endpoints(health: Health = healthy, version: str | None = "0.1.0") -> AsyncIterator[HttpEndpoints]:
    registry = MetricsRegistry()
    registry.counter("waltz-server.x").inc(3)
    http = HttpEndpoints("Waltz", version, health, registry, health_name="server-health-check")
    await http.start("127.0.0.1", 0)
    try:
        yield http
    finally:
        await http.close()


async def ask(
    http: HttpEndpoints, path: str, method: str = "GET", accept: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    extra = f"Accept: {accept}\r\n" if accept else ""
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{extra}\r\n".encode())
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = raw.partition(b"\r\n\r\n")
    status_line, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status_line.split()[1]), headers, body


async def test_ping_and_buildinfo_bytes() -> None:
    async with endpoints() as http:
        status, headers, body = await ask(http, "/ping")
        assert (status, body) == (200, b"pong\n")
        assert headers["content-type"].startswith("text/plain")
        assert headers["cache-control"] == "must-revalidate,no-cache,no-store"
        assert "server" not in headers
        status, headers, body = await ask(http, "/buildinfo")
        assert (status, body) == (200, b'{"service_name": "Waltz", "version": "0.1.0"}\n')
        assert headers["content-type"].startswith("application/json")


async def test_buildinfo_of_an_unpackaged_service_is_null() -> None:
    async with endpoints(version=None) as http:
        assert json.loads((await ask(http, "/buildinfo"))[2])["version"] is None


async def test_head_has_headers_and_no_body() -> None:
    async with endpoints() as http:
        for path in ("/ping", "/buildinfo", "/health", "/metrics"):
            status, headers, body = await ask(http, path, "HEAD")
            assert (status, body) == (200, b""), path
            assert headers["cache-control"] == "must-revalidate,no-cache,no-store"


async def test_other_paths_and_methods_are_refused() -> None:
    async with endpoints() as http:
        for path in ("/", "/ping/", "/metrics/x", "/..%2fping"):
            status, headers, _ = await ask(http, path)
            assert status == 404, path
            assert headers["cache-control"] == "must-revalidate,no-cache,no-store"
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            status, headers, _ = await ask(http, "/ping", method)
            assert status == 405, method
            assert set(headers["allow"].split(",")) == {"GET", "HEAD"}


async def test_health_status_follows_the_truth() -> None:
    truth = [True]

    def health() -> tuple[bool, dict[str, object]]:
        return truth[0], {"server-health-check": {"healthy": truth[0], "partitions": {3: truth[0]}}}

    async with endpoints(health) as http:
        status, _, body = await ask(http, "/health")
        assert status == 200
        assert body == b'{"server-health-check": {"healthy": true, "partitions": {"3": true}}}'
        truth[0] = False
        status, _, body = await ask(http, "/health?pretty=true")
        assert status == 500
        assert b'\n  "server-health-check"' in body
        assert json.loads(body)["server-health-check"]["healthy"] is False


async def test_a_health_check_that_raises_says_why_and_only_the_log_has_the_stack_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    failing = [True]

    def health() -> tuple[bool, dict[str, object]]:
        if failing[0]:
            raise RuntimeError("no store")
        return healthy()

    sentence = "the check server-health-check failed: RuntimeError: no store; the log has the stack trace"
    async with endpoints(health) as http:
        for _ in range(3):
            status, headers, body = await ask(http, "/health")
            assert (status, headers["content-type"].split(";")[0]) == (503, "application/json")
            assert json.loads(body) == {"server-health-check": {"healthy": False, "message": sentence}}
        assert (await ask(http, "/ping"))[0] == (await ask(http, "/metrics"))[0] == 200
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.getMessage() == sentence
        failing[0] = False
        assert (await ask(http, "/health"))[0] == 200
        failing[0] = True
        assert (await ask(http, "/health"))[0] == 503
        assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]


async def test_a_health_report_that_cannot_be_written_down_is_a_check_that_failed() -> None:
    """What it reports holds itself."""

    def health() -> tuple[bool, dict[str, object]]:
        report: dict[str, object] = {}
        report["again"] = report
        return True, report

    async with endpoints(health) as http:
        status, _, body = await ask(http, "/health?pretty=true")
        assert status == 503
        assert "RecursionError" in json.loads(body)["server-health-check"]["message"]


class Unspeakable(dict[str, int]):
    """Fails when it is written down."""

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def items(self) -> Never:
        raise RuntimeError("no items")


def raising() -> object:
    raise RuntimeError("no gauge")


GAUGES: list[Callable[[], object]] = [raising, Unspeakable, lambda: 10**400, lambda: "\udcff"]


@pytest.mark.parametrize("gauge", GAUGES)
async def test_one_metric_that_fails_leaves_the_others_on_the_page(
    gauge: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    async with endpoints() as http:
        registry = http._metrics
        registry.gauge("waltz-server.broken", gauge)
        registry.gauge("waltz-server.well", lambda: 7)
        for accept in ("*/*", "application/json"):
            status, _, body = await ask(http, "/metrics", accept=accept)
            assert status == 200, body
            if accept == "*/*":
                names = {family.name for family in text_string_to_metric_families(body.decode())}
                assert {"waltz_server_well", "waltz_server_x", "process_resident_memory_bytes"} <= names
            else:
                assert json.loads(body)["gauges"]["waltz-server.well"] == {"value": 7}
        registry.to_admin_json()
        assert "waltz-server.well 7 1" in registry.to_graphite("", 1)
        assert len(caplog.records) == (gauge in (raising, Unspeakable)), "each once"


async def test_what_fails_outside_of_gauges_leaves_the_page_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A count whose rates are kept, and the figures of the process."""

    def broken(*_: object) -> Never:
        raise OSError("too many open files")

    monkeypatch.setattr("waltz_runtime.http.generate_latest", broken)
    async with endpoints() as http:
        http._metrics.rates_of(broken)
        for _ in range(2):
            status, _, body = await ask(http, "/metrics", accept="*/*")
            assert status == 200
            assert b"waltz_server_x_total 3.0" in body
            http._texts.clear()
        assert len(caplog.records) == 2


async def test_health_is_looked_at_once_per_turn_whoever_asks() -> None:
    """And never remembered: the next turn sees what is then."""
    turn, seen = 0, list[int]()

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count_turns)

    def health() -> tuple[bool, dict[str, object]]:
        seen.append(turn)
        return True, {"seen": len(seen)}

    count_turns()
    async with endpoints(health) as http:
        answers = await asyncio.gather(*(ask(http, "/health") for _ in range(60)))
        assert {status for status, _, _ in answers} == {200}
        assert len(seen) == len(set(seen))
        assert len(seen) < 60
        before = len(seen)
        assert json.loads((await ask(http, "/health"))[2]) == {"seen": before + 1}


async def test_metrics_are_prometheus_text_or_json() -> None:
    async with endpoints() as http:
        status, headers, body = await ask(http, "/metrics", accept="*/*")
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        names = {family.name for family in text_string_to_metric_families(body.decode())}
        assert {"waltz_server_x", "process_resident_memory_bytes"} <= names
        status, headers, body = await ask(http, "/metrics?pretty=true", accept="application/json")
        assert headers["content-type"].startswith("application/json")
        assert b"\n  " in body
        assert json.loads(body)["counters"] == {"waltz-server.x": {"count": 3}}


async def test_whoever_does_not_say_what_it_accepts_gets_the_json_of_0_13_2() -> None:
    """Its tools (`ServerCli list`) send no Accept header; every scraper, browser and curl does."""
    async with endpoints() as http:
        status, headers, body = await ask(http, "/metrics")
        assert (status, headers["content-type"].split(";")[0]) == (200, "application/json")
        assert json.loads(body)["counters"] == {"waltz-server.x": {"count": 3}}
        for accept in ("*/*", "text/html, image/gif, *; q=.2, */*; q=.2", "text/plain;version=0.0.4"):
            _, headers, _ = await ask(http, "/metrics", accept=accept)
            assert headers["content-type"].startswith("text/plain"), accept


async def test_port_in_use_is_one_clear_line() -> None:
    async with endpoints() as http:
        second = HttpEndpoints("Waltz", None, healthy, MetricsRegistry())
        with pytest.raises(
            HttpBindError, match=f"HTTP port 127.0.0.1:{http.port} is already in use"
        ) as caught:
            await second.start("127.0.0.1", http.port)
        assert caught.value.user_error is True
        await second.close()


async def test_foreign_address_is_one_clear_line() -> None:
    with pytest.raises(HttpBindError, match=r"cannot serve HTTP on 192\.0\.2\.1:8080"):
        await HttpEndpoints("Waltz", None, healthy, MetricsRegistry()).start("192.0.2.1", 8080)


async def test_port_is_unknown_before_start() -> None:
    with pytest.raises(RuntimeError):
        _ = HttpEndpoints("Waltz", None, healthy, MetricsRegistry()).port
