"""A server with half of many partitions is killed: how long until each of them takes appends again, and what
it costs the server that takes over.

One closed-loop writer in each partition, so the machine has as much to do before and after. The processor
time of the roles says more than the pause on a machine that is busy otherwise.
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
SETTLE_SECONDS = 10.0
"""At least; it is watched on until every partition takes appends."""
MOST_SECONDS = 90.0
LOOK_SECONDS = 2.0
TAKEOVER_TARGET = at_most(2.0, binding=True)


async def measure_takeover(directory: Path, plan: Plan, tls: bool) -> list[Figure]:
    """The longest pause of a partition after SIGKILL of a server; steps, pauses and processor time in the
    details."""
    plan = replace(plan, partitions=plan.takeover_partitions, session_timeout_ms=SESSION_TIMEOUT_MS)
    load = f"1 closed-loop writer in each of {plan.partitions} partitions"
    async with BenchCluster.running(directory, plan, tls) as cluster:
        killed = cluster.local.server_roles[-1]
        processes = {
            role: psutil.Process(cluster.local.pid(role)) for role in cluster.local.roles if role != killed
        }
        arguments = ["watch", "--partitions", str(plan.partitions), "--in-flight", "1"]
        with cluster.load(*arguments, in_flight_per_partition=1) as child:
            await asyncio.to_thread(child.wait_line, "ready", 120.0)
            await longest_gap(child, plan.settle_seconds)  # forget what was before
            before = {role: cpu_seconds(process) for role, process in processes.items()}
            began = time.time()
            await cluster.local.kill_role(killed)
            gaps = await _until_all_are_back(child, plan.partitions)
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
    name = f"SIGKILL of a server, {plan.partitions} partitions"
    group = group_name("longest time without an acknowledged append", tls)
    return [Figure(group, name, gaps[-1], "s", TAKEOVER_TARGET, load, details=details)]


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
