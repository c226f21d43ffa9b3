"""Every scenario with the operator killed before and after each of its writes; then on to the fixed point, which is checked as without kills.

A kill leaves nothing of the operator behind: its successor is a new one that has seen nothing. Several kills share one run, with at least
``GAP`` writes between two of them, and a story is run until no write of it is left that has not been killed at, on both sides.
A write is known by its step, its text and how often that text was written in the step before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import Step
from operator_tests.apiserver.world import Journal, World

GAP = 3
MAX_RUNS = 40
PLAIN = {"tls": {"mode": "Disabled"}, "reclaimPolicy": "Delete"}
GROUPS = {"storage": {"groups": [{"name": "1", "count": 2}, {"name": "2"}, {"name": "3"}]}}
ROTATED_DAYS = 61.0

STORIES: dict[str, tuple[float, Sequence[Step], Sequence[Step]]] = {
    # name: days that the clock is behind at the beginning, steps without kills, steps with kills
    "grow, shrink, delete": (
        0.0,
        (),
        (
            stories.install(replicas=3, **PLAIN),
            stories.change("grow to 4", {"replicas": 4}, "1-0", "2-0", "3-0", "4-0"),
            stories.change("shrink to 3", {"replicas": 3}, "1-0", "2-0", "3-0"),
            stories.delete("Delete"),
        ),
    ),
    "drain, replace a disk": (
        0.0,
        (stories.install(**GROUPS, tls={"mode": "Disabled"}),),
        (stories.drain(), stories.lose_disk(), stories.delete("Retain")),
    ),
    "roll images": (
        0.0,
        (stories.install(replicas=3, tls={"mode": "Disabled"}),),
        (stories.roll_storage(), stories.roll_servers()),
    ),
    "rotate certificates": (
        ROTATED_DAYS,
        (stories.install(replicas=3, tls={"authorityLifetimeHours": 24 * 90}),),
        (stories.rotate(from_days_ago=ROTATED_DAYS),),
    ),
}


class Covering:
    """Kills where nothing was killed yet. ``covered`` is shared by the runs of a story."""

    def __init__(self, covered: set[tuple[str, str, str, int]]) -> None:
        self.covered = covered
        self.seen: set[tuple[str, str, str, int]] = set()
        self.armed = False
        self.step = ""
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._since = GAP

    def begin(self, step: str) -> None:
        self.step, self.armed = step, True

    def strikes(self, moment: str, line: str) -> bool:
        if moment == "after":
            self._since += 1
        if not self.armed:
            return False
        text = (self.step, moment, line)
        # a write that was killed before it was made comes once more: that is the same one
        point = (*text, self._counts[self.step, "after", line])
        if moment == "after":
            self._counts[text] += 1
        self.seen.add(point)
        if point in self.covered or self._since < GAP:
            return False
        self.covered.add(point)
        self._since = 0
        return True


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", STORIES)
def test_a_killed_operator_s_successor_goes_on(
    plane: Plane, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    behind_days, before, steps = STORIES[name]
    covered: set[tuple[str, str, str, int]] = set()
    runs = 0
    kills = -1
    while kills != 0 and runs < MAX_RUNS:
        fate = Covering(covered)
        journal = Journal(fate)

        async def scenario(world: World, fate: Covering = fate) -> None:
            world.clock_offset = -behind_days * 86_400
            await stories.play(world, *before, *(_armed(step, fate) for step in steps))

        plane.run(scenario, journal)
        kills, runs = journal.kills, runs + 1
    with capsys.disabled():
        print(f"\n{name}: {len(covered)} crash points in {runs} runs")
    assert kills == 0, "there are still writes at which nobody was killed"


def _armed(step: Step, fate: Covering) -> Step:
    async def act(world: World) -> None:
        fate.begin(step.name)
        await step.act(world)

    return step._replace(act=act)
