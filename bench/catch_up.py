"""A storage node that is far behind, and readers of what no server has in its cache: both with version 0 of
the storage protocol, that of release 0.13.2, and with version 1, in turn on one cluster.

The node was stopped while the others took the records; it is started again next to a few closed-loop writers,
and is behind no longer when it holds what there was then. The servers cache no transactions, so whatever a
client reads comes from the storage nodes.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

from bench.cluster import BenchCluster
from bench.figures import Figure
from bench.plan import CATCH_UP_TARGET, Plan, group_name
from bench.processes import BenchError, cpu_seconds
from bench.reading import fill

VERSIONS = (0, 1)
WRITERS_PER_PARTITION = 1
POLL_SECONDS = 0.05
MOST_SECONDS = 300.0
SERVER_KEYS: dict[str, object] = {
    "server.transactionDataCacheSize": 0,
    "server.feedCacheSize": 0,
    "storage.maxRetryInterval": 500,
}


class Filled(NamedTuple):
    """One node filled: records per second, and microseconds of processor time for a record."""

    rate: float
    server_us: float
    storage_us: float


async def measure_catch_up(directory: Path, plan: Plan, tls: bool) -> list[Figure]:
    """Records per second that a node which is behind receives, and the cost of reads from storage nodes."""
    plan = replace(plan, partitions=8)
    async with BenchCluster.running(directory, plan, tls, overrides={"server": SERVER_KEYS}) as cluster:
        behind = cluster.local.storage_roles[-1]
        await cluster.local.stop_role(behind)
        kept = directory / "behind"
        await asyncio.to_thread(shutil.copytree, cluster.local.storage_directory(behind), kept)
        held = await fill(cluster, plan.catch_up_records)
        filled: dict[int, list[Filled]] = {version: [] for version in VERSIONS}
        reads: dict[int, list[dict[str, Any]]] = {version: [] for version in VERSIONS}
        for _ in range(plan.catch_up_rounds):
            for version in VERSIONS:
                await _speak(cluster, version)
                reads[version].append(await _read(cluster))
                filled[version].append(await _fill_node(cluster, behind, kept, held))
    return _figures(tls, held, filled, reads)


async def _speak(cluster: BenchCluster, version: int) -> None:
    cluster.local.override("server", {"storage.maxProtocolVersion": version})
    for role in cluster.local.server_roles:
        await cluster.local.restart_role(role)
    await cluster.local.wait_serving()


async def _read(cluster: BenchCluster) -> dict[str, Any]:
    return await cluster.run_load("read", "--data", "--partitions", str(cluster.plan.partitions))


async def _fill_node(cluster: BenchCluster, behind: str, kept: Path, held: int) -> Filled:
    local = cluster.local
    if local.is_running(behind):
        await local.stop_role(behind)
    target = local.storage_directory(behind)
    await asyncio.to_thread(shutil.rmtree, target)
    await asyncio.to_thread(shutil.copytree, kept, target)
    partitions = cluster.plan.partitions
    arguments = ["watch", "--partitions", str(partitions), "--in-flight"]
    arguments.append(str(WRITERS_PER_PARTITION * partitions))
    with cluster.load(*arguments, in_flight_per_partition=WRITERS_PER_PARTITION) as child:
        await asyncio.to_thread(child.wait_line, "ready", 60.0)
        await local.start_role(behind)
        start = await cluster.records_on(behind)
        began, before = time.perf_counter(), _cpu(cluster)
        given_up = began + MOST_SECONDS
        while await cluster.records_on(behind) <= start:  # it is not connected yet
            began, before = time.perf_counter(), _cpu(cluster)
            if began > given_up:
                raise BenchError(f"{behind} receives no records")
            await asyncio.sleep(POLL_SECONDS)
        while (now := await cluster.records_on(behind)) < held:
            if time.perf_counter() > given_up:
                raise BenchError(f"{behind} has {now:,} of {held:,} records")
            await asyncio.sleep(POLL_SECONDS)
        seconds, count = time.perf_counter() - began, now - start
        server, storage = (after - earlier for after, earlier in zip(_cpu(cluster), before, strict=True))
    return Filled(count / seconds, server / count * 1e6, storage / count * 1e6)


def _cpu(cluster: BenchCluster) -> tuple[float, float]:
    server, storage = (
        sum(cpu_seconds(psutil.Process(pid)) for pid in cluster.pids[kind]) for kind in ("server", "storage")
    )
    return server, storage


def _figures(
    tls: bool, held: int, filled: dict[int, list[Filled]], reads: dict[int, list[dict[str, Any]]]
) -> list[Figure]:
    figures: list[Figure] = []
    group = group_name("catching up", tls)
    load = f"{held:,} behind, {WRITERS_PER_PARTITION} closed-loop writer in each of 8 partitions"
    for version in VERSIONS:
        nodes, read = filled[version], reads[version]
        best = max(nodes)
        note = f"CPU per record: server {best.server_us:.1f}, storage {best.storage_us:.1f} us"
        target = CATCH_UP_TARGET if version else None
        details = {"all": [one._asdict() for one in nodes], "reads": read}
        figures.append(
            Figure(
                group,
                f"records per second, version {version}",
                best.rate,
                "/s",
                target,
                load,
                note,
                details=details,
            )
        )
        rate = median(float(one["transactions_per_second"]) for one in read)
        total = median(float(one["cpu_us_per_transaction_total"]) for one in read)
        figures.append(
            Figure(
                group,
                f"read from storage nodes, version {version}",
                rate,
                "/s",
                None,
                "1 client",
                f"{total:.1f} us CPU",
            )
        )
    return figures
