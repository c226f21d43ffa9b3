"""The whole story of a cluster's authority: rotation, its loss at every moment, the operator's death between
any two writes, pods that restart one by one in any order. At every moment everybody takes everybody's
certificate, and in the end there is one authority."""

from __future__ import annotations

import random

import pytest

from .world import DAY, LOSSES, World


@pytest.fixture(scope="module")
def installed() -> World:
    world = World()
    world.install()
    return world


@pytest.mark.parametrize("crash", [0.0, 0.3, 1.0])
def test_a_rotation_ends_with_the_new_authority(installed: World, crash: float) -> None:
    world = installed.copy()
    before = world.rests_on_one_authority()
    world.now += 61 * DAY
    world.finish(random.Random(1), crash)
    assert world.rests_on_one_authority() != before


@pytest.mark.parametrize("crash", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_an_authority_that_is_lost_at_rest_is_replaced_step_by_step(
    installed: World, loss: str, crash: float
) -> None:
    world = installed.copy()
    before = world.rests_on_one_authority()
    LOSSES[loss](world)
    world.finish(random.Random(2), crash)
    assert world.rests_on_one_authority() != before


@pytest.mark.parametrize(("seed", "loss"), list(enumerate(["deleted", *LOSSES])))
def test_an_authority_may_be_lost_at_any_moment_of_a_rotation(installed: World, seed: int, loss: str) -> None:
    """Announced, switched, retiring, and half-way; in every fourth run it is lost once more while it is being
    replaced."""
    rotation = installed.copy()
    rotation.now += 61 * DAY
    rng, moments = random.Random(seed), 0
    while rotation.turn(rng, crash=0.3):
        moments += 1
        world, chance = rotation.copy(), random.Random(1000 * seed + moments)
        world.handshakes = moments % 12 == 0
        LOSSES[loss](world)
        if moments % 4 == 0:
            for _ in range(chance.randrange(25)):
                world.turn(chance, crash=0.3)
            LOSSES[chance.choice(sorted(LOSSES))](world)
        world.finish(chance, 0.3)
        world.rests_on_one_authority()
    assert moments > 30
