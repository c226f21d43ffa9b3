"""`waltz cluster`: is the cluster what it should be?"""

from __future__ import annotations

from typing import Annotated

import typer

from waltz_admin import server_admin, verify
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    LoggerOption,
    OutputFormat,
    OutputOption,
    parse_single_partition,
    render_listings,
    run_admin,
)
from waltz_tools.errors import DegradedError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command("verify")
def verify_(
    config: ConfigOption,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="One partition; all without it.")
    ] = None,
    timeout_seconds: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds per question.")
    ] = 10.0,
    output: OutputOption = OutputFormat.TABLE,
    logger: LoggerOption = False,
) -> None:
    """Check every partition: assignments, connections, quorum, recovery, health. Exit code 3 when a check fails."""
    chosen = None if partition is None else parse_single_partition(partition)

    async def work(c: Context) -> verify.VerifyReport:
        return await verify.verify_cluster(
            c.store, c.root, partition=chosen, timeout_seconds=timeout_seconds, tls=c.tls
        )

    report = run_admin(config, work)
    title = f"{len(report.results)} checks: {'Passed' if report.passed else 'Failed'}"
    listing = Listing("checks", title, ["Partition", "Check", "Passed", "Reason"])
    shown = report.results if output is OutputFormat.JSON else report.failures
    for result in shown:
        listing.add(result.partition_id, result.check.value, result.passed, result.reason or None)
    render_listings(output, [listing])
    if not report.passed:
        raise DegradedError(f"{len(report.failures)} of {len(report.results)} checks failed")


@app.command("check-connectivity")
def check_connectivity(config: ConfigOption, output: OutputOption = OutputFormat.TABLE) -> None:
    """Which storage nodes does each server reach? Exit code 3 when one is not reached."""
    answers = run_admin(config, lambda c: server_admin.check_connectivity(c.store, c.root, tls=c.tls))
    listing = Listing("connectivity", "Servers and storage nodes", ["Server", "Storage node", "Reached"])
    broken = 0
    for server, nodes in answers.items():
        if nodes is None:
            listing.add(str(server), "UNREACHABLE", False)
            broken += 1
            continue
        for node, reached in sorted(nodes.items()):
            listing.add(str(server), node, reached)
            broken += not reached
    render_listings(output, [listing])
    if broken:
        raise DegradedError(f"{broken} connections do not work")
    if not answers:
        raise DegradedError("no server is registered")
