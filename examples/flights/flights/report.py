"""The demo's last word: one table, PASS or FAIL, or the same as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flights.faults import Fault
from flights.measures import Measures, longest_pause_seconds
from flights.run import DemoResult

_AFTER_SECONDS = 2.0
_BEFORE_SECONDS = 0.1  # the last commits of a role that is about to be killed
_MINIMUM_SHARE = 0.02


def pauses(measures: Measures, faults: Sequence[Fault], index: int) -> tuple[float, float]:
    """Longest time without any commit, and without one in a busy partition, because of a fault (seconds).

    A pause belongs to the fault when it ends after the kill and begins before the role was back (and a moment
    more), but not when it begins with the next kill. A partition with less than 2 % of the rows is quiet by
    nature and not counted.
    """
    fault = faults[index]
    end = fault.back_seconds + _AFTER_SECONDS
    if index + 1 < len(faults):
        end = min(end, faults[index + 1].killed_seconds - _BEFORE_SECONDS)
    together: Counter[int] = Counter()
    worst = 0.0
    for buckets in measures.commits.values():
        together.update(buckets)
        if buckets.total() >= _MINIMUM_SHARE * measures.committed:
            worst = max(worst, longest_pause_seconds(buckets, fault.killed_seconds, end))
    return longest_pause_seconds(together, fault.killed_seconds, end), worst


def as_facts(result: DemoResult) -> dict[str, object]:
    """The table as JSON can carry it."""
    measures = result.measures
    return {
        "passed": result.passed,
        "transactions": result.verdict.transactions,
        "flights_that_name_a_previous_one": result.verdict.chained,
        "findings": list(result.verdict.findings),
        "retries": measures.retries,
        "lock_conflicts": measures.lock_conflicts,
        "unknown_outcomes_found_in_the_log": measures.unknown_resolved_present,
        "unknown_outcomes_appended_again": measures.unknown_resolved_absent,
        "appends_per_second": round(measures.commits_per_second),
        "feed_per_second": round(result.verdict.transactions / max(result.read_seconds, 1e-9)),
        "p50_ms": round(measures.latency_quantile_ms(0.5), 2),
        "p99_ms": round(measures.latency_quantile_ms(0.99), 2),
        "write_seconds": round(measures.write_seconds, 1),
        "read_seconds": round(result.read_seconds, 1),
        "zookeeper_session_timeout_ms": result.session_timeout_ms,
        "tls": result.tls,
        "pauses": [
            {
                "killed": fault.role,
                "all_partitions_seconds": round(pauses(measures, result.faults, index)[0], 2),
                "worst_partition_seconds": round(pauses(measures, result.faults, index)[1], 2),
            }
            for index, fault in enumerate(result.faults)
        ],
    }


def print_report(result: DemoResult, console: Console) -> None:
    """Table, findings, PASS or FAIL."""
    measures, verdict = result.measures, result.verdict
    table = Table(title="Flights through the log", show_header=False, title_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    rows: list[tuple[str, str]] = [
        ("transactions read back", f"{verdict.transactions:,}"),
        ("flights that name the previous one of their aircraft", f"{verdict.chained:,}"),
        ("retries", f"{measures.retries:,}"),
        ("lock conflicts", f"{measures.lock_conflicts:,}"),
        (
            "unknown outcomes resolved (found / appended again)",
            f"{measures.unknown_resolved_present:,} / {measures.unknown_resolved_absent:,}",
        ),
        ("appends/s, faults included", f"{measures.commits_per_second:,.0f}"),
        ("feed/s, with payload and check", f"{verdict.transactions / max(result.read_seconds, 1e-9):,.0f}"),
        (
            "append p50 / p99, retries included",
            f"{measures.latency_quantile_ms(0.5):.1f} ms / {measures.latency_quantile_ms(0.99):.1f} ms",
        ),
    ]
    for index, fault in enumerate(result.faults):
        everywhere, worst = pauses(measures, result.faults, index)
        rows.append((f"time without writes after SIGKILL of {fault.role}", f"{everywhere:.2f} s"))
        rows.append(("    in the partition that waited longest", f"{worst:.2f} s"))
    rows.append(("ZooKeeper session timeout", f"{result.session_timeout_ms / 1000:.1f} s"))
    rows.append(("TLS", "on" if result.tls else "off"))
    for what, value in rows:
        table.add_row(what, value)
    console.print(table)
    for finding in verdict.findings:
        console.print(Text(f"wrong: {finding}", style="red"))
    if result.passed:
        console.print(
            Text(
                "PASS: every row once, no gaps, sums equal, every flight names the previous one",
                style="bold green",
            )
        )
    else:
        console.print(Text("FAIL", style="bold red"))
