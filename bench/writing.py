"""Write figures: each load on the cluster, then the same window through the bare pipeline, in the same
run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bench.cluster import BenchCluster
from bench.figures import Figure
from bench.limit import run_limit
from bench.plan import (
    PIPELINED,
    WriteMode,
    cpu_target,
    group_name,
    p50_target,
    rate_target,
    ratio_target,
)


async def measure_writing(cluster: BenchCluster, limit_directory: Path) -> list[Figure]:
    """Figures of every write mode of the plan."""
    figures: list[Figure] = []
    for mode in cluster.plan.modes:
        ours = await run_mode(cluster, mode)
        limit = await _run_limit(cluster, mode, limit_directory, files=mode.partitions)
        figures += _figures(mode, cluster.tls, ours, limit)
        if mode == PIPELINED:
            one = await _run_limit(cluster, mode, limit_directory, files=1)
            rate, limit_rate = figures[-1].value * _rate(limit), _rate(one)
            group = group_name("writing", cluster.tls)
            note = f"limit {limit_rate:,.0f}/s"
            name = "ours / limit with one file for all partitions"
            figures.append(Figure(group, name, rate / limit_rate, "", None, mode.load, note, details=one))
    return figures


async def measure_window(cluster: BenchCluster) -> list[Figure]:
    """What a longer window of a client brings in appends per second, and what it costs in latency."""
    figures: list[Figure] = []
    for partitions in (1, 8):
        for window in cluster.plan.windows:
            mode = WriteMode(window * partitions, partitions, pipelined=True)
            ours = await run_mode(cluster, mode)
            rate, cpu = _rate(ours), per_role(ours["cpu_us_per_transaction"])
            group = group_name("window", cluster.tls)
            figures += [
                Figure(group, "appends per second", rate, "/s", None, mode.load, cpu, details={"load": ours}),
                Figure(group, "p50", float(ours["p50_ms"]), "ms", None, mode.load),
                Figure(group, "p99", float(ours["p99_ms"]), "ms", None, mode.load),
            ]
    return figures


async def _run_limit(
    cluster: BenchCluster, mode: WriteMode, directory: Path, *, files: int
) -> dict[str, object]:
    """The bare pipeline with the same window."""
    return await asyncio.to_thread(
        run_limit,
        tls=cluster.tls,
        in_flight=mode.in_flight,
        seconds=min(cluster.plan.seconds, 3.0),
        payload_bytes=cluster.plan.payload_bytes,
        files=files,
        directory=directory,
    )


def _rate(result: dict[str, Any]) -> float:
    return float(result["transactions_per_second"])


async def run_mode(cluster: BenchCluster, mode: WriteMode) -> dict[str, Any]:
    """What the load process says about one mode."""
    arguments = ["write", "--partitions", str(mode.partitions), "--in-flight", str(mode.in_flight)]
    arguments += ["--seconds", str(cluster.plan.seconds), "--payload", str(cluster.plan.payload_bytes)]
    arguments += ["--locks", str(mode.locks)]
    if mode.pipelined:
        arguments.append("--pipelined")
    per_partition = max(1, -(-mode.in_flight // mode.partitions))
    return await cluster.run_load(*arguments, in_flight_per_partition=per_partition)


def _figures(mode: WriteMode, tls: bool, ours: dict[str, Any], limit: dict[str, Any]) -> list[Figure]:
    group = group_name("writing", tls)
    rate, limit_rate = _rate(ours), _rate(limit)
    cpu: dict[str, float] = ours["cpu_us_per_transaction"]
    details = {
        "label": mode.label,
        "p50_ms": ours["p50_ms"],
        "p99_ms": ours["p99_ms"],
        "limit_per_second": limit_rate,
        "ratio_to_limit": rate / limit_rate,
        **{f"cpu_us_{role}": us for role, us in cpu.items()},
        "limit": limit,
        "load": ours,
    }
    failed = f"{ours['failed']} failed" if ours["failed"] else ""
    total = float(ours["cpu_us_per_transaction_total"])
    return [
        Figure(
            group,
            "appends per second",
            rate,
            "/s",
            rate_target(mode, tls),
            mode.load,
            failed,
            details=details,
        ),
        Figure(group, "p50", float(ours["p50_ms"]), "ms", p50_target(mode, tls), mode.load),
        Figure(group, "p99", float(ours["p99_ms"]), "ms", None, mode.load),
        Figure(group, "CPU per append", total, "us", cpu_target(mode, tls), mode.load, per_role(cpu)),
        Figure(
            group,
            "ours / limit",
            rate / limit_rate,
            "",
            ratio_target(mode, tls),
            mode.load,
            f"limit {limit_rate:,.0f}/s",
        ),
    ]


def per_role(cpu_us: dict[str, float]) -> str:
    """`server 20.1, storage 30.2, client 9.9`."""
    return ", ".join(f"{role} {us:.1f}" for role, us in cpu_us.items())
