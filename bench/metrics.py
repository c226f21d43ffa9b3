"""What scrapes cost: `/metrics` of all servers and storage nodes every five seconds against none, with few
and with many partitions.

Windows with and without scrapes alternate on one cluster, once at rest (processor) and once under a load
(p99), so that a figure is a ratio of neighbours in one run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bench.cluster import BenchCluster
from bench.figures import Figure, Target, Wanted
from bench.plan import Plan, WriteMode
from bench.processes import CpuWatch
from bench.writing import run_mode
from waltz_tools.local import LocalCluster, LocalSettings

PARTITIONS = (8, 1000)
EVERY_SECONDS = 5.0
WINDOW_SECONDS = 10.0
PAIRS = 5
MODE = WriteMode(50, 8)
START_SECONDS = 400.0
CPU_TARGET = Target(Wanted.AT_MOST, 5.0)
"""Percent of a core for one process with a thousand partitions: a second of work per 20 seconds."""
P99_TARGET = Target(Wanted.AT_MOST, 1.2)


@dataclass
class Scrapes:
    """How long the answers took, and how large they were."""

    seconds: list[float] = field(default_factory=list)
    largest: int = 0


async def measure_metrics(directory: Path, plan: Plan, pairs: int = PAIRS) -> list[Figure]:
    """Figures for few partitions, then for many."""
    figures: list[Figure] = []
    for partitions in PARTITIONS:
        settings = LocalSettings(
            directory / f"metrics-{partitions}",
            partitions=partitions,
            tls=False,
            start_timeout_seconds=START_SECONDS,
        )
        async with LocalCluster(settings) as local:
            cluster = BenchCluster(local, replace(plan, seconds=WINDOW_SECONDS), tls=False)
            figures += await _figures(cluster, partitions, pairs)
    return figures


async def _figures(cluster: BenchCluster, partitions: int, pairs: int) -> list[Figure]:
    scrapes = Scrapes()
    resting: list[float] = []
    ratios: list[float] = []
    for number in range(pairs):
        order = (True, False) if number % 2 else (False, True)
        rest = {scraped: await _cpu_at_rest(cluster, scrapes, scraped) for scraped in order}
        resting.append((rest[True] - rest[False]) / WINDOW_SECONDS * 100)
        p99 = {scraped: await _p99(cluster, scrapes, scraped) for scraped in order}
        ratios.append(p99[True] / p99[False])
    processes = sum(map(len, cluster.pids.values()))
    load = f"{partitions:,} partitions, {processes} processes, a scrape every {EVERY_SECONDS:g} s"
    spread = ", ".join(f"{one:.2f}" for one in sorted(ratios))
    answer = (
        f"an answer takes {median(scrapes.seconds) * 1000:.0f} ms, {scrapes.largest / 1e6:.2f} MB at most"
    )
    return [
        Figure(
            "metrics",
            "CPU of scrapes per process",
            median(resting) / processes,
            "% of a core",
            CPU_TARGET,
            load,
            answer,
        ),
        Figure(
            "metrics",
            "p99 with / without scrapes",
            median(ratios),
            "",
            P99_TARGET,
            f"{load}; {MODE.load}",
            f"pairs: {spread}",
        ),
    ]


async def _cpu_at_rest(cluster: BenchCluster, scrapes: Scrapes, scraped: bool) -> float:
    """Processor seconds of all processes in a window without load."""
    watch = CpuWatch(cluster.pids)
    watch.start()
    async with _scraping(cluster, scrapes, scraped):
        await asyncio.sleep(WINDOW_SECONDS)
    return sum(watch.stop().values())


async def _p99(cluster: BenchCluster, scrapes: Scrapes, scraped: bool) -> float:
    async with _scraping(cluster, scrapes, scraped):
        return float((await run_mode(cluster, MODE))["p99_ms"])


@contextlib.asynccontextmanager
async def _scraping(cluster: BenchCluster, scrapes: Scrapes, scraped: bool) -> AsyncIterator[None]:
    """In the background, or nothing."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        if scraped:
            roles = (*cluster.local.server_roles, *cluster.local.storage_roles)
            for number, role in enumerate(
                roles
            ):  # spread over the interval, as Prometheus spreads its targets
                later = EVERY_SECONDS * number / len(roles)
                group.create_task(_scrape(cluster.local.port(role, "http"), later, scrapes, stop))
        try:
            yield
        finally:
            stop.set()


async def _scrape(port: int, later: float, scrapes: Scrapes, stop: asyncio.Event) -> None:
    await asyncio.sleep(later)
    while not stop.is_set():
        started = time.perf_counter()
        size = await asyncio.to_thread(_fetch, port)
        scrapes.seconds.append(time.perf_counter() - started)
        scrapes.largest = max(scrapes.largest, size)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY_SECONDS):
                await stop.wait()


def _fetch(port: int) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": "text/plain"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return len(answer.read())
