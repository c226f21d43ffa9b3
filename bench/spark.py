"""Figures of the Spark source: reads against the plain client's feed, streaming lag, the memory of a task."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from bench.cluster import BenchCluster
from bench.figures import Figure
from bench.plan import (
    SPARK_ARROW_TARGET,
    SPARK_BLOCKS_TARGET,
    SPARK_CORES_TARGET,
    SPARK_EMPTY_TRIGGER_TARGET,
    SPARK_FEED_TARGET,
    SPARK_LAG_TARGET,
    SPARK_MEMORY_TARGET,
    SPARK_RATE_TARGET,
    group_name,
)
from bench.processes import ROOT, start_role
from bench.reading import fill
from waltz_tools.local.java import find_java

PART_SECONDS = 600.0
RATE = 1000
LONG_PAYLOAD_BYTES = 128
_SESSIONS = ((1, ("batch", "rows", "memory")), (2, ("batch", "requests", "stream")))


async def measure_spark(cluster: BenchCluster) -> list[Figure]:
    """One application on one core, one on two, and the plain client on the same log."""
    plan = cluster.plan
    held = await fill(cluster, plan.read_at_least)
    await _lengthen(cluster, plan.spark_long_transactions)
    feed = await cluster.run_load("read", "--data", "--partitions", str(plan.partitions))
    found = {cores: await _application(cluster, cores, parts) for cores, parts in _SESSIONS}
    group = group_name("Spark", cluster.tls)
    one, two = found[1]["batch"], found[2]["batch"]
    load = f"{one['transactions']:,} transactions, {plan.partitions} partitions"
    feed_us, spark_us = float(feed["cpu_us_per_transaction"]["client"]), float(one["cpu_us_per_transaction"])
    two_us = float(two["cpu_us_per_transaction"])
    one_by_one_us = float(found[2]["requests"]["cpu_us_per_transaction"])
    feed_rate = float(feed["transactions_per_second"])
    memory, stream = found[1]["memory"], found[2]["stream"]
    one_task = f"one task, {memory['transactions']:,} transactions"
    paced = f"{stream['rate']:,} appends/s, trigger 1 s"

    def rate(read: dict[str, Any]) -> float:
        return float(read["transactions_per_second"])

    return [
        Figure(group, "transactions per second, plain feed", feed_rate, "/s", None, load, f"log of {held:,}", details=feed),
        Figure(group, "transactions per second, local[1]", rate(one), "/s", None, load, details=one),
        Figure(group, "transactions per second, local[2]", rate(two), "/s", SPARK_RATE_TARGET, load, details=two),
        Figure(
            group, "Spark / feed, per second of CPU", feed_us / spark_us, "", SPARK_FEED_TARGET, load,
            f"CPU per transaction: Spark {spark_us:.1f} us, feed {feed_us:.1f} us; by the clock {rate(one) / feed_rate:.2f}",
        ),
        Figure(
            group, "blocks / a request per transaction, per second of CPU", one_by_one_us / two_us, "", SPARK_BLOCKS_TARGET, load,
            f"CPU per transaction: {two_us:.1f} us, {one_by_one_us:.1f} us with version 4 of the protocol",
        ),
        Figure(group, "local[2] / local[1]", rate(two) / rate(one), "", SPARK_CORES_TARGET, load),
        Figure(
            group, "Arrow / rows", rate(one) / rate(found[1]["rows"]), "", SPARK_ARROW_TARGET, load,
            f"rows {rate(found[1]['rows']):,.0f}/s",
        ),
        Figure(
            group, "memory of a task, late / early", float(memory["growth"]), "", SPARK_MEMORY_TARGET, one_task,
            f"{memory['late_mib']:.0f} MiB", details=memory,
        ),
        Figure(
            group, "lag in triggers", float(stream["triggers_behind"]), "", SPARK_LAG_TARGET, paced,
            f"median {stream['triggers_behind_median']:.2f}", details=stream,
        ),
        Figure(
            group, "triggerExecution without new data", float(stream["empty_trigger_ms"]), "ms",
            SPARK_EMPTY_TRIGGER_TARGET, "no appends, trigger 1 s", f"at most {stream['empty_trigger_ms_max']} ms",
        ),
    ]  # fmt: skip


async def _lengthen(cluster: BenchCluster, wanted: int) -> None:
    """Append small transactions to partition 0 until one task has enough of them."""
    arguments = ["write", "--partitions", "1", "--in-flight", "500", "--pipelined"]
    arguments += ["--count", str(wanted), "--payload", str(LONG_PAYLOAD_BYTES)]
    with cluster.load(*arguments, in_flight_per_partition=500) as child:
        await asyncio.to_thread(child.wait_line, "ready")
        child.send_line("go")
        await asyncio.to_thread(child.read_line, PART_SECONDS)


def _java_home() -> str:
    return str(Path(find_java()).resolve().parent.parent)


async def _application(
    cluster: BenchCluster, cores: int, parts: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """What one application says, by part."""
    config = cluster.client_config(5)
    plan = cluster.plan
    arguments = [str(config), *parts, "--cores", str(cores), "--rate", str(RATE)]
    arguments += ["--seconds", str(plan.spark_seconds), "--payload", str(plan.payload_bytes)]
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "JAVA_HOME": await asyncio.to_thread(_java_home),
    }
    child = start_role("bench.spark_load", arguments, environment)
    try:
        found = {}
        for part in parts:
            line: dict[str, Any] = json.loads(await asyncio.to_thread(child.read_line, PART_SECONDS))
            found[part] = line
        return found
    finally:
        await asyncio.to_thread(child.stop)
