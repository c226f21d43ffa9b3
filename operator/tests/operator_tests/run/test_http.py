"""The operator's HTTP port: what it answers, and that a crowd cannot keep a probe from its answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from waltz_operator.run.http import HealthServer
from waltz_operator.run.metrics import OperatorMetrics
from waltz_runtime.http_guard import MAX_CONNECTIONS


@asynccontextmanager
async def serving(alive: str = "", ready: str = "") -> AsyncIterator[str]:
    server = HealthServer(OperatorMetrics(), lambda: alive, lambda: ready)
    await server.start("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()


async def test_each_check_is_a_status_and_a_line() -> None:
    async with serving(ready="no Lease") as url, aiohttp.ClientSession() as http:
        async with http.get(f"{url}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
            assert "Server" not in answer.headers, "the library and its version are nobody's business"
        async with http.get(f"{url}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "no Lease\n")


async def test_a_probe_is_answered_beside_a_crowd_that_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as url, aiohttp.ClientSession() as http:
        port = int(url.rpartition(":")[2])
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        for _, writer in crowd:
            writer.write(b"GET /healthz HTTP/1.1\r\n")
        async with http.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        assert await crowd[0][0].read() == b"", "the one that waited longest gave way"
        for _, writer in crowd:
            writer.close()
    assert [record for record in caplog.records if record.exc_info] == []
