"""What is not throughput: start of a full storage node, resident memory at rest, tasks and futures per turn
of the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bench.cluster import BenchCluster
from bench.figures import Figure
from bench.plan import (
    SERVER_RSS_TARGET,
    START_TARGET,
    STORAGE_RSS_TARGET,
    TASKS_TARGET,
    Plan,
    group_name,
)
from bench.reading import fill

COUNT_VARIABLE = "WALTZ_COUNT_TASKS"


def measure_memory(cluster: BenchCluster) -> list[Figure]:
    """Resident memory of idle processes (call right after the start)."""
    load = f"idle, {cluster.plan.partitions} partitions"
    group = group_name("resident memory", cluster.tls)
    storage = max(cluster.resident(role) for role in cluster.local.storage_roles)
    server = max(cluster.resident(role) for role in cluster.local.server_roles)
    return [
        Figure(group, "storage node", storage, "MiB", STORAGE_RSS_TARGET, load),
        Figure(group, "server", server, "MiB", SERVER_RSS_TARGET, load),
    ]


async def measure_start(cluster: BenchCluster) -> list[Figure]:
    """From starting the program to answering on its ports, after SIGTERM and after SIGKILL; the worse of two
    is counted."""
    held = await fill(cluster, cluster.plan.start_records)
    role = cluster.local.storage_roles[0]
    group = group_name("start of a storage node", cluster.tls)
    figures: list[Figure] = []
    load = f"at least {cluster.plan.start_records:,} records"
    for name, kill in (("after SIGTERM", False), ("after SIGKILL", True)):
        if kill:
            await cluster.local.kill_role(role)
        else:
            await cluster.local.stop_role(role)
        starting = asyncio.get_running_loop().time()
        await cluster.local.start_role(role, wait=False)
        await cluster.time_to_answer(role)
        seconds = asyncio.get_running_loop().time() - starting
        figures.append(Figure(group, name, seconds, "s", START_TARGET, load, f"{held:,} held"))
        await cluster.local.wait_ready(role)
    return figures


async def measure_tasks(directory: Path, plan: Plan) -> list[Figure]:
    """A cluster whose loops count, 10,000 pipelined appends, and what the loops made meanwhile."""
    async with BenchCluster.running(directory, plan, True, environment={COUNT_VARIABLE: "1"}) as cluster:
        roles = {"server": cluster.local.server_roles, "storage node": cluster.local.storage_roles}
        arguments = ["write", "--count", str(plan.counted_appends), "--in-flight", "2000", "--pipelined"]
        arguments += ["--partitions", str(plan.partitions)]
        with cluster.load(*arguments, in_flight_per_partition=2000 // plan.partitions) as child:
            # mounting is not part of the count: the load waits for a line before it appends
            await asyncio.to_thread(child.wait_line, "ready", 60.0)
            before = {role: await _counts(cluster, role) for of in roles.values() for role in of}
            child.send_line("go")
            await asyncio.to_thread(child.read_line, 120.0)
            after = {role: await _counts(cluster, role) for of in roles.values() for role in of}
    figures: list[Figure] = []
    for kind, of in roles.items():
        worst: Figure | None = None
        for role in of:
            figure = _per_turn(kind, plan, before[role], after[role])
            if worst is None or figure.value > worst.value:
                worst = figure
        if worst is not None:
            figures.append(worst)
    return figures


async def _counts(cluster: BenchCluster, role: str) -> dict[str, Any]:
    """Of a page that was made since the call: pages are made once a second at most."""
    await asyncio.sleep(1.1)
    gauges = (await cluster.metrics(role))["gauges"]
    names = ("tasks-created", "futures-created", "turns-by-created")
    return {name: gauges[f"waltz-runtime.{name}"]["value"] for name in names}


def _per_turn(kind: str, plan: Plan, before: dict[str, Any], after: dict[str, Any]) -> Figure:
    """Tasks and futures per turn that made any: an upper bound of the mean over all turns."""
    made = sum(after[name] - before[name] for name in ("tasks-created", "futures-created"))
    turns = [b - a for a, b in zip(before["turns-by-created"], after["turns-by-created"], strict=True)]
    busy = sum(turns)
    details = {"tasks_and_futures": made, "turns_by_created": turns, "appends": plan.counted_appends}
    load = f"{plan.counted_appends:,} appends pipelined over {plan.partitions} partitions"
    note = f"{made:,} made, in {busy:,} turns"
    value = made / busy if busy else 0.0
    return Figure(
        "tasks and futures made per loop turn", kind, value, "", TASKS_TARGET, load, note, details=details
    )
