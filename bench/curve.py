"""Appends over more and more partitions, with the node journal and without it, next to each other; what it
costs in disk; and the start of a node whose journal is full.

Each pair of clusters, with the journal and without, runs one right after the other, and so does the yardstick
with a preallocated journal (`limit.py --journal`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.cluster import BenchCluster
from bench.figures import Figure
from bench.limit import run_limit
from bench.plan import (
    CURVE_DISK_TARGET,
    CURVE_PIPELINED_TARGETS,
    CURVE_WRITER_TARGETS,
    FULL_JOURNAL_START_TARGET,
    Plan,
    WriteMode,
    group_name,
)
from bench.processes import written_bytes
from bench.writing import per_role, run_mode

JOURNAL = "storage.journal.enabled"
JOURNAL_FILE_BYTES = "storage.journal.fileBytes"
JOURNAL_FILES = 4
"""The default of a storage node."""
WRITERS = 50
IN_FLIGHT = 2000


async def measure_curve(directory: Path, plan: Plan, tls: bool, name: str = "curve") -> list[Figure]:
    """All points of the curve, and the start with a full journal. `name`: of what is made in `directory`."""
    figures: list[Figure] = []
    for count in plan.curve_partitions:
        modes = (
            WriteMode(WRITERS, count),
            WriteMode(max(IN_FLIGHT, count), count, pipelined=True),
        )
        found: dict[bool, list[Figure]] = {}
        for journal in (True, False):
            where = directory / f"{name}-{count}-{'tls' if tls else 'plain'}-{'on' if journal else 'off'}"
            of_count = replace(plan, partitions=count)
            overrides = {"storage": {JOURNAL: journal, JOURNAL_FILE_BYTES: plan.curve_journal_file_bytes}}
            async with BenchCluster.running(where, of_count, tls, overrides=overrides) as cluster:
                found[journal] = [one for mode in modes for one in await _point(cluster, mode, journal)]
                if journal and count == plan.curve_partitions[0]:
                    figures.append(await _start_with_full_journal(cluster))
        figures += found[True] + found[False]
        figures += [await _limit(directory, plan, tls, mode, found[True]) for mode in modes]
    return figures


async def _point(cluster: BenchCluster, mode: WriteMode, journal: bool) -> list[Figure]:
    group = _group(cluster.tls, journal)
    held, written = await _held(cluster), written_bytes(cluster.pids["storage"])
    ours = await run_mode(cluster, mode)
    records = await _held(cluster) - held
    written = written_bytes(cluster.pids["storage"]) - written
    cpu: dict[str, float] = ours["cpu_us_per_transaction"]
    targets = CURVE_PIPELINED_TARGETS if mode.pipelined else CURVE_WRITER_TARGETS
    disk = written / max(1, records * cluster.plan.payload_bytes)
    ruled = journal and cluster.tls
    return [
        Figure(
            group,
            "appends per second",
            float(ours["transactions_per_second"]),
            "/s",
            targets.get(mode.partitions) if ruled else None,
            mode.load,
            per_role(cpu),
            details={
                "label": f"{mode.label}, {_with(journal)}",
                "load": ours,
                "curve": f"{'pipelined' if mode.pipelined else '50 writers'}, {_with(journal)}",
                "partitions": mode.partitions,
            },
        ),
        Figure(group, "p50", float(ours["p50_ms"]), "ms", None, mode.load),
        Figure(group, "p99", float(ours["p99_ms"]), "ms", None, mode.load),
        Figure(
            group,
            "bytes to the disk per byte and replica",
            disk,
            "",
            CURVE_DISK_TARGET if ruled and mode.pipelined else None,
            mode.load,
            f"{written / 1e6:,.0f} MB for {records:,} records on all nodes",
        ),
    ]


async def _limit(directory: Path, plan: Plan, tls: bool, mode: WriteMode, ours: Sequence[Figure]) -> Figure:
    """Ours with the journal / the bare pipeline with one."""
    limit: dict[str, Any] = await asyncio.to_thread(
        run_limit,
        tls=tls,
        in_flight=mode.in_flight,
        seconds=min(plan.seconds, 3.0),
        payload_bytes=plan.payload_bytes,
        files=mode.partitions,
        journal=True,
        directory=directory,
    )
    rate = next(one.value for one in ours if one.name == "appends per second" and one.load == mode.load)
    limit_rate = float(limit["transactions_per_second"])
    note = f"limit {limit_rate:,.0f}/s"
    group = _group(tls, True)
    return Figure(
        group, "ours / limit with a journal", rate / limit_rate, "", None, mode.load, note, details=limit
    )


async def _held(cluster: BenchCluster) -> int:
    """Records on all storage nodes."""
    return sum([await cluster.records_on(role) for role in cluster.local.storage_roles])


async def _start_with_full_journal(cluster: BenchCluster) -> Figure:
    """All files of the journal have been written, then the process is killed."""
    role = cluster.local.storage_roles[0]
    per_record = cluster.plan.payload_bytes + 40
    mode = WriteMode(max(IN_FLIGHT, cluster.plan.partitions), cluster.plan.partitions, pipelined=True)
    held = await cluster.records_on(role)
    while held * per_record < JOURNAL_FILES * cluster.plan.curve_journal_file_bytes:
        await run_mode(cluster, mode)
        now = await cluster.records_on(role)
        if now == held:
            break
        held = now
    await cluster.local.kill_role(role)
    started = asyncio.get_running_loop().time()
    await cluster.local.start_role(role, wait=False)
    await cluster.time_to_answer(role)
    seconds = asyncio.get_running_loop().time() - started
    await cluster.local.wait_ready(role)
    load = f"{held:,} records written, SIGKILL"
    name = "start of a storage node with a full journal"
    return Figure(_group(cluster.tls, True), name, seconds, "s", FULL_JOURNAL_START_TARGET, load)


def _with(journal: bool) -> str:
    return "journal" if journal else "no journal"


def _group(tls: bool, journal: bool) -> str:
    return group_name(f"curve, {_with(journal)}", tls)
