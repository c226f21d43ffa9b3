"""The page of `waltz cluster status`, and the same page live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from rich.console import Group
from rich.text import Text

from waltz_admin.cluster_status import ClusterStatus, PartitionStatus, Replica, ServerStatus
from waltz_admin.findings.rules import find, problems
from waltz_admin.reports import LATENCY, ServerReport, read_reports
from waltz_admin.status import read_status
from waltz_cluster.replica_rules import Standing
from waltz_runtime.visible import visible
from waltz_tools.cli.common import Context, Listing, listing_table
from waltz_tools.cli.figures import days_or_none, duration_or_none, size_or_none
from waltz_tools.console.history import rates
from waltz_tools.console.reports import NOTHING_SINCE, Since, since


def status_listings(
    status: ClusterStatus, appends: Mapping[int, float] | None = None, lately: Since = NOTHING_SINCE
) -> list[Listing]:
    """Tables of the page. `appends`: appends per second of each partition, and `lately`: how long they took,
    for the live page."""
    servers = Listing("servers", f"{len(status.servers)} servers", ["Server", "Id", "Partitions", "Problem"])
    for server in status.servers:
        servers.add(server.endpoint, server.server_id, list(server.partitions), _server_problem(server))
    nodes = _nodes(status)
    columns = [
        "Partition",
        "Server",
        "Healthy",
        "Session",
        "Current",
        "Last transaction",
        "Replicas",
        "Problem",
    ]
    if appends is not None:
        columns[6:6] = ["Appends/s", "Latency"]
    partitions = Listing("partitions", f"{len(status.partitions)} partitions", columns)
    for partition in status.partitions:
        last = max(
            (r.last_transaction for r in partition.replicas if r.last_transaction is not None), default=None
        )
        cells: list[object] = [
            partition.partition_id,
            None if partition.server is None else str(partition.server),
            partition.healthy,
            partition.session_id,
            f"{partition.current} of {len(partition.replicas)}",
            last,
            "; ".join(map(_replica, partition.replicas)),
            _problem(partition),
        ]
        if appends is not None:
            latency = duration_or_none(lately.means.get(partition.partition_id))
            cells[6:6] = [round(appends.get(partition.partition_id, 0.0), 1), latency]
        partitions.add(*cells)
    head = Listing("cluster", f"cluster {status.name}, key {status.cluster_key}", ["Name", "Key", "Problems"])
    head.add(status.name, status.cluster_key, len(problems(find(status))))
    if appends is not None:
        _add_figures(head, appends, lately)
    return [head, servers, nodes, partitions]


def _add_figures(head: Listing, appends: Mapping[int, float], lately: Since) -> None:
    """The figures of the console's overview, in the same words."""
    head.columns = [*head.columns, "Appends/s", "Latency p50", "Latency p99"]
    latency = map(duration_or_none, (lately.p50_seconds, lately.p99_seconds))
    head.rows = [(*head.rows[0], round(sum(appends.values()), 1), *latency)]


def _nodes(status: ClusterStatus) -> Listing:
    listing = Listing(
        "storage_nodes",
        f"{len(status.nodes)} storage nodes",
        ["Node", "Group", "Partitions", "Log bytes", "Disk free", "Days to full", "Problem"],
    )
    for node in status.nodes:
        disk = node.disk
        listing.add(
            node.node,
            node.group,
            list(node.partitions),
            None if disk is None else size_or_none(disk.log_bytes),
            None if disk is None else size_or_none(disk.free_bytes),
            None if disk is None else days_or_none(disk.days_to_full),
            "its disk is full" if disk is not None and disk.full else node.error,
        )
    return listing


def _server_problem(server: ServerStatus) -> str | None:
    if server.unreached is None:
        return server.error or "does not answer"
    return f"does not reach {', '.join(server.unreached)}" if server.unreached else None


def _problem(partition: PartitionStatus) -> str | None:
    waits = f"; waits for {partition.waits_for}" if partition.waits_for else ""
    return f"{partition.problem}{waits}" if partition.problem else None


def _replica(replica: Replica) -> str:
    lag = f" -{replica.lag:,}" if replica.lag else ""
    mark = "" if replica.standing is Standing.CURRENT else f" ({replica.standing.value})"
    return f"{replica.node}{lag}{mark}"


async def live(
    context: Context, interval_seconds: float, count: int, show: Callable[[list[Listing], list[str]], None]
) -> None:
    """Show tables and problems until cancelled, or `count` times. The rates are those of the console."""
    before: ClusterStatus | None = None
    loop = asyncio.get_running_loop()
    then, looks = loop.time(), 0
    reports: list[ServerReport] = []
    while True:
        status = await read_status(
            context.store, context.root, tls=context.tls, timeout_seconds=interval_seconds
        )
        earlier = reports
        reports = await read_reports(
            [(one.server_id, one.endpoint) for one in status.servers if one.unreached is not None],
            LATENCY,
            tls=context.tls,
            timeout_seconds=interval_seconds,
        )
        now = loop.time()
        found = rates(before, status, max(now - then, 0.001))
        lately = since(earlier, reports, now - then)
        before, then = status, now
        show(status_listings(status, found.partitions, lately), problems(find(status)))
        looks += 1
        if looks == count:
            return
        await asyncio.sleep(interval_seconds)


def page(listings: list[Listing], lines: list[str]) -> Group:
    """The page as one thing to draw."""
    tables = [listing_table(listing) for listing in listings]
    return Group(*tables, *(Text(visible(line), style="bold red") for line in lines))
