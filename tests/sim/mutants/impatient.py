"""A run that ends at its first violation: that is all that is wanted of a planted bug."""

from __future__ import annotations

from tests.sim.checkers.violation import Violation
from tests.sim.cluster.world import Choice, World
from tests.sim.kernel.loop import collect_remains
from tests.sim.workloads.catalogue import chooser

__all__ = ["Violation", "first_violation"]


class ImpatientWorld(World):
    """Stops as soon as something was violated. `first`: what that was."""

    first: Violation | None = None

    def _note_violation(self, violation: Violation) -> None:
        super()._note_violation(violation)
        self._stop(violation)

    def _stop(self, violation: Violation) -> None:
        if self.first is None:
            self.first = violation
            self.loop.step_limit = 0


def first_violation(seed: int, profile: str) -> Violation | None:
    """Run a seed; the first violation, if there is one."""
    worlds = [ImpatientWorld(seed, Choice(profile), chooser(profile))]
    worlds[0].run()
    first = worlds[0].first
    collect_remains(worlds)
    return first
