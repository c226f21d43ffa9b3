"""The planners in the small world of this folder: at least 10⁵ distinct states, every write of each judged,
and a sample let come to rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .converge import check_reached, undisturbed
from .explore import explore
from .scenario import Scenario, scenarios

SCENARIOS = scenarios()
STATES = 100_000
SAMPLE = 250
"""Of each scenario, worlds from which faults stop and the fixed point is looked for."""
LIMIT = -(-STATES // len(SCENARIOS))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_no_write_of_any_state_breaks_a_promise(
    scenario: Scenario, record_property: Callable[[str, object], None]
) -> None:
    found = explore(scenario, undisturbed(scenario), LIMIT, sample_every=LIMIT // SAMPLE)
    assert found.states == LIMIT, "the scenario has fewer states than it has to"
    for index, world in enumerate(found.sample):
        check_reached(world, scenario.universe, lazy=index % 2 == 1)
    record_property("states of the planner", found.states)
