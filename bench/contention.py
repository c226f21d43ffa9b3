"""Contention figures: writers on few and on many locks of one partition, and a bystander without locks."""

from __future__ import annotations

from typing import Any, NamedTuple

from bench.cluster import BenchCluster
from bench.figures import Figure, Target, Wanted
from bench.plan import group_name


class Mode(NamedTuple):
    """`clients`: how many share the writers; `followers`: clients that only follow."""

    writers: int
    locks: int
    clients: int
    followers: int = 0

    @property
    def load(self) -> str:
        """For people."""
        shared = "a client for each" if self.clients == self.writers else f"{self.clients} client for all"
        text = f"{self.writers} writers, {shared}" if self.writers > 1 else "1 writer"
        text += f", {self.locks:,} lock{'s' if self.locks > 1 else ''}, 1 partition"
        return text + (f", {self.followers} clients that follow" if self.followers else "")


ALONE, FOLLOWED = Mode(1, 1, 1), Mode(1, 1, 1, 49)
SHARED = tuple(Mode(50, locks, 1) for locks in (1, 10, 100, 1000))
"""Writers are requests of one service."""
APART = (Mode(10, 1, 10), *(Mode(50, locks, 50) for locks in (1, 10, 100, 1000)))
"""Writers are services: what is committed is sent to fifty clients."""
IN_FLIGHT = 200
TEN_LOCKS_TARGET = Target(Wanted.AT_LEAST, 4000.0)
ONE_LOCK_TARGET = Target(Wanted.AT_LEAST, 0.8)
BYSTANDER_TARGET = Target(Wanted.AT_MOST, 1.3)


async def measure_contention(cluster: BenchCluster) -> list[Figure]:
    """Figures of every mode, then the ratios."""
    group = group_name("contention", cluster.tls)
    found: dict[Mode, dict[str, Any]] = {}
    figures: list[Figure] = []
    for mode in (ALONE, FOLLOWED, *SHARED, *APART):
        arguments = ["--writers", str(mode.writers), "--locks", str(mode.locks)]
        arguments += ["--clients", str(mode.clients), "--followers", str(mode.followers)]
        arguments += ["--seconds", str(cluster.plan.seconds)]
        result = await cluster.run_load(*arguments, in_flight_per_partition=IN_FLIGHT, module="bench.contend")
        found[mode] = result
        note = (
            f"{result['decisions_per_second']:,.0f} decisions/s; the slowest writer has "
            f"{result['least_share']:.0%} of the mean; bystander p99 {result['bystander_p99_ms']:.1f} ms"
        )
        target = TEN_LOCKS_TARGET if mode == SHARED[1] else None
        rate = float(result["committed_per_second"])
        figures += [
            Figure(group, "committed per second", rate, "/s", target, mode.load, note, details=result),
            Figure(group, "bystander's p50", float(result["bystander_p50_ms"]), "ms", None, mode.load),
        ]

    def ratio(one: Mode, other: Mode, what: str = "committed_per_second") -> float:
        return float(found[one][what] / found[other][what])

    bystander = ratio(SHARED[1], SHARED[3], "bystander_p50_ms")
    apart = ratio(APART[2], APART[4], "bystander_p50_ms")
    return [
        *figures,
        Figure(
            group,
            "50 writers of one client / 1 writer, one lock",
            ratio(SHARED[0], ALONE),
            "",
            ONE_LOCK_TARGET,
        ),
        Figure(group, "50 clients / 1 writer, one lock", ratio(APART[1], ALONE), ""),
        Figure(group, "50 clients / 1 writer and 49 followers, one lock", ratio(APART[1], FOLLOWED), ""),
        Figure(group, "bystander's p50, 10 / 1,000 locks, one client", bystander, "", BYSTANDER_TARGET),
        Figure(group, "bystander's p50, 10 / 1,000 locks, 50 clients", apart, "", BYSTANDER_TARGET),
    ]
