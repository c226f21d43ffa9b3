"""An ensemble of one server that an earlier release made, beside claims that are left of an earlier life."""

import pytest

from operator_tests.plan.test_ensemble import begin, explore, specification, view
from waltz_operator.model import ensemble


def test_leftover_claims_do_not_make_an_ensemble_of_an_earlier_release_jump() -> None:
    """Its StatefulSet runs one server, which knows itself alone: two more at once were a majority of three
    that has none of its data."""
    world = begin(1, luck=0)._replace(claims=3)
    assert ensemble.members(specification(world), view(world)) == 1
    grows = begin(3, luck=0)._replace(claims=3, recorded=1)
    assert ensemble.members(specification(grows), view(grows)) == 2


@pytest.mark.parametrize(("wanted", "luck"), [(3, 0), (1, 1), (3, 1), (3, 2), (5, 1)])
def test_majorities_meet_with_leftover_claims(wanted: int, luck: int) -> None:
    explore(begin(wanted, luck=luck)._replace(claims=wanted if wanted > 1 else 3, recorded=1))


def test_before_the_number_is_recorded_nothing_is_added_to_leftover_claims() -> None:
    """Its StatefulSet may be deleted right after it: then nothing else says how many there were."""
    world = begin(3, luck=0)._replace(claims=3)
    assert ensemble.members(specification(world), view(world)) == 1
    assert ensemble.to_record(specification(world), view(world)) == 1
    none = world._replace(claims=1)
    assert ensemble.members(specification(none), view(none)) == 2


def test_a_deleted_stateful_set_comes_back_with_what_was_recorded() -> None:
    world = begin(1, luck=0)._replace(claims=3, recorded=1, template=None)
    assert ensemble.members(specification(world), view(world)) == 1
    assert ensemble.to_record(specification(world), view(world)) == 1
    unrecorded = world._replace(recorded=0)
    assert ensemble.members(specification(unrecorded), view(unrecorded)) == 3
    nothing = world._replace(claims=0, wanted=3)
    assert ensemble.members(specification(nothing), view(nothing)) == 3, "no data could be lost"
