"""`waltz cluster`, and `waltz top` and `waltz doctor`: is the cluster what it should be?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.live import Live

from waltz_admin import server_admin, verify
from waltz_admin.findings.rules import find, problems
from waltz_admin.status import read_status
from waltz_admin.waiting import wait_verified
from waltz_cluster.quorum import alike
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    LoggerOption,
    OutputFormat,
    OutputOption,
    out_console,
    parse_single_partition,
    print_json,
    render_listings,
    run_admin,
)
from waltz_tools.cli.explain import finding_object, findings_listing
from waltz_tools.cli.figures import counted
from waltz_tools.cli.progress import Advance, progress
from waltz_tools.cli.status_page import live, page, status_listings
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
    wait_seconds: Annotated[
        float, typer.Option("--wait", min=0, help="Retry for this many seconds until it passes.")
    ] = 0.0,
    output: OutputOption = OutputFormat.TABLE,
    logger: LoggerOption = False,
) -> None:
    """Check every partition: assignments, connections, quorum, recovery, health. Exit code 3 when a check
    fails."""
    chosen = None if partition is None else parse_single_partition(partition)

    async def work(c: Context, advance: Advance) -> verify.VerifyReport:
        return await wait_verified(
            c.store,
            c.root,
            partition=chosen,
            question_seconds=timeout_seconds,
            tls=c.tls,
            timeout_seconds=wait_seconds,
            report=lambda text: advance(0, text=text),
        )

    with progress("verifying") as advance:
        report = run_admin(config, lambda c: work(c, advance))
    title = f"{len(report.results)} checks: {'Passed' if report.passed else 'Failed'}"
    listing = Listing("checks", title, ["Partition", "Check", "Passed", "Reason"])
    if output is OutputFormat.JSON:
        for result in report.results:
            listing.add(result.partition_id, result.check.value, result.passed, result.reason or None)
    else:
        for check in verify.Check:
            failed = {int(r.partition_id): r.reason for r in report.failures if r.check is check}
            for partitions, reason in alike(failed).items():
                listing.add(partitions, check.value, False, reason)
    render_listings(output, [listing])
    if not report.passed:
        counts = f"{len(report.failures)} of {len(report.results)} checks failed"
        raise DegradedError("; ".join([*report.summary, counts]))


@app.command("check-connectivity")
def check_connectivity(config: ConfigOption, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show which storage nodes each server reaches. Exit code 3 when one is not reached."""
    answers = run_admin(config, lambda c: server_admin.check_connectivity(c.store, c.root, tls=c.tls))
    columns = ["Server", "Storage node", "Reached", "Reason"]
    listing = Listing("connectivity", "Servers and storage nodes", columns)
    broken: list[str] = []
    for server, nodes in answers.items():
        if isinstance(nodes, str):
            listing.add(str(server), "UNREACHABLE", False, nodes)
            broken.append(nodes)
            continue
        for node, reached in sorted(nodes.items()):
            listing.add(str(server), node, reached, None)
            broken += [] if reached else [f"server {server} does not reach {node}"]
    render_listings(output, [listing])
    if broken:
        raise DegradedError(f"{counted(len(broken), 'connection')} broken: {broken[0]}")
    if not answers:
        raise DegradedError("no server is registered")


TimeoutOption = Annotated[float, typer.Option("--timeout", "-t", min=0.1, help="Seconds per question.")]


@app.command("status")
def status_(
    config: ConfigOption, timeout_seconds: TimeoutOption = 10.0, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show servers, storage nodes, partitions, replicas, who is behind and why. Exit code 3 when something is
    wrong."""
    status = run_admin(
        config, lambda c: read_status(c.store, c.root, tls=c.tls, timeout_seconds=timeout_seconds)
    )
    render_listings(output, status_listings(status))
    lines = problems(find(status))
    if lines:
        raise DegradedError(f"{counted(len(lines), 'problem')}: {lines[0]}")


def top(
    config: ConfigOption,
    interval_seconds: Annotated[
        float, typer.Option("--interval", min=0.2, help="Seconds between two observations.")
    ] = 2.0,
    count: Annotated[
        int, typer.Option("--count", min=0, help="Number of observations; 0 = until Ctrl-C.")
    ] = 0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the status again and again, with appends per second of each partition; as JSON one object per
    observation."""
    if output is OutputFormat.JSON:
        run_admin(
            config,
            lambda c: live(c, interval_seconds, count, lambda rows, _: render_listings(output, rows)),
        )
        return
    console = out_console()
    if not console.is_terminal or console.is_dumb_terminal:  # nothing there can be drawn over
        run_admin(
            config, lambda c: live(c, interval_seconds, count, lambda *seen: console.print(page(*seen)))
        )
        return
    with Live(console=console, auto_refresh=False) as screen:

        def draw(listings: list[Listing], problems: list[str]) -> None:
            screen.update(page(listings, problems), refresh=True)

        run_admin(config, lambda c: live(c, interval_seconds, count, draw))


def doctor(
    config: ConfigOption, timeout_seconds: TimeoutOption = 10.0, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show what is wrong, and the next step for each finding. Exit code 3 when there is one."""
    status = run_admin(
        config, lambda c: read_status(c.store, c.root, tls=c.tls, timeout_seconds=timeout_seconds)
    )
    findings = find(status)
    title = f"cluster {status.name}: {counted(len(findings), 'finding') if findings else 'no findings'}"
    if output is OutputFormat.JSON:
        print_json({"findings": [finding_object(one) for one in findings]})
    else:
        render_listings(output, [findings_listing(title, findings)])
    if findings:
        raise DegradedError(f"{counted(len(findings), 'finding')}: {findings[0].finding}")
