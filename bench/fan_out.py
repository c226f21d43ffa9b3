"""Fan-out figures: what one more reader of the same tail costs the server, what open feeds cost it while
nothing happens, and one writer that appends a hundred at a time."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from bench.cluster import BenchCluster
from bench.figures import Figure, at_least, at_most
from bench.plan import Plan, group_name
from bench.processes import cpu_seconds
from waltz_tools.local import LocalCluster, LocalSettings

FOLLOWERS = 10
IN_FLIGHT = 1000
DELIVERED_TARGET = at_most(1.0)
MANY_TARGET = at_least(60_000)
IDLE_MEMORY_TARGET = at_most(1024.0)
IDLE_CPU_TARGET = at_most(2.0)


async def measure_fan_out(directory: Path, plan: Plan, tls: bool) -> list[Figure]:
    """All three; the first and last on a cluster of their own, with every feed on one server."""
    group = group_name("fan-out", tls)
    async with BenchCluster.running(directory / "tail", plan, tls) as cluster:
        figures = [*await _tail(cluster, group), await _many(cluster, group)]
    partitions = plan.takeover_partitions
    settings = LocalSettings(directory / "idle", partitions=partitions, servers=1, tls=tls)
    async with LocalCluster(settings) as local:
        cluster = BenchCluster(local, replace(plan, partitions=partitions), tls)
        return [*figures, *await _idle(cluster, group)]


async def _tail(cluster: BenchCluster, group: str) -> list[Figure]:
    async def followed(clients: int) -> dict[str, Any]:
        arguments = ["tail", "--clients", str(clients), "--partitions", str(cluster.plan.partitions)]
        arguments += ["--seconds", str(cluster.plan.seconds)]
        return await cluster.run_load(*arguments, in_flight_per_partition=IN_FLIGHT, module="bench.follow")

    pairs = [(await followed(0), await followed(FOLLOWERS)) for _ in range(cluster.plan.fan_out_pairs)]
    costs = [_of_each(alone, seen) for alone, seen in pairs]
    each = statistics.median(costs)
    load = f"{FOLLOWERS} clients with all data, {cluster.plan.partitions} partitions, 4,000 appends/s"
    shown = ", ".join(f"{one:.2f}" for one in costs)
    note = f"median of {shown}; {pairs[-1][1]['delivered']:,} delivered"
    details = {"pairs": pairs}
    name = "CPU of the servers per delivered transaction"
    return [Figure(group, name, each, "us", DELIVERED_TARGET, load, note, details=details)]


def _of_each(alone: dict[str, Any], seen: dict[str, Any]) -> float:
    """Microseconds per delivered transaction, without what as many appends cost when nobody reads."""
    without = float(alone["cpu_seconds"]["server"]) / max(1, int(alone["appended"]))
    more = float(seen["cpu_seconds"]["server"]) - without * int(seen["appended"])
    return 1e6 * more / max(1, int(seen["delivered"]))


async def _many(cluster: BenchCluster, group: str) -> Figure:
    arguments = ["many", "--seconds", str(cluster.plan.seconds)]
    found = await cluster.run_load(*arguments, in_flight_per_partition=IN_FLIGHT, module="bench.follow")
    rate = float(found["transactions_per_second"])
    note = f"CPU {found['cpu_us_per_transaction_total']:.0f} us each"
    name = "append_many of 100 by one writer"
    return Figure(group, name, rate, "/s", MANY_TARGET, "1 partition", note, details=found)


async def _idle(cluster: BenchCluster, group: str) -> list[Figure]:
    partitions, (server,) = cluster.plan.partitions, cluster.local.server_roles
    arguments = ["idle", "--clients", str(FOLLOWERS), "--partitions", str(partitions)]
    before = cluster.resident(server)
    with cluster.load(*arguments, in_flight_per_partition=IN_FLIGHT, module="bench.follow") as child:
        await asyncio.to_thread(child.wait_line, "ready", 180.0)
        await asyncio.sleep(cluster.plan.settle_seconds)
        process = psutil.Process(cluster.local.pid(server))
        used = cpu_seconds(process)
        await asyncio.sleep(cluster.plan.fan_out_idle_seconds)
        share = 100 * (cpu_seconds(process) - used) / cluster.plan.fan_out_idle_seconds
        resident = cluster.resident(server)
    load = f"{partitions * FOLLOWERS:,} open feeds of {partitions:,} partitions on one server"
    note = f"{before:.0f} MiB before any was opened"
    return [
        Figure(group, "resident memory of the server", resident, "MiB", IDLE_MEMORY_TARGET, load, note),
        Figure(group, "CPU of the server, idle", share, "% of a core", IDLE_CPU_TARGET, load),
    ]
