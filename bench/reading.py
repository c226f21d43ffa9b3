"""Read figures: the whole log from its beginning, headers only and with data."""

from __future__ import annotations

from bench.cluster import BenchCluster
from bench.figures import Figure
from bench.plan import PIPELINED, READ_DATA_TARGET, READ_HEADERS_TARGET, group_name
from bench.writing import per_role, run_mode


async def fill(cluster: BenchCluster, at_least: int) -> int:
    """Append until the first storage node holds `at_least` transactions; how many it holds."""
    role = cluster.local.storage_roles[0]
    held = await cluster.records_on(role)
    while held < at_least:
        await run_mode(cluster, PIPELINED)
        now = await cluster.records_on(role)
        if now == held:
            break  # a node that lags behind for good is not filled by more writing
        held = now
    return held


async def measure_reading(cluster: BenchCluster) -> list[Figure]:
    """Transactions per second of one reading client over all partitions."""
    held = await fill(cluster, cluster.plan.read_at_least)
    figures: list[Figure] = []
    group = group_name("reading from the beginning", cluster.tls)
    load = f"1 client, {cluster.plan.partitions} partitions"
    for what, option, target in (
        ("headers only", "--headers", READ_HEADERS_TARGET),
        ("with data", "--data", READ_DATA_TARGET),
    ):
        read = await cluster.run_load("read", option, "--partitions", str(cluster.plan.partitions))
        rate = float(read["transactions_per_second"])
        wanted = target if cluster.tls else None
        figures.append(
            Figure(
                group,
                f"transactions per second, {what}",
                rate,
                "/s",
                wanted,
                load,
                f"log of {held:,}",
                details=read,
            )
        )
        total = float(read["cpu_us_per_transaction_total"])
        note = per_role(read["cpu_us_per_transaction"])
        figures.append(Figure(group, f"CPU per transaction, {what}", total, "us", None, load, note))
    return figures
