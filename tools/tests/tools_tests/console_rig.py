"""A console in front of made-up states of a cluster, and of a log inside the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import ClientSession, CookieJar
from aiohttp.test_utils import TestClient, TestServer

from waltz_admin.cluster_status import (
    ClusterStatus,
    PartitionStatus,
    Replica,
    ServerStatus,
    StorageStatus,
)
from waltz_admin.reports import AskReports
from waltz_client.testing import InProcessLog
from waltz_cluster.replica_rules import Standing
from waltz_protocol.types import Endpoint
from waltz_tools.console.app import Console
from waltz_tools.console.collector import Collector
from waltz_tools.console.records import RecordReader
from waltz_tools.console.safety import Sessions
from waltz_tools.console.settings import ConsoleSettings

TOKEN = "a-token-of-a-test-with-a-length"
NODES = ("a:1", "b:1", "c:1")
ORIGIN = {"Sec-Fetch-Site": "same-origin"}


def cluster(
    count: int = 4, *, last: int | None = 100, standing: Standing = Standing.CURRENT, healthy: bool = True
) -> ClusterStatus:
    """Three nodes, two servers; the copies on `c` have the standing."""
    partitions = []
    for number in range(count):
        replicas = tuple(
            Replica(node, one, "" if one is Standing.CURRENT else "as the test wants it", last, 0)
            for node, one in zip(NODES, (Standing.CURRENT, Standing.CURRENT, standing), strict=True)
        )
        server = Endpoint(f"server-{number % 2}", 7)
        problem = "" if standing is Standing.CURRENT and healthy else "c:1 is not current"
        partitions.append(PartitionStatus(number, server, healthy, 5, replicas, problem, "", 3))
    servers = tuple(
        ServerStatus(one, Endpoint(f"server-{one}", 7), tuple(range(one, count, 2)), ()) for one in (0, 1)
    )
    nodes = tuple(StorageStatus(node, 1, tuple(range(count)), None) for node in NODES)
    return ClusterStatus("a cluster", "key", servers, nodes, tuple(partitions))


@dataclass
class Source:
    """What is observed; an error in its place is raised. `asked` counts."""

    now: ClusterStatus | Exception = field(default_factory=cluster)
    asked: int = 0

    async def observe(self) -> ClusterStatus:
        self.asked += 1
        if isinstance(self.now, Exception):
            raise self.now
        return self.now


@dataclass
class Rig:
    """A console that listens. `client` has a session, `stranger` none."""

    source: Source
    collector: Collector
    client: TestClient  # type: ignore[type-arg]
    log: InProcessLog
    console: Console

    async def get(self, path: str, **headers: str) -> tuple[int, dict[str, object]]:
        async with self.client.get(path, headers=headers) as answer:
            return answer.status, await answer.json()

    async def page(self, path: str) -> dict[str, object]:
        status, body = await self.get(path)
        assert status == 200, body
        return body

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, object]]:
        async with self.client.post(path, json=body, headers=ORIGIN | headers) as answer:
            return answer.status, await answer.json()

    @asynccontextmanager
    async def stranger(self) -> AsyncIterator[ClientSession]:
        async with ClientSession(
            base_url=self.client.make_url("/"), cookie_jar=CookieJar(unsafe=True)
        ) as one:
            yield one


@asynccontextmanager
async def console(
    source: Source | None = None,
    settings: ConsoleSettings | None = None,
    *,
    login: bool = True,
    report: AskReports | None = None,
) -> AsyncIterator[Rig]:
    """A console on a port of its own, logged in."""
    source = source or Source()
    settings = settings or ConsoleSettings(TOKEN, interval_seconds=0.05)
    loop = asyncio.get_running_loop()
    collector = Collector(
        source.observe,
        interval_seconds=settings.interval_seconds,
        clock=loop.time,
        wall_clock=lambda: 1000.0,
        work_clock=lambda: 0.0,
        report=report,
    )
    log = InProcessLog(num_partitions=4)
    records = RecordReader(log.client)
    app = Console(replace(settings, port=1), collector, records, Sessions(TOKEN, loop.time))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(collector.run()), group.create_task(records.run())]
        async with TestClient(TestServer(app.application()), cookie_jar=CookieJar(unsafe=True)) as client:
            rig = Rig(source, collector, client, log, app)
            if login:
                assert (await rig.post("/api/login", {"token": TOKEN}))[0] == 200
            yield rig
        for task in tasks:
            task.cancel()
