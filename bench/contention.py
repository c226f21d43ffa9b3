"""Contention figures: writers on few and on many locks of one partition, and a bystander without locks."""

from __future__ import annotations

from typing import Any

from bench.cluster import BenchCluster
from bench.figures import Figure, Target, Wanted
from bench.plan import group_name

MODES = ((1, 1, 0), (1, 1, 49), (10, 1, 0), (50, 1, 0), (50, 10, 0), (50, 100, 0), (50, 1000, 0))
"""Writers, locks, and clients that only follow."""
ALONE, FOLLOWED, ONE_LOCK = (1, 1, 0), (1, 1, 49), (50, 1, 0)
HOT, COLD = (50, 10, 0), (50, 1000, 0)
TEN_LOCKS_TARGET = Target(Wanted.AT_LEAST, 4000.0)
ONE_LOCK_TARGET = Target(Wanted.AT_LEAST, 0.8)
BYSTANDER_TARGET = Target(Wanted.AT_MOST, 1.3)


async def measure_contention(cluster: BenchCluster) -> list[Figure]:
    """Figures of every mode, then the two ratios."""
    group = group_name("contention", cluster.tls)
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    figures: list[Figure] = []
    for mode in MODES:
        writers, locks, followers = mode
        arguments = ["--writers", str(writers), "--locks", str(locks), "--followers", str(followers)]
        seconds = str(cluster.plan.seconds)
        result = await cluster.run_load(*arguments, "--seconds", seconds, module="bench.contend")
        found[mode] = result
        load = f"{writers} clients with a writer each, {locks} lock{'s' if locks > 1 else ''}, 1 partition"
        if followers:
            load += f", {followers} clients that follow"
        note = (
            f"{result['conflicts_per_second']:,.0f} conflicts/s; the slowest writer has "
            f"{result['least_share']:.0%} of the mean; bystander p99 {result['bystander_p99_ms']:.1f} ms"
        )
        target = TEN_LOCKS_TARGET if mode == HOT else None
        rate = float(result["committed_per_second"])
        figures += [
            Figure(group, "committed per second", rate, "/s", target, load, note, details=result),
            Figure(group, "bystander's p50", float(result["bystander_p50_ms"]), "ms", None, load),
        ]
    one, followed = (
        found[ONE_LOCK]["committed_per_second"] / found[other]["committed_per_second"]
        for other in (ALONE, FOLLOWED)
    )
    bystander = found[HOT]["bystander_p50_ms"] / found[COLD]["bystander_p50_ms"]
    return [
        *figures,
        Figure(group, "50 writers / 1 writer on one lock", one, "", ONE_LOCK_TARGET),
        Figure(group, "50 writers / 1 writer and 49 followers on one lock", followed, ""),
        Figure(group, "bystander's p50, 10 / 1,000 locks", bystander, "", BYSTANDER_TARGET),
    ]
