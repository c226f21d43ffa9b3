"""`waltz server`: servers, through their client and HTTP ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from waltz_admin import server_admin
from waltz_admin.load import WINDOWS_MINUTES
from waltz_admin.reports import DOES_NOT_REPORT, LOAD, ServerReport, read_reports
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    LoggerOption,
    OutputFormat,
    OutputOption,
    PartitionsOption,
    ServerOption,
    parse_endpoint,
    parse_partitions,
    render_listings,
    render_result,
    run,
    run_admin,
)
from waltz_tools.cli.figures import Seconds, SizeBytes
from waltz_tools.errors import DegradedError, UsageError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    server: Annotated[
        str, typer.Option("--server", "-s", help="host:port of its HTTP port.", show_default=False)
    ],
    output: OutputOption = OutputFormat.TABLE,
    logger: LoggerOption = False,
) -> None:
    """List the partitions of a server and the storage nodes of each."""
    endpoint = parse_endpoint(server)
    count, replicas = run(server_admin.list_server(endpoint))
    listing = Listing("partitions", f"{endpoint}: {count} partitions", ["Partition", "Storage nodes"])
    if isinstance(replicas, dict):
        for partition, nodes in sorted(replicas.items(), key=_by_number):
            listing.add(int(partition), nodes)
    render_listings(output, [listing])


@app.command("load")
def load(
    config: ConfigOption,
    minutes: Annotated[
        int, typer.Option("--minutes", "-m", help="Average over this time: 1, 5 or 15 minutes.")
    ] = 5,
    timeout_seconds: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds per question.")
    ] = 10.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show how loaded servers are, and by which partitions.

    The load is the server's share of a processor core, divided among its partitions by their appends, bytes
    and transactions sent to clients. Exit code 3 when a server does not report this.
    """
    if minutes not in WINDOWS_MINUTES:
        raise UsageError("--minutes is one of 1, 5 and 15: servers average over these times")
    reports = run_admin(config, lambda c: _reports(c, timeout_seconds))
    render_listings(output, load_listings(reports, minutes))
    if not reports:
        raise DegradedError("no server is registered")
    for report in reports:
        if report.load is None:
            raise DegradedError(f"server {report.server}: {report.problem or DOES_NOT_REPORT}")


async def _reports(context: Context, timeout_seconds: float) -> list[ServerReport]:
    servers = await server_admin.registered_servers(context.store, context.root)
    endpoints = [(one.server_id, one.endpoint) for one in servers]
    return await read_reports(endpoints, LOAD, tls=context.tls, timeout_seconds=timeout_seconds)


def load_listings(reports: Sequence[ServerReport], minutes: int) -> list[Listing]:
    """Servers, and their partitions that are not idle, the most loaded first."""
    title = f"load in % of a core, and rates per second, over {minutes} min"
    servers = Listing("servers", title, ("Server", *_RATES, "Measured for", "Problem"))
    partitions = Listing("partitions", "partitions that are not idle", ("Partition", "Server", *_RATES))
    index, rows = WINDOWS_MINUTES.index(minutes), []
    for report in reports:
        found = report.load
        if found is None:
            servers.add(report.server, None, None, None, None, None, report.problem or DOES_NOT_REPORT)
            continue
        parts = found.of_partitions(minutes)
        rates = {partition: one[index] for partition, one in found.rates.items()}
        rows += [(parts.get(one, 0.0), one, report.server, rates[one]) for one in rates]
        sums = (sum(column) for column in zip(*rates.values(), strict=True)) if rates else (0.0, 0.0, 0.0)
        servers.add(
            report.server,
            _percent(found.cores(minutes)),
            *_shown(*sums),
            Seconds(found.measured_seconds),
            None,
        )
    for share, partition, server, one in sorted(rows, key=lambda row: (-row[0], row[1])):
        partitions.add(partition, server, _percent(share), *_shown(*one))
    return [servers, partitions]


_RATES = ("Load", "Appends", "Bytes", "Sent")


def _percent(cores: float) -> float:
    return round(100 * cores, 1)


def _shown(appends: float, append_bytes: float, fed: float) -> tuple[float, SizeBytes, float]:
    return round(appends, 1), SizeBytes(append_bytes), round(fed, 1)


def _by_number(item: tuple[str, Any]) -> int:
    return int(item[0])


@app.command("add-preferred-partition")
def add_preferred_partition(
    config: ConfigOption,
    server: ServerOption,
    partition: PartitionsOption,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make a server prefer partitions: they move to it."""
    _change(config, server, partition, output, preferred=True)


@app.command("remove-preferred-partition")
def remove_preferred_partition(
    config: ConfigOption,
    server: ServerOption,
    partition: PartitionsOption,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make a server no longer prefer partitions."""
    _change(config, server, partition, output, preferred=False)


def _change(
    config: ConfigOption, server: str, partition: str, output: OutputFormat, *, preferred: bool
) -> None:
    endpoint, chosen = parse_endpoint(server), parse_partitions(partition)

    async def work(c: Context) -> None:
        await server_admin.change_preferred(c.store, c.root, endpoint, chosen, preferred=preferred, tls=c.tls)

    run_admin(config, work)
    word = "prefers" if preferred else "no longer prefers"
    render_result(
        output, f"{endpoint} {word} {partition}", server=endpoint, partitions=chosen, preferred=preferred
    )
