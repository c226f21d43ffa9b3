"""A server with half of many partitions is killed: how long until each of them takes appends again, and what
it costs the server that takes over.

With the node journal and without it, and with two loads: an append in each partition every second, which
leaves the machine room; and one closed-loop writer in each, which takes all of it before and after. The
processor time of the roles says more than the pause on a machine that is busy otherwise.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import psutil

from bench.cluster import BenchCluster
from bench.failover import longest_gap, steps_after
from bench.figures import Figure, at_most
from bench.plan import Plan, group_name
from bench.processes import Child, cpu_seconds

SESSION_TIMEOUT_MS = 10_000
SETTLE_SECONDS = 4.0
"""At least; it is watched on until every partition takes appends."""
MOST_SECONDS = 90.0
LOOK_SECONDS = 2.0
TAKEOVER_TARGET = at_most(2.0)
JOURNAL = "storage.journal.enabled"


async def measure_takeover(directory: Path, plan: Plan, tls: bool) -> list[Figure]:
    """The longest pause of a partition after SIGKILL of a server, for each load; steps, pauses and processor
    time in the details."""
    plan = replace(plan, partitions=plan.takeover_partitions, session_timeout_ms=SESSION_TIMEOUT_MS)
    figures = []
    for journal in (True, False):
        where, overrides = directory / ("journal" if journal else "plain"), {"storage": {JOURNAL: journal}}
        async with BenchCluster.running(where, plan, tls, overrides=overrides) as cluster:
            killed = cluster.local.server_roles[-1]
            for number, every in enumerate(plan.takeover_paces):
                if number:
                    await cluster.local.start_role(killed)
                    await cluster.local.wait_serving()
                    await asyncio.sleep(plan.settle_seconds)  # partitions move back to it
                figures.append(await _killed(cluster, killed, every, journal))
    return figures


async def _killed(cluster: BenchCluster, killed: str, every_seconds: float, journal: bool) -> Figure:
    partitions = cluster.plan.partitions
    processes = {
        role: psutil.Process(cluster.local.pid(role)) for role in cluster.local.roles if role != killed
    }
    arguments = ["watch", "--partitions", str(partitions), "--in-flight", "1", "--every", str(every_seconds)]
    with cluster.load(*arguments, in_flight_per_partition=1) as child:
        await asyncio.to_thread(child.wait_line, "ready", 120.0)
        await longest_gap(child, cluster.plan.settle_seconds, "from now")  # forget what was before
        before = {role: cpu_seconds(process) for role, process in processes.items()}
        began = time.time()
        await cluster.local.kill_role(killed)
        gaps = await _until_all_are_back(child, partitions)
        watched = time.time() - began
        used = {role: cpu_seconds(process) - before[role] for role, process in processes.items()}
    gaps.sort()
    moved = gaps[len(gaps) // 2 :]
    details = {
        "median of the half that paused longest": moved[len(moved) // 2],
        f"processor seconds of each role in {watched:.0f} s, with the writers' appends": {
            role: round(seconds, 2) for role, seconds in used.items()
        },
        "steps": steps_after(cluster, killed, began),
    }
    writer = f"an append every {every_seconds:g} s" if every_seconds else "1 closed-loop writer"
    with_journal = "journal" if journal else "no journal"
    group = group_name(f"longest time without an acknowledged append, {with_journal}", cluster.tls)
    name, load = (
        f"SIGKILL of a server, {partitions} partitions",
        f"{writer} in each of {partitions} partitions",
    )
    return Figure(group, name, gaps[-1], "s", TAKEOVER_TARGET, load, details=details)


async def _until_all_are_back(child: Child, partitions: int) -> list[float]:
    """The longest gap of each partition. A window of fixed length would cut off the longest ones."""
    longest = [0.0] * partitions
    began = time.monotonic()
    while True:
        last, gaps = await longest_gap(child, LOOK_SECONDS)
        longest = list(map(max, longest, gaps))
        seconds = time.monotonic() - began
        if seconds > MOST_SECONDS or (seconds > SETTLE_SECONDS and last < LOOK_SECONDS):
            return longest
