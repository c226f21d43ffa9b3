"""A story with the operator killed before and after each of its writes; then on to the fixed point, which is
checked as without kills.

A kill leaves nothing of the operator behind: its successor is a new one that has seen nothing. Several kills
share one run: in the first runs with some writes between two of them, so that a successor gets on with a
whole plan, then without. A story is run until no write of it is left that has not been killed at, on both
sides; so its last run is one without kills. When a write is the same one is said in `writes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import Step
from operator_tests.apiserver.world import Journal, World

GAPS = (3, 1)
"""Writes between two kills, in the first runs; none later."""
MAX_RUNS = 12
Tell = Callable[[str, object], None]


class Story(NamedTuple):
    """`before`: steps without kills. `days_behind`: of the operator's clock at the beginning."""

    steps: Sequence[Step]
    before: Sequence[Step] = ()
    days_behind: float = 0.0


class Covering:
    """Kills where nothing was killed yet. `covered` (step, moment, write) is shared by the runs of a
    story."""

    def __init__(self, covered: set[tuple[str, str, str]], gap: int) -> None:
        self.covered = covered
        self.armed = False
        self.step = ""
        self._gap = gap
        self._since = gap

    def begin(self, step: str) -> None:
        self.step, self.armed = step, True

    def strikes(self, moment: str, write: str) -> bool:
        if moment == "after":
            self._since += 1
        point = (self.step, moment, write)
        if not self.armed or point in self.covered or self._since < self._gap:
            return False
        self.covered.add(point)
        self._since = 0
        return True


def check_killed_everywhere(plane: Plane, story: Story, tell: Tell) -> None:
    """Run it until there is no write left at which nobody was killed, and tell how many points that were."""
    covered: set[tuple[str, str, str]] = set()
    for run in range(MAX_RUNS):
        fate = Covering(covered, GAPS[run] if run < len(GAPS) else 0)
        journal = Journal(fate)

        async def scenario(world: World, fate: Covering = fate) -> None:
            world.clock_offset = -story.days_behind * 86_400
            await stories.play(world, *story.before, *(_armed(step, fate) for step in story.steps))

        before = set(covered)
        plane.run(scenario, journal)
        if journal.kills == 0:
            tell("crash points of the operator", len(covered))
            return
    raise AssertionError(f"still new after {MAX_RUNS} runs: {sorted(covered - before)}")


def _armed(step: Step, fate: Covering) -> Step:
    async def act(world: World) -> None:
        fate.begin(step.name)
        await step.act(world)

    return step._replace(act=act)
