"""What many seeds came to, as figures and as a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.sim.checkers.violation import gravest_first, gravity
from tests.sim.cluster.result import Result
from tests.sim.cluster.world import Choice
from tests.sim.faults.plan import PROFILES

COVERAGE_SEEDS = 100
"""From so many seeds on, every kind of fault has to occur."""


def replay_command(seed: int, choice: Choice) -> str:
    """The one command that runs a seed again."""
    parts = [f"python -m tests.sim --replay {seed}"]
    if choice.profile != "default":
        parts.append(f"--profile {choice.profile}")
    if choice.faults is not None:
        parts.append(f"--only-faults {','.join(map(str, sorted(choice.faults))) or 'none'}")
    if choice.workloads is not None:
        parts.append(f"--only-workloads {','.join(sorted(choice.workloads)) or 'none'}")
    return " ".join(parts)


@dataclass
class Report:
    """Sums over seeds."""

    choice: Choice
    seeds: int = 0
    failed: list[Result] = field(default_factory=list)
    applied: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    virtual_seconds: float = 0.0
    seed_seconds: float = 0.0

    def add(self, result: Result) -> None:
        """Count one seed."""
        self.seeds += 1
        self.applied += result.applied
        self.skipped += result.skipped
        self.counts += result.counts
        self.virtual_seconds += result.virtual_seconds
        self.seed_seconds += result.wall_seconds
        if not result.ok:
            self.failed.append(result)

    def missing_kinds(self) -> list[str]:
        """Kinds of faults that never occurred."""
        return [kind for kind in PROFILES[self.choice.profile] if not self.applied[kind]]

    def failures(self) -> str:
        """Each failing seed, the gravest first: its gravest violations, and the command that replays it."""
        lines = []
        for result in sorted(self.failed, key=lambda one: (min(map(gravity, one.violations)), one.seed)):
            lines.append(f"seed {result.seed}: {len(result.violations)} violations")
            lines += [f"    {violation}"[:600] for violation in gravest_first(result.violations)[:3]]
            lines.append(f"    {replay_command(result.seed, self.choice)}")
        return "\n".join(lines)

    def table(self, real_seconds: float) -> str:
        """All figures."""
        lines = ["faults applied (skipped: beyond the promise, or nothing there to strike)"]
        lines += [
            f"    {kind:<26s}{self.applied[kind]:>7d}  ({self.skipped[kind]})"
            for kind in PROFILES[self.choice.profile]
        ]
        lines.append("seen")
        lines += [f"    {name:<40s}{count:>9d}" for name, count in sorted(self.counts.items())]
        hours = self.virtual_seconds / 3600
        lines.append(
            f"{self.seeds} seeds, {len(self.failed)} failed, {sum(self.applied.values())} faults, "
            f"{hours:.1f} cluster-hours in {real_seconds:.0f} s: {self.seeds / real_seconds:.2f} seeds/s, "
            f"{hours / real_seconds * 3600:.0f} cluster-hours per hour, "
            f"{self.seed_seconds / max(1, self.seeds):.2f} s per seed"
        )
        return "\n".join(lines)
