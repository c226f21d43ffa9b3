"""The cluster under test: a `LocalCluster` (every role a process), its metrics over HTTP, its loads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from bench.plan import Plan
from bench.processes import Child, resident_mib, start_role
from waltz_tools.local.cluster import LocalCluster, LocalSettings

ANSWER_SECONDS = 120.0


class BenchCluster:
    """Owner of one local cluster. Everything blocking goes through a thread: the loop belongs to the
    cluster."""

    def __init__(self, local: LocalCluster, plan: Plan, tls: bool) -> None:
        self.local = local
        self.plan = plan
        self.tls = tls

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        directory: Path,
        plan: Plan,
        tls: bool,
        *,
        environment: Mapping[str, str] | None = None,
        overrides: Mapping[str, Mapping[str, object]] | None = None,
    ) -> AsyncIterator[BenchCluster]:
        """A new cluster under `directory`, stopped at the end. `overrides`: see `LocalSettings`."""
        settings = LocalSettings(
            directory=directory,
            partitions=plan.partitions,
            tls=tls,
            session_timeout_ms=plan.session_timeout_ms,
            environment=environment or {},
            overrides=overrides or {},
        )
        async with LocalCluster(settings) as local:
            yield cls(local, plan, tls)

    @property
    def pids(self) -> dict[str, list[int]]:
        """Process ids per kind of role that carries appends."""
        return {
            "server": [
                self.local.pid(role) for role in self.local.server_roles if self.local.is_running(role)
            ],
            "storage": [
                self.local.pid(role) for role in self.local.storage_roles if self.local.is_running(role)
            ],
        }

    def resident(self, role: str) -> float:
        """Resident memory in MiB."""
        return resident_mib(self.local.pid(role))

    async def metrics(self, role: str) -> dict[str, Any]:
        """`/metrics` of a role as JSON."""
        url = f"http://127.0.0.1:{self.local.port(role, 'http')}/metrics"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})

        def fetch() -> dict[str, Any]:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found

        return await asyncio.to_thread(fetch)

    async def records_on(self, role: str) -> int:
        """Transactions a storage node holds over all partitions, as its gauges say."""
        gauges = (await self.metrics(role))["gauges"]
        marks = [g.get("value") for name, g in gauges.items() if name.endswith(".max-transaction-id")]
        return sum(mark + 1 for mark in marks if isinstance(mark, int) and mark >= 0)

    def client_config(self, in_flight_per_partition: int) -> Path:
        """Configuration file of a client with which that many appends may be outstanding in a partition."""
        self.local.override("client", {"client.maxConcurrentTransactions": in_flight_per_partition})
        return self.local.client_config

    async def run_load(
        self, *arguments: str, in_flight_per_partition: int = 5, module: str = "bench.load"
    ) -> dict[str, Any]:
        """Run one load process to its end; its JSON answer."""
        with self.load(*arguments, in_flight_per_partition=in_flight_per_partition, module=module) as child:
            found: dict[str, Any] = json.loads(await asyncio.to_thread(child.read_line, ANSWER_SECONDS))
            return found

    @contextlib.contextmanager
    def load(self, *arguments: str, in_flight_per_partition: int = 5, module: str = "bench.load") -> Any:
        """A load process, stopped at the end."""
        config = self.client_config(in_flight_per_partition)
        child: Child = start_role(module, [str(config), *arguments, "--pids", json.dumps(self.pids)])
        try:
            yield child
        finally:
            child.stop()

    async def time_to_answer(self, role: str) -> float:
        """Seconds from now until the role's storage port accepts a connection and its HTTP port answers."""
        started = time.perf_counter()
        while not await asyncio.to_thread(self._answers, role):
            if time.perf_counter() - started > ANSWER_SECONDS:
                break
            await asyncio.sleep(0.005)
        return time.perf_counter() - started

    def _answers(self, role: str) -> bool:
        try:
            for name in ("storage", "http"):
                with socket.create_connection(("127.0.0.1", self.local.port(role, name)), timeout=0.5):
                    pass
        except OSError:
            return False
        return True
