"""The planners in the small world of this folder: at least 10⁵ distinct states, every write of each
judged, and a sample let come to rest; in `make unit` a tenth of the states of every scenario."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .converge import check_reached, undisturbed
from .explore import explore
from .scenario import Scenario, scenarios

SCENARIOS = scenarios()
STATES = 105_000
SAMPLE = 250
"""Of each scenario, worlds from which faults stop and the fixed point is looked for."""
LIMIT = -(-STATES // len(SCENARIOS))


@pytest.mark.parametrize("share", [10, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_no_write_of_any_state_breaks_a_promise(
    scenario: Scenario, share: int, record_property: Callable[[str, object], None]
) -> None:
    limit = LIMIT // share
    found = explore(scenario, undisturbed(scenario), limit, sample_every=LIMIT // SAMPLE)
    assert found.states == limit, "the scenario has fewer states than it has to"
    for index, world in enumerate(found.sample):
        check_reached(world, scenario.universe, lazy=index % 2 == 1)
    record_property("states of the planner", found.states)
