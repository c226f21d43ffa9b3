"""The condition Progressing on the way through every scenario: never at rest while there is something to do,
and at rest in the end."""

from __future__ import annotations

import pytest

from waltz_operator.plan.cluster import decide
from waltz_operator.plan.status.progressing import progressing

from .converge import settle, undisturbed
from .operator_turn import cluster_pass
from .scenario import Scenario, scenarios
from .world import UNFIT, Universe, World, facts_in, rendered_objects


def told(world: World, universe: Universe) -> tuple[str, str]:
    """Status and reason."""
    facts, spec = facts_in(world, universe), universe.spec(world)
    decision = decide(facts, () if spec.deleting else rendered_objects(universe, spec))
    status, reason, _ = progressing(facts, decision)
    return status, reason


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda one: one.name)
def test_it_is_at_rest_in_the_end_and_only_then(scenario: Scenario) -> None:
    universe = scenario.universe
    for world in undisturbed(scenario):
        if cluster_pass(world, universe):
            assert told(world, universe) != ("False", "AsWanted"), world
    last = settle(world, universe)
    spec = universe.spec(last)
    if not spec.deleting and spec.template not in UNFIT and last.tree:
        assert told(last, universe) == ("False", "AsWanted"), last
