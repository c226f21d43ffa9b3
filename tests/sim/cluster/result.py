"""What came of one seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.sim.checkers.violation import Violation
from tests.sim.faults.plan import Fault


@dataclass
class Result:
    """One run of one seed. Plain data: it crosses from a worker to the one who counts."""

    seed: int
    profile: str = "default"
    violations: list[Violation] = field(default_factory=list)
    """In the order in which they were seen."""
    faults: list[Fault] = field(default_factory=list)
    workloads: list[str] = field(default_factory=list)
    applied: Counter[str] = field(default_factory=Counter)
    """Faults by kind."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Faults by kind that would have gone beyond the promise, or had nothing to strike."""
    counts: Counter[str] = field(default_factory=Counter)
    """Everything else that is worth a figure: appends by outcome, deaths, expiries, torn writes."""
    virtual_seconds: float = 0.0
    wall_seconds: float = 0.0
    steps: int = 0
    digest: str = ""

    @property
    def ok(self) -> bool:
        """No violation."""
        return not self.violations
