"""What a real Prometheus makes of a real cluster: the pages follow its conventions, each panel of the
dashboards has figures, and the shipped alerts fire for what they are about.

The rules are the shipped ones with a shorter `for`. What takes days (disks that fill, certificates that end)
or needs Kubernetes is fired by `tests/repo/test_alert_rules.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from tests.integration.prometheus import Prometheus, needs_prometheus
from tests.repo.dashboards.catalogue import DASHBOARDS, filled, is_of_spark
from tests.repo.promtool import check_metrics, needs_promtool
from waltz_client import Append, WaltzClient
from waltz_client.errors import WaltzClientError
from waltz_client.prometheus import PrometheusObserver
from waltz_operator.model.snapshot import Unknown
from waltz_operator.run.http import HealthServer
from waltz_operator.run.metrics import OperatorMetrics
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(420), needs_prometheus, needs_promtool]

CLUSTER = {"namespace": "demo", "app_kubernetes_io_instance": "ledger"}
OBJECT = ("demo", "ledger")


def an_operator() -> OperatorMetrics:
    """Its real registry, of a cluster that is well."""
    metrics = OperatorMetrics()
    metrics.holding_lease.set(1)
    seen = SimpleNamespace(nodes={}, servers={}, tree=Unknown("it was not asked"), kube=Unknown("nor this"))
    metrics.observed(OBJECT, cast("Any", seen), {"server": 4e9})
    metrics.wrote(OBJECT, "apply")
    metrics.blocked(OBJECT, (), 0.0)
    for gauge in (metrics._replicas, metrics._caught_up, metrics._partitions, metrics._quorum):
        gauge.labels(*OBJECT).set(8)
    metrics._zookeeper.labels(*OBJECT).set(0)
    return metrics


@contextlib.asynccontextmanager
async def operator_page() -> AsyncIterator[int]:
    """Served by the operator's own HTTP port, while it makes a pass every half second."""
    metrics = an_operator()
    server = HealthServer(metrics, lambda: "", lambda: "")
    await server.start("127.0.0.1", 0)

    async def passes() -> None:
        while not stop.is_set():
            metrics.pass_done(OBJECT, 0.1, time.monotonic(), None)
            await asyncio.sleep(0.5)

    stop = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(passes())
            yield server.port
            stop.set()
    finally:
        await server.close()


@contextlib.contextmanager
def client_page(registry: CollectorRegistry) -> Iterator[int]:
    """As an application serves it."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def page(port: int) -> str:
    """`/metrics` as Prometheus asks for it."""

    def fetch() -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Accept": "text/plain;version=0.0.4"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(answer.read(), "utf-8")

    return await asyncio.to_thread(fetch)


async def write(client: WaltzClient, stop: asyncio.Event) -> None:
    """A little of everything, whatever happens to the cluster."""
    while not stop.is_set():
        with contextlib.suppress(WaltzClientError):
            many = [Append(partition, b"x" * 200) for partition in range(4)]
            await client.append_many(many, deadline_seconds=5)
            await client.append(partition=0, data=b"y", deadline_seconds=5)
        await asyncio.sleep(0.02)


async def test_pages_dashboards_and_alerts(tmp_path: Path) -> None:
    settings = LocalSettings(tmp_path / "cluster", partitions=4, servers=2, tls=True)
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    async with (
        LocalCluster(settings) as cluster,
        operator_page() as operator,
        WaltzClient.connect(cluster.client_config, observers=[observer]) as client,
    ):
        with client_page(registry) as own:
            observer.watch(client, "load")
            roles = {
                role: cluster.port(role, "http") for role in (*cluster.storage_roles, *cluster.server_roles)
            }
            targets = [
                (port, CLUSTER | {"pod": role, "app_kubernetes_io_component": role.partition("-")[0]})
                for role, port in roles.items()
            ]
            targets += [(operator, {}), (own, {"pod": "application"})]
            stop = asyncio.Event()
            async with (
                Prometheus.running(tmp_path / "prometheus", targets) as prometheus,
                asyncio.TaskGroup() as group,
            ):
                group.create_task(write(client, stop))
                try:
                    for port in (roles["server-1"], roles["storage-1"], operator, own):
                        check_metrics(await page(port))
                    await dashboards_have_figures(prometheus)
                    await alerts_fire(cluster, prometheus)
                finally:
                    stop.set()


async def dashboards_have_figures(prometheus: Prometheus) -> None:
    empty = ["not asked yet"]
    for _ in range(30):  # until the slowest has been scraped twice
        empty = [
            f"{one.title}, {panel.title}: {expr}"
            for one in DASHBOARDS
            if not is_of_spark(one)
            for panel in one.panels
            if not panel.sparse
            for query in panel.queries
            for expr in [filled(query.expr, rate="15s", namespace="demo", cluster="ledger", name="ledger")]
            if not await prometheus.numbers(expr)
        ]
        if not empty:
            return
        await asyncio.sleep(1)
    raise AssertionError("\n".join(empty))


async def alerts_fire(cluster: LocalCluster, prometheus: Prometheus) -> None:
    """One fault after another, each made good before the next."""
    await prometheus.until_silent()
    await cluster.kill_role("storage-1")
    await prometheus.until_firing("WaltzProcessDown", CLUSTER | {"pod": "storage-1"})
    await prometheus.until_firing("WaltzReplicaNotVoting", CLUSTER)
    assert "WaltzPartitionUnavailable" not in await prometheus.firing(), "two of three are a quorum"
    await cluster.kill_role("storage-2")
    await prometheus.until_firing("WaltzPartitionUnavailable", CLUSTER | {"partition": "3"})
    for role in ("storage-1", "storage-2"):
        await cluster.start_role(role)
    await prometheus.until_silent()

    await cluster.stop_role("server-1")
    await prometheus.until_firing("WaltzProcessDown", {"pod": "server-1"})
    await cluster.stop_role("server-2")
    await prometheus.until_firing("WaltzPartitionUnowned", CLUSTER)
    for role in ("server-1", "server-2"):
        await cluster.start_role(role)
    await cluster.wait_serving()
    await prometheus.until_silent()

    cluster.override("storage-3", {"storage.disk.reserveBytes": 1 << 60})
    await cluster.restart_role("storage-3")
    await prometheus.until_firing("WaltzDiskFull", {"pod": "storage-3"})
