"""Failover figures: how long no append is acknowledged after a process is killed, frozen or asked to leave.

Writers run on all partitions all the time; a gap is the longest time between two acknowledged appends of one
partition, and the figure is the worst partition's. Where its time went is in the details, by the log of the
server that took over.
"""

from __future__ import annotations

import asyncio
import json
import time

from bench.cluster import BenchCluster
from bench.failover_steps import failover_steps
from bench.figures import Figure, Target
from bench.plan import (
    SERVER_STOP_TARGET,
    SERVER_TERM_TARGET,
    STORAGE_KILL_TARGET,
    group_name,
    server_kill_target,
)
from bench.processes import Child

WRITERS_PER_PARTITION = 4
KILL, TERM, STOP = "SIGKILL", "SIGTERM", "SIGSTOP"


async def measure_failover(cluster: BenchCluster) -> list[Figure]:
    """Gaps after SIGKILL of a storage node and of a server, after SIGTERM and SIGSTOP of a server."""
    load = f"{WRITERS_PER_PARTITION} closed-loop writers in each of {cluster.plan.partitions} partitions"
    group = group_name("longest time without an acknowledged append", cluster.tls)
    timeout_seconds = cluster.plan.session_timeout_ms / 1000
    settle = cluster.plan.settle_seconds
    storage, server = cluster.local.storage_roles[-1], cluster.local.server_roles[-1]
    steps: tuple[tuple[str, str, str, float, Target], ...] = (
        ("SIGKILL of a storage node", storage, KILL, settle, STORAGE_KILL_TARGET),
        ("SIGTERM of a server", server, TERM, settle, SERVER_TERM_TARGET),
        (
            f"SIGKILL of a server (session timeout {timeout_seconds:g} s)",
            server,
            KILL,
            timeout_seconds + settle,
            server_kill_target(cluster.plan.session_timeout_ms),
        ),
        (
            f"SIGSTOP of a server (session timeout {timeout_seconds:g} s)",
            server,
            STOP,
            timeout_seconds + settle,
            SERVER_STOP_TARGET,
        ),
    )
    figures: list[Figure] = []
    arguments = [
        "watch",
        "--partitions",
        str(cluster.plan.partitions),
        "--in-flight",
        str(WRITERS_PER_PARTITION),
    ]
    with cluster.load(*arguments, in_flight_per_partition=WRITERS_PER_PARTITION) as child:
        await asyncio.to_thread(child.wait_line, "ready", 30.0)
        for name, role, how, settle_seconds, target in steps:
            await longest_gap(child, 1.0)  # forget what was before
            began = time.time()
            if how == KILL:
                await cluster.local.kill_role(role)
            elif how == STOP:
                cluster.local.pause_role(role)
            else:
                await cluster.local.stop_role(role)
            gap, gaps = await longest_gap(child, settle_seconds)
            details = {"per_partition": gaps, "steps": steps_after(cluster, role, began)}
            figures.append(Figure(group, name, gap, "s", target, load, details=details))
            if how == STOP:
                cluster.local.resume_role(role)
            else:
                await cluster.local.start_role(role)
            await cluster.local.wait_serving()
            await asyncio.sleep(settle / 2)  # partitions move back to the returned server
    return figures


def steps_after(cluster: BenchCluster, ended: str, began: float) -> dict[str, dict[str, float]]:
    """Of each other server: see `failover_steps`."""
    others = [role for role in cluster.local.server_roles if role != ended]
    logs = {role: cluster.local.log_path(role).read_text().splitlines() for role in others}
    return {role: failover_steps(lines, began) for role, lines in logs.items()}


async def longest_gap(child: Child, after_seconds: float, question: str = "gap") -> tuple[float, list[float]]:
    """Wait, then ask the writers for the longest gap of each partition since the question before."""
    await asyncio.sleep(after_seconds)
    child.send_line(question)
    gaps: list[float] = json.loads(await asyncio.to_thread(child.read_line, 30.0))
    return max(gaps), gaps
