"""An ensemble of one server that an earlier release made, beside claims that are left of an earlier life."""

from operator_tests.plan.test_ensemble import begin, explore, specification, view
from waltz_operator.model import ensemble


def test_leftover_claims_do_not_make_an_ensemble_of_an_earlier_release_jump() -> None:
    """Its StatefulSet runs one server, which knows itself alone: two more at once were a majority of three
    that has none of its data."""
    world = begin(1, luck=0)._replace(claims=3)
    assert ensemble.members(specification(world), view(world)) == 1
    grows = begin(3, luck=0)._replace(claims=3)
    assert ensemble.members(specification(grows), view(grows)) == 2


def test_majorities_meet_with_leftover_claims() -> None:
    explore(begin(3, luck=0)._replace(claims=3))
