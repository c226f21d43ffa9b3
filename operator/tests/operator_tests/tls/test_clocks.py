"""An operator whose clock is wrong for a while: what it made then is made again, and what is right stays."""

from __future__ import annotations

import random

import pytest

from waltz_admin.authority import can_sign, describe, make_authority
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.model.times import timestamp

from .world import BEGIN, CA, CLUSTER, DAY, ROLES, World


def made_at(at: float) -> WaltzCluster:
    metadata = CLUSTER.metadata.model_copy(update={"creation_timestamp": timestamp(at)})
    return CLUSTER._replace(metadata=metadata)


def installed(now: float = BEGIN) -> World:
    """Of a cluster that was made ten days ago."""
    world = World(cluster=made_at(BEGIN - 10 * DAY), handshakes=False, now=now)
    world.write_all()
    world.restart_all()
    world.log.clear()
    return world


def valid(world: World) -> bool:
    """Whether everybody's certificate, and those of all who signed it, are valid now."""
    found = [describe(world.secrets[role]["tls.crt"], role) for role in ROLES]
    return all(one.not_before <= world.now < one.not_after for one in found)


@pytest.mark.parametrize("lost", [*ROLES, None])
def test_certificates_from_the_future_are_made_again(lost: str | None) -> None:
    """They were made in a pass with a clock that was ahead by less than the authority lives."""
    world = installed()
    world.now += 40 * DAY
    for role in ROLES if lost is None else (lost,):
        world.deleted(role)
    world.write_all()
    world.now = BEGIN + DAY
    assert not valid(world)
    before = {role: world.secrets[role]["tls.crt"] for role in ROLES}
    world.write_all()
    assert valid(world)
    written = {role for role in ROLES if world.secrets[role]["tls.crt"] != before[role]}
    assert written == (set(ROLES) if lost is None else {lost})
    assert world.outdated == []
    world.check()


def test_a_small_difference_of_clocks_changes_nothing() -> None:
    world = installed(BEGIN + 290)
    world.now = BEGIN
    assert world.look(settled=False) == []
    assert world.look(settled=True) == []


def test_an_authority_from_the_future_cannot_sign() -> None:
    pair = make_authority("a", BEGIN + DAY, DAY)
    assert not can_sign(pair, BEGIN)
    assert can_sign(pair, BEGIN + DAY)
    assert not can_sign(pair, BEGIN + 2 * DAY)


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_that_was_installed_in_the_future_gets_a_new_authority(seed: int) -> None:
    """Nothing that pods run with is valid, so they are restarted manually, all at once."""
    world = installed(BEGIN + 1000 * DAY)
    world.now = BEGIN
    world.write_all()
    assert valid(world)
    world.restart_all()
    world.finish(random.Random(seed), 0.3)
    key = world.rests_on_one_authority()
    authority = describe(world.secrets[CA]["tls.crt"], CA)
    assert authority.key_id == key
    assert authority.not_before <= world.now
    assert valid(world)


@pytest.mark.parametrize("seed", range(3))
def test_a_rotation_that_was_begun_in_the_future_ends_well(seed: int) -> None:
    """The clock is right again at some moment of it. What was announced then is still there, and is announced
    when its time has come."""
    world, rng = installed(), random.Random(seed)
    world.now += 61 * DAY
    for _ in range(rng.randrange(40)):
        if not world.turn(rng, crash=0.3):
            break
    world.pending = []
    world.now = BEGIN + DAY
    world.write_all()
    assert valid(world)
    world.restart_all()
    world.finish(rng, 0.3)
    assert valid(world)
    world.check()
    world.now = BEGIN + 62 * DAY
    world.finish(rng, 0.3)
    world.rests_on_one_authority()
    assert valid(world)


def test_a_clock_that_has_lost_its_time_makes_nothing() -> None:
    """What it would make has expired for everybody else."""
    world = installed()
    world.now = 0.0
    assert world.look(settled=False) == []
    assert world.look(settled=True) == []
    world.now = BEGIN
    assert world.look(settled=False) == []


def test_a_first_certificate_is_made_with_such_a_clock() -> None:
    """There is none that could be better."""
    world = World(cluster=made_at(BEGIN + DAY), handshakes=False, now=BEGIN)
    world.write_all()
    assert set(ROLES) <= set(world.secrets)
    assert world.look(settled=False) == []
