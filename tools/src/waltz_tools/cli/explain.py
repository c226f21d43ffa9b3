"""`waltz explain`: why a partition is where it is, and the findings as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from waltz_admin.findings.explain import Explanation, Vote, explain
from waltz_admin.findings.finding import Finding
from waltz_admin.findings.rules import find
from waltz_admin.status import read_status
from waltz_tools.cli.common import (
    ConfigOption,
    Listing,
    OutputFormat,
    OutputOption,
    print_json,
    print_line,
    render_listings,
    run_admin,
)
from waltz_tools.cli.figures import size_or_none
from waltz_tools.errors import DegradedError, UsageError
from waltz_tools.invocation import as_started

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Why something is as it is."""


@app.command("partition")
def partition_(
    config: ConfigOption,
    partition: Annotated[int, typer.Argument(metavar="P", min=0, help="The partition.", show_default=False)],
    timeout_seconds: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds per question.")
    ] = 10.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Explain one partition: why this owner and these replicas, who votes what, why it is not open, what
    next. Exit code 3 when something is wrong."""
    status = run_admin(
        config, lambda c: read_status(c.store, c.root, tls=c.tls, timeout_seconds=timeout_seconds)
    )
    try:
        found = explain(status, partition, find(status))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if output is OutputFormat.JSON:
        print_json(explanation_object(found))
    else:
        _show(found)
    if found.findings or not found.takes_writes:
        raise DegradedError(found.verdict if not found.takes_writes else found.findings[0].finding)


def _show(found: Explanation) -> None:
    print_line(found.verdict)
    if found.why and found.takes_writes:
        print_line(f"not complete: {found.why}")
    if found.waits_for:
        print_line(f"it waits for {found.waits_for}")
    generation = "none" if found.generation is None else str(found.generation)
    print_line(f"owner: {found.server or 'none'}, generation {generation}")
    for sentence in found.placement:
        print_line(f"- {as_started(sentence)}")
    listings = [_votes(found)]
    if found.findings:
        listings.append(findings_listing("findings", found.findings))
    render_listings(OutputFormat.TABLE, listings)


def _votes(found: Explanation) -> Listing:
    columns = (
        "Node", "Votes", "Standing", "Why", "In ZooKeeper", "Session", "Fence", "Last transaction", "Behind",
        "Low-water mark", "Local mark", "Log bytes",
    )  # fmt: skip
    title = f"{len(found.votes)} replicas, {found.needed} needed for a commit"
    listing = Listing("replicas", title, columns)
    for vote in found.votes:
        listing.add(
            vote.node,
            vote.counts,
            vote.standing.value,
            vote.why or None,
            vote.recorded,
            vote.session_id,
            vote.fence_session_id,
            vote.last_transaction,
            vote.lag,
            vote.low_water_mark,
            vote.local_low_water_mark,
            size_or_none(vote.log_bytes),
        )
    return listing


def findings_listing(title: str, findings: Sequence[Finding]) -> Listing:
    """The findings as a table, with commands in the form in which this one was started."""
    listing = Listing("findings", title, ["Finding", "Next step"])
    for one in findings:
        listing.add(as_started(one.finding), as_started(one.next_step))
    return listing


def finding_object(finding: Finding) -> dict[str, object]:
    """A finding for programs, and for the console."""
    return {
        "rule": finding.rule.name,
        "severity": finding.rule.severity.value,
        "finding": as_started(finding.finding),
        "next_step": as_started(finding.next_step),
        "evidence": list(finding.evidence),
        "partitions": list(finding.partitions),
        "nodes": list(finding.nodes),
        "servers": list(finding.servers),
    }


def explanation_object(found: Explanation) -> dict[str, object]:
    """An explanation for programs, and for the console."""
    return {
        "partition": found.partition_id,
        "takes_writes": found.takes_writes,
        "verdict": found.verdict,
        "why": found.why,
        "waits_for": found.waits_for,
        "server": found.server,
        "generation": found.generation,
        "session": found.session_id,
        "needed": found.needed,
        "placement": list(found.placement),
        "replicas": [_vote_object(vote) for vote in found.votes],
        "findings": [finding_object(one) for one in found.findings],
    }


def _vote_object(vote: Vote) -> dict[str, object]:
    return {
        "node": vote.node,
        "votes": vote.counts,
        "standing": vote.standing.value,
        "why": vote.why,
        "in_zookeeper": vote.recorded,
        "session": vote.session_id,
        "fence": vote.fence_session_id,
        "last_transaction": vote.last_transaction,
        "behind": vote.lag,
        "low_water_mark": vote.low_water_mark,
        "local_low_water_mark": vote.local_low_water_mark,
        "log_bytes": vote.log_bytes,
    }
