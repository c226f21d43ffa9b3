"""What servers that watch each other must not do, whatever happens around them (rules G1 to G6). Pure.

Times in seconds. A server is *steady* while one process of it runs without a pause and reaches ZooKeeper, and
its session lives. Links between servers do not count: whoever is only cut off from the others answers in
ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.sim.checkers.violation import Violation

PACE = 0.25
"""Of the timeout, between two evictions by one server (G3)."""
REST = 2.0
"""Timeouts for which a server that was evicted for silence is left alone; they double (G4)."""
SLACK = 0.95
"""The simulator sees evictions where they are written, not where they are noted."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """A descriptor was deleted by somebody else."""

    at: float
    by: int
    """The session of the judge."""
    victim: str
    steady_seconds: float
    """How long its victim had been steady, 0.0 for one that was not."""
    silent: bool
    """It lived, or its whole machine was gone: nobody said that nothing listens there."""

    def __str__(self) -> str:
        return f"{self.victim} was evicted at {self.at:.3f} by session {self.by}"


def check_evictions(evictions: Iterable[Eviction], timeout_seconds: float) -> list[Violation]:
    """Everything that is wrong with them."""
    found: list[Violation] = []
    last: dict[int, Eviction] = {}
    rests: dict[tuple[int, str], tuple[float, float]] = {}
    for each in sorted(evictions, key=lambda one: one.at):
        if each.steady_seconds > timeout_seconds:
            text = f"{each}, though it had run and reached ZooKeeper for {each.steady_seconds:.1f} s"
            found.append(Violation("evicted", text))
        before = last.get(each.by)
        if before is not None and each.at - before.at < SLACK * PACE * timeout_seconds:
            text = f"{each}, {each.at - before.at:.3f} s after it evicted {before.victim}"
            found.append(Violation("eviction_pace", text))
        last[each.by] = each
        if each.silent:
            until, rest = rests.get((each.by, each.victim), (0.0, REST * timeout_seconds))
            if each.at < until:
                found.append(Violation("eviction_rest", f"{each}, before {until:.3f}"))
            rests[each.by, each.victim] = (each.at + SLACK * rest, 2 * rest)
    return found
