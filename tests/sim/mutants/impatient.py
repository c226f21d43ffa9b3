"""A run that ends at its first violation: that is all that is wanted of a planted bug."""

from __future__ import annotations

import gc

from tests.sim.checkers.violation import Violation
from tests.sim.cluster.world import Choice, World
from tests.sim.kernel.loop import silent_finalizers
from tests.sim.workloads.catalogue import choose

__all__ = ["Violation", "first_violation"]


class ImpatientWorld(World):
    """Stops as soon as something was violated. ``first``: what that was."""

    first: Violation | None = None

    def violation(self, invariant: str, text: str) -> None:
        """See the base class."""
        super().violation(invariant, text)
        self._stop(Violation(invariant, text))

    def _note_violation(self, violation: Violation) -> None:
        super()._note_violation(violation)
        self._stop(violation)

    def _stop(self, violation: Violation) -> None:
        if self.first is None:
            self.first = violation
            self.loop.step_limit = 0


def first_violation(seed: int, profile: str) -> Violation | None:
    """Run a seed; the first violation, if there is one."""
    world = ImpatientWorld(seed, Choice(profile), choose)
    world.run()
    first = world.first
    del world
    with silent_finalizers():
        gc.collect()  # what was suspended in that world is gone before the next one begins
    return first
