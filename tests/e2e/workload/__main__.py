"""`python -m workload CLIENT.yml`: writes to every partition, and answers on port 8080.

POST /round?interval=SECONDS begins a measurement, with an append per partition so often (rarely to those
named by &rare=PARTITION), and answers with the totals so far; GET /round ends none and answers with what came
since: acknowledged, longest gap in seconds. POST /lap: the longest gap since the last lap, a part of the
round. GET /check?from=round|start reads the log and judges it. GET /ready: 200 once every partition has
acknowledged something. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
import uuid

from aiohttp import web

from waltz_client import WaltzClient

from .record import Record
from .writer import check, write

PORT = 8080


class Load:
    """The running load. Owner of the record: the writers; this class only reads it."""

    def __init__(self, config: str) -> None:
        self.record = Record(uuid.uuid4().hex[:12])
        self._config = config
        self._before: dict[str, int] = {}
        self._after: dict[int, int] = {}
        self._clock = time.monotonic()

    async def begin(self, request: web.Request) -> web.Response:
        """A round begins."""
        self.record.interval_seconds = float(request.query["interval"])
        self.record.rare = frozenset(int(one) for one in request.query.getall("rare", ()))
        self._clock = time.monotonic()
        self._before = self.record.totals()
        for partition, part in self.record.partitions.items():
            part.start_round(self._clock)
            self._after[partition] = max(part.acknowledged.values(), default=-1)
        return web.json_response(self._before)

    async def show(self, request: web.Request) -> web.Response:
        """The round until now."""
        now, totals = time.monotonic(), self.record.totals()
        gaps = {number: part.longest_gap(now) for number, part in self.record.partitions.items()}
        return web.json_response(
            {
                **{name: count - self._before.get(name, 0) for name, count in totals.items()},
                "seconds": now - self._clock,
                "longest_gap_seconds": max(gaps.values(), default=0.0),
                "gaps": gaps,
            }
        )

    async def lap(self, request: web.Request) -> web.Response:
        """One part of the round is over."""
        now = time.monotonic()
        gaps = [part.lap(now) for part in self.record.partitions.values()]
        return web.json_response({"longest_gap_seconds": max(gaps, default=0.0)})

    async def judge(self, request: web.Request) -> web.Response:
        """Read and judge, from the beginning of the round or of the log."""
        after = self._after if request.query.get("from") == "round" else {}
        try:
            verdict = await check(self._config, self.record, after)
        except Exception as error:  # the driver decides what an answer that cannot be had means
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=503)
        return web.json_response(verdict.as_json())

    async def ready(self, request: web.Request) -> web.Response:
        """Whether every partition is being written."""
        parts = self.record.partitions.values()
        writing = bool(parts) and all(part.acknowledged for part in parts)
        return web.json_response({"ready": writing}, status=200 if writing else 503)


async def run(config: str) -> None:
    """Write and answer until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    load = Load(config)
    app = web.Application()
    app.router.add_post("/round", load.begin)
    app.router.add_get("/round", load.show)
    app.router.add_post("/lap", load.lap)
    app.router.add_get("/check", load.judge)
    app.router.add_get("/ready", load.ready)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, None, PORT).start()
    try:
        async with WaltzClient.connect(config) as client, asyncio.TaskGroup() as group:
            for partition in range(client.num_partitions):
                group.create_task(write(client, load.record, partition, stop))
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
