"""Reads of compressed blocks against reads of the same blocks as they are, in turn on one cluster: JSON
documents, for random bytes do not shrink."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.cluster import BenchCluster
from bench.figures import Figure
from bench.plan import Plan, group_name
from bench.writing import per_role

ROUNDS = 5
WRITE_SECONDS = 300.0
WAYS = ("none", "zstd")


async def measure_compressed(directory: Path, plan: Plan, tls: bool) -> list[Figure]:
    """Bytes on the wire, transactions per second and processor time, of one client that reads everything."""
    plan = replace(plan, partitions=8)
    count = plan.read_at_least
    async with BenchCluster.running(directory, plan, tls) as cluster:
        partitions = ("--partitions", str(plan.partitions))
        await _write(cluster, count, partitions)
        reads: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        await cluster.run_load("read", *partitions, "--data")
        for _ in range(ROUNDS):
            for way in WAYS:
                reads[way].append(await cluster.run_load("read", *partitions, "--data", "--compression", way))
        before, after = await _bytes(cluster, "before"), await _bytes(cluster, "after")
    return _figures(group_name("reading compressed blocks", tls), count, reads, after / before)


async def _write(cluster: BenchCluster, count: int, partitions: tuple[str, str]) -> None:
    arguments = [
        "write",
        *partitions,
        "--in-flight",
        "2000",
        "--pipelined",
        "--documents",
        "--count",
        str(count),
    ]
    with cluster.load(*arguments, in_flight_per_partition=250) as child:
        await asyncio.to_thread(child.wait_line, "ready", 60.0)
        child.send_line("go")
        await asyncio.to_thread(child.read_line, WRITE_SECONDS)


async def _bytes(cluster: BenchCluster, side: str) -> float:
    name = f"waltz-server.feed-bytes-{side}-compression"
    found = [await cluster.metrics(role) for role in cluster.local.server_roles]
    return float(sum(page["meters"][name]["count"] for page in found))


def _figures(group: str, count: int, reads: dict[str, list[dict[str, Any]]], share: float) -> list[Figure]:
    load = f"1 client, 8 partitions, {count:,} JSON documents"
    figures = [Figure(group, "bytes sent, of those of the records", 100 * share, "%", None, load)]
    rates = {way: [float(read["transactions_per_second"]) for read in reads[way]] for way in WAYS}
    for way in WAYS:
        each = [read["cpu_us_per_transaction"] for read in reads[way]]
        by_role = {role: median(read[role] for read in each) for role in each[0]}
        cpu = sum(by_role.values())
        figures += [
            Figure(group, f"transactions per second, {way}", median(rates[way]), "/s", None, load),
            Figure(group, f"CPU per transaction, {way}", cpu, "us", None, load, per_role(by_role)),
        ]
    ratio = median(zstd / none for none, zstd in zip(rates["none"], rates["zstd"], strict=True))
    details = {"reads": reads}
    figures.append(Figure(group, "rate, of that without", 100 * ratio, "%", None, load, details=details))
    return figures
