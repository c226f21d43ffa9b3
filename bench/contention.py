"""Contention figures: writers on few and on many locks of one partition, and a bystander without locks."""

from __future__ import annotations

from typing import Any

from bench.cluster import BenchCluster
from bench.figures import Figure, Target, Wanted
from bench.plan import group_name

MODES = ((1, 1), (10, 1), (50, 1), (50, 10), (50, 100), (50, 1000))
"""Writers, locks."""
HOT, COLD = (50, 10), (50, 1000)
TEN_LOCKS_TARGET = Target(Wanted.AT_LEAST, 4000.0)
ONE_LOCK_TARGET = Target(Wanted.AT_LEAST, 0.8)
BYSTANDER_TARGET = Target(Wanted.AT_MOST, 1.3)


async def measure_contention(cluster: BenchCluster) -> list[Figure]:
    """Figures of every mode, then the two ratios."""
    group = group_name("contention", cluster.tls)
    found: dict[tuple[int, int], dict[str, Any]] = {}
    figures: list[Figure] = []
    for writers, locks in MODES:
        arguments = ["--writers", str(writers), "--locks", str(locks), "--seconds", str(cluster.plan.seconds)]
        result = await cluster.run_load(*arguments, module="bench.contend")
        found[writers, locks] = result
        load = f"{writers} clients with a writer each, {locks} lock{'s' if locks > 1 else ''}, 1 partition"
        note = (
            f"{result['conflicts_per_second']:,.0f} conflicts/s; the slowest writer has "
            f"{result['least_share']:.0%} of the mean; bystander p99 {result['bystander_p99_ms']:.1f} ms"
        )
        target = TEN_LOCKS_TARGET if (writers, locks) == HOT else None
        rate = float(result["committed_per_second"])
        figures += [
            Figure(group, "committed per second", rate, "/s", target, load, note, details=result),
            Figure(group, "bystander's p50", float(result["bystander_p50_ms"]), "ms", None, load),
        ]
    one = found[50, 1]["committed_per_second"] / found[1, 1]["committed_per_second"]
    bystander = found[HOT]["bystander_p50_ms"] / found[COLD]["bystander_p50_ms"]
    return [
        *figures,
        Figure(group, "50 writers / 1 writer on one lock", one, "", ONE_LOCK_TARGET),
        Figure(group, "bystander's p50, 10 / 1,000 locks", bystander, "", BYSTANDER_TARGET),
    ]
