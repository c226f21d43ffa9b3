"""The console of a large cluster: how long a page's answer takes while the state changes with every
observation.

The states are made up (1,000 partitions with three replicas on 50 nodes, ten servers, a node of which is
behind; each server with as many clients and contended locks as it lists), so that the figure is that of the
console and not of a cluster: findings, history, pages, HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import ClientSession, CookieJar, web

from bench.figures import Figure
from bench.plan import CONSOLE_PAGE_TARGET
from waltz_admin.cluster_status import (
    ClusterStatus,
    PartitionStatus,
    Replica,
    ServerStatus,
    StorageStatus,
)
from waltz_admin.latency import Latency
from waltz_admin.reports import ClientRow, Following, LockRow, PairRow, ServerReport, WaitingRow
from waltz_client.testing import InProcessLog
from waltz_cluster.replica_rules import Standing
from waltz_protocol.types import Endpoint
from waltz_tools.console.app import Console
from waltz_tools.console.collector import Collector
from waltz_tools.console.records import RecordReader
from waltz_tools.console.safety import Sessions
from waltz_tools.console.settings import ConsoleSettings, new_token

PARTITIONS = 1000
NODES = 50
SERVERS = 10
ROUNDS = 40
PAGES = ("overview", "partitions", "partitions/500", "nodes", "locks", "clients", "changes", "findings")
CLIENTS_OF_A_SERVER, LOCKS_OF_A_SERVER = 200, 100
"""As many as a server lists at most."""


def made_up(turn: int) -> ClusterStatus:
    """A state in which everything is a little further than in the one before."""
    names = [f"storage-{number}.example:7000" for number in range(NODES)]
    partitions = []
    for number in range(PARTITIONS):
        last = 1_000_000 + turn * (number % 97)
        standing = Standing.BEHIND if (number + turn) % NODES == 0 else Standing.CURRENT
        replicas = (
            Replica(names[number % NODES], standing, "", last, 0),
            Replica(names[(number + 17) % NODES], Standing.CURRENT, "", last, 0),
            Replica(names[(number + 33) % NODES], Standing.CURRENT, "", last, 0),
        )
        server = Endpoint(f"server-{number % SERVERS}.example", 8000)
        partitions.append(PartitionStatus(number, server, True, turn, replicas, "", "", turn))
    servers = tuple(
        ServerStatus(one, Endpoint(f"server-{one}.example", 8000), tuple(range(one, PARTITIONS, SERVERS)), ())
        for one in range(SERVERS)
    )
    held = {
        name: tuple(p.partition_id for p in partitions if any(r.node == name for r in p.replicas))
        for name in names
    }
    nodes = tuple(StorageStatus(name, 1, held[name], None) for name in names)
    return ClusterStatus("bench", "key", servers, nodes, tuple(partitions))


def made_up_report(server_id: int, server: Endpoint, turn: int) -> ServerReport:
    """A server with as many clients and contended locks as it lists, each a little further."""
    clients = tuple(
        ClientRow(
            server, number, f"10.0.{server_id}.{number}:4711", 5, 64, 100, "0-99", 100, number + turn,
            tuple(Following(one, 1_000_000 + turn, number, "catching up") for one in range(8)),
        )
        for number in range(CLIENTS_OF_A_SERVER)
    )  # fmt: skip
    numbers = range(LOCKS_OF_A_SERVER)
    return ServerReport(
        server_id, server, "", clients, CLIENTS_OF_A_SERVER, 0, 1000 * turn,
        tuple(LockRow(one, one * 7919, 10 * turn + one, one, 0, 1_000_000, 1, 2) for one in numbers),
        tuple(PairRow(one, one * 7919, 1, 2, turn + one, 0) for one in numbers),
        tuple(WaitingRow(one, one * 7919, 1, (2, 3, 4), 3) for one in numbers),
        Latency((0.001, 0.01, 1.0), (turn, 2 * turn, 3 * turn), 3 * turn),
        dict.fromkeys(range(server_id, PARTITIONS, SERVERS), (turn, turn * 0.004)),
    )  # fmt: skip


def _reports(turn: int) -> list[ServerReport]:
    return [made_up_report(one, Endpoint(f"server-{one}.example", 8000), turn) for one in range(SERVERS)]


class _States:
    """Hands out prepared states and reports in turn."""

    def __init__(self) -> None:
        self._states = itertools.cycle([made_up(turn) for turn in range(8)])
        self._reports = itertools.cycle([_reports(turn) for turn in range(8)])

    async def observe(self) -> ClusterStatus:
        return next(self._states)

    async def report(self, servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        """Whatever parts are asked for."""
        return next(self._reports)


@asynccontextmanager
async def _console() -> AsyncIterator[tuple[ClientSession, Collector]]:
    """A console on a port of its own, and a session of it."""
    settings = ConsoleSettings(new_token(), interval_seconds=0.01)
    loop = asyncio.get_running_loop()
    states = _States()
    collector = Collector(
        states.observe,
        interval_seconds=settings.interval_seconds,
        clock=loop.time,
        wall_clock=time.time,
        work_clock=lambda: 0.0,
        report=states.report,
    )
    reader = RecordReader(InProcessLog(num_partitions=1).client)
    console = Console(settings, collector, reader, Sessions(settings.token, loop.time))
    runner = web.AppRunner(console.application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(collector.run())
        async with ClientSession(f"http://{host}:{port}/", cookie_jar=CookieJar(unsafe=True)) as session:
            token = {"token": settings.token}
            async with session.post("/api/login", json=token, headers={"Sec-Fetch-Site": "none"}) as answer:
                answer.raise_for_status()
            yield session, collector
        running.cancel()
    await runner.cleanup()


async def measure_console() -> list[Figure]:
    """For each page the 95th percentile of its answers, each the first one after an observation: nothing is
    kept from the last answer then."""
    load = f"{PARTITIONS:,} partitions, {NODES} nodes, a new state for each answer"
    figures = []
    async with _console() as (session, collector):
        for page in PAGES:
            taken, size = [], 0
            for _ in range(ROUNDS):
                collector.watch()
                await collector.changed(collector.number, 10.0)
                started = time.perf_counter()
                async with session.get(f"/api/{page}") as answer:
                    answer.raise_for_status()
                    size = len(await answer.read())
                taken.append((time.perf_counter() - started) * 1000)
            note = f"{size / 1024:,.0f} KiB"
            figures.append(
                Figure("console", f"p95 of {page}", _p95(taken), "ms", CONSOLE_PAGE_TARGET, load, note)
            )
    return figures


def _p95(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]
