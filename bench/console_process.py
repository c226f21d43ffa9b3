"""The process of `waltz console` on a real cluster of many partitions with one viewer: its memory, and the
share of a core that it takes. The viewer does what a browser does: it keeps the stream of observations open
and asks for the page that it shows after each."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import psutil
from aiohttp import ClientSession, CookieJar

from bench.figures import Figure
from bench.plan import CONSOLE_CPU_TARGET, CONSOLE_MEMORY_TARGET
from waltz_tools.local import LocalCluster, LocalSettings

PARTITIONS, NODES = 1_000, 3
WARM_SECONDS, SECONDS = 20.0, 60.0
PAGE = "partitions"
_START_SECONDS = 300.0


async def measure_console_process(directory: Path) -> list[Figure]:
    """Memory in MiB at the end, and CPU in percent of one core over `SECONDS`."""
    settings = LocalSettings(
        directory, partitions=PARTITIONS, storage_nodes=NODES, start_timeout_seconds=_START_SECONDS
    )
    async with LocalCluster(settings) as cluster:
        command = ["-m", "waltz_tools", "console", "-c", str(cluster.client_config), "--port", "0"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, "--output", "json", stdout=asyncio.subprocess.PIPE
        )
        try:
            if process.stdout is None:
                raise RuntimeError("the console has no output")
            address, _, token = json.loads(await process.stdout.readline())["link"].partition("#token=")
            return await _measured(address, token, psutil.Process(process.pid))
        finally:
            process.terminate()
            await process.wait()


async def _measured(address: str, token: str, process: psutil.Process) -> list[Figure]:
    load = f"{PARTITIONS:,} partitions on {NODES} nodes, one viewer of the page {PAGE}"
    async with ClientSession(address, cookie_jar=CookieJar(unsafe=True)) as session:
        async with session.post(
            "/api/login", json={"token": token}, headers={"Sec-Fetch-Site": "none"}
        ) as answer:
            answer.raise_for_status()
        await _view(session, WARM_SECONDS)
        before, started = sum(process.cpu_times()[:2]), time.monotonic()
        seen = await _view(session, SECONDS)
        used, passed = sum(process.cpu_times()[:2]) - before, time.monotonic() - started
    note = f"{seen} observations in {passed:.0f} s"
    memory = process.memory_info().rss / (1 << 20)
    return [
        Figure("console", "resident memory", memory, "MiB", CONSOLE_MEMORY_TARGET, load),
        Figure("console", "CPU", 100 * used / passed, "% of a core", CONSOLE_CPU_TARGET, load, note),
    ]


async def _view(session: ClientSession, seconds: float) -> int:
    """Look for this long; returns how many observations there were."""
    until, seen = time.monotonic() + seconds, 0
    async with session.get("/api/events") as stream:
        while time.monotonic() < until:
            line = (await stream.content.readline()).decode()
            if not line:
                raise RuntimeError("the console ended its stream")
            if line.startswith("event: observation"):
                seen += 1
                async with session.get(f"/api/{PAGE}") as page:
                    await page.read()
    return seen
