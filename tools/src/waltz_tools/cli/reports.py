"""`waltz client list` and `waltz locks`: what servers report about clients and contended locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from waltz_admin.reports import ALL_PARTITIONS, CLIENTS, LOCKS, ServerReport, read_reports
from waltz_admin.server_admin import registered_servers
from waltz_cluster.cluster_params import read_params
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    OutputFormat,
    OutputOption,
    render_listings,
    run_admin,
)
from waltz_tools.cli.figures import SizeBytes, counted
from waltz_tools.errors import DegradedError, UsageError
from waltz_tools.lock_names import lock_text, names_by_hash

PartitionOption = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Of this partition only.", show_default=False),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", "-t", min=0.1, help="Seconds per question.")]


async def _asked(
    context: Context, parts: int, partition: int | None, timeout_seconds: float
) -> list[ServerReport]:
    if partition is not None:
        _, params = await read_params(context.store, context.root)
        if partition >= params.num_partitions:
            raise UsageError(f"there is no partition {partition}: the cluster has {params.num_partitions}")
    servers = await registered_servers(context.store, context.root)
    return await read_reports(
        [(one.server_id, one.endpoint) for one in servers],
        parts,
        tls=context.tls,
        partition=ALL_PARTITIONS if partition is None else partition,
        timeout_seconds=timeout_seconds,
    )


def list_clients(
    config: ConfigOption,
    partition: PartitionOption = None,
    timeout_seconds: TimeoutOption = 10.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the clients of every server: address, what each follows, how far behind, what waits for it. Exit
    code 3 when a server does not report this."""
    reports = run_admin(config, lambda c: _asked(c, CLIENTS, partition, timeout_seconds))
    render_listings(output, [clients_listing(reports), *_problems(reports)])
    _check(reports)


def locks(
    config: ConfigOption,
    partition: PartitionOption = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            "-n",
            help="Name of a lock, such as account/alice, to be shown in place of its hash; may be repeated.",
            show_default=False,
        ),
    ] = None,
    timeout_seconds: TimeoutOption = 10.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the most contended locks, who was refused for whom, and who waits for whom now.

    Servers know the hashes of locks and not their names: name those that you know. Counts are those since the
    server has the partition. Exit code 3 when a server does not report this.
    """
    known = names_by_hash(names or ())
    reports = run_admin(config, lambda c: _asked(c, LOCKS, partition, timeout_seconds))
    render_listings(output, [*lock_listings(reports, known), *_problems(reports)])
    _check(reports)


def clients_listing(reports: Sequence[ServerReport]) -> Listing:
    """A row for each connection, those furthest behind first."""
    columns = ("Client", "Address", "Server", "Version", "Partitions", "Behind", "Unsent", "Furthest behind")
    rows = sorted(
        (row for report in reports for row in report.clients),
        key=lambda row: (-row.behind, -row.unsent_bytes, row.client, row.address),
    )
    left_out = sum(report.left_out for report in reports)
    more = f", and {left_out} more that are less far behind" if left_out else ""
    listing = Listing("clients", f"{counted(len(rows), 'client connection')}{more}", columns)
    for row in rows:
        furthest = "; ".join(
            f"{one.partition}: {one.behind:,} behind {one.sent + one.behind:,}, {one.state}"
            for one in row.furthest
            if one.behind
        )
        listing.add(
            row.client,
            row.address,
            row.server,
            row.version,
            row.partitions or None,
            row.behind if row.following else None,
            SizeBytes(row.unsent_bytes),
            furthest or ("up to date" if row.following else None),
        )
    return listing


def lock_listings(reports: Sequence[ServerReport], known: Mapping[int, str]) -> list[Listing]:
    """Contended locks, pairs, and lines."""
    refused = sum(report.refused or 0 for report in reports)
    rows = sorted(
        (row for report in reports for row in report.locks), key=lambda row: -(row.conflicts + row.waits)
    )
    contended = Listing(
        "locks",
        f"{counted(len(rows), 'contended lock')}, {counted(refused, 'append')} refused",
        ("Partition", "Lock", "Conflicts", "Waits", "Over", "Transaction", "Won", "Refused"),
    )
    for row in rows:
        contended.add(
            row.partition, lock_text(row.lock, known), row.conflicts, row.waits, row.over, row.transaction,
            row.winner, row.loser,
        )  # fmt: skip
    pairs = Listing(
        "pairs", "who was refused for whom", ("Partition", "Lock", "Won", "Refused", "Conflicts", "Over")
    )
    for pair in sorted((one for report in reports for one in report.pairs), key=lambda one: -one.conflicts):
        pairs.add(
            pair.partition, lock_text(pair.lock, known), pair.winner, pair.loser, pair.conflicts, pair.over
        )
    waiting = Listing(
        "waiting", "who waits for whom now", ("Partition", "Lock", "Has it", "Wait for it", "Number")
    )
    for line in sorted((one for report in reports for one in report.waiting), key=lambda one: -one.count):
        waiting.add(line.partition, lock_text(line.lock, known), line.holder, list(line.clients), line.count)
    return [contended, pairs, waiting]


def _problems(reports: Sequence[ServerReport]) -> list[Listing]:
    listing = Listing("without_report", "servers without a report", ("Server", "Problem"))
    for report in reports:
        if report.problem:
            listing.add(report.server, report.problem)
    return [listing] if listing.rows else []


def _check(reports: Sequence[ServerReport]) -> None:
    if not reports:
        raise DegradedError("no server is registered")
    without = [report for report in reports if report.problem]
    if without:
        raise DegradedError(f"server {without[0].server}: {without[0].problem}")
