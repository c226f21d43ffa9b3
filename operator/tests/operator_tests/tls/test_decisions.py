"""What is signed, by whom and when, where something is missing or has expired."""

from __future__ import annotations

import random

import pytest

from operator_tests.resources.clusters import cluster
from waltz_admin.authority import describe, make_authority, split
from waltz_operator.tls.secrets import COMBINED

from .world import CA, DAY, LIFETIMES, LOSSES, ROLES, ZOOKEEPER, World


@pytest.fixture
def world() -> World:
    made = World(handshakes=False)
    made.install()
    made.log.clear()
    return made


def issuer(world: World, role: str) -> bytes:
    return describe(world.secrets[role]["tls.crt"], role).issuer_key_id


def key_id(world: World, name: str) -> bytes:
    """Of an authority of the authority's Secret."""
    return describe(world.secrets[CA][name], name).key_id


def certificates(world: World) -> dict[str, bytes]:
    return {role: world.secrets[role]["tls.crt"] for role in ROLES}


@pytest.mark.parametrize("loss", LOSSES)
def test_certificates_stay_and_only_trust_more_until_every_pod_has_restarted(world: World, loss: str) -> None:
    before, old = certificates(world), issuer(world, "server")
    LOSSES[loss](world)
    world.write_all()
    assert certificates(world) == before
    assert key_id(world, "tls.crt") == old
    assert not any("sign certificates" in line for line in world.log), world.log


@pytest.mark.parametrize("role", ["server", "storage", "client"])
def test_a_role_lost_with_the_authority_is_signed_by_the_next_one_when_the_others_trust_it(
    world: World, role: str
) -> None:
    world.deleted()
    world.deleted(role)
    world.write_all()
    assert issuer(world, role) == key_id(world, "next.crt")
    assert {issuer(world, other) for other in ROLES if other != role} == {key_id(world, "tls.crt")}
    writes = [line.split()[1] for line in world.log if line.startswith("write ")]
    assert writes[-1] == f"{role}:"
    world.restart_all()
    world.finish(random.Random(1), 0.3)
    world.rests_on_one_authority()


def test_a_name_that_is_wanted_now_waits_for_the_switch(world: World) -> None:
    """A certificate of the next authority would be refused by every pod that has not restarted."""
    before = certificates(world)
    world.deleted()
    world.cluster = cluster({"tls": {**LIFETIMES, "extraNames": ["waltz.example.com"]}, **ZOOKEEPER})
    world.write_all()
    assert certificates(world) == before
    world.finish(random.Random(1), 0.3)
    world.rests_on_one_authority()
    assert "waltz.example.com" in describe(world.secrets["server"]["tls.crt"], "server").names


@pytest.mark.parametrize(
    "name", ["2001:DB8::1", "::ffff:10.0.0.1", "010.0.0.1", "Waltz.Example.com", "1.2.3"]
)
def test_one_certificate_is_enough_however_a_name_is_written(world: World, name: str) -> None:
    """The certificate shows an address in its shortest form. While that counted as another name, it was
    signed anew in each pass, and nothing else of the cluster was done."""
    before = certificates(world)
    world.cluster = cluster({"tls": {**LIFETIMES, "extraNames": [name]}, **ZOOKEEPER})
    for write in world.look(settled=False):
        world.write(*write)
    assert certificates(world)["server"] != before["server"]
    assert world.look(settled=False) == []


def test_what_is_due_waits_for_the_switch_and_what_has_expired_does_not(world: World) -> None:
    before = certificates(world)
    world.deleted()
    world.now += 61 * DAY
    world.write_all()
    assert certificates(world) == before
    world.now += 28.5 * DAY  # the authority lives on, for half a day
    world.write_all()
    assert {issuer(world, role) for role in ROLES} == {key_id(world, "next.crt")}
    world.restart_all()
    world.finish(random.Random(1), 0.3)
    world.rests_on_one_authority()


def test_an_authority_that_has_expired_is_replaced(world: World) -> None:
    """The operator was away for long: nothing that pods run with is valid, so they are restarted by hand, all
    at once."""
    old = key_id(world, "tls.crt")
    world.now += 100 * DAY
    world.write_all()
    assert {issuer(world, role) for role in ROLES} == {key_id(world, "next.crt")}
    world.restart_all()
    world.finish(random.Random(1), 0.3)
    assert world.rests_on_one_authority() != old


def test_an_announced_authority_takes_over_when_the_old_key_is_lost(world: World) -> None:
    world.now += 61 * DAY
    world.write_all()
    following = key_id(world, "next.crt")
    world.key_gone()
    world.write_all()
    assert key_id(world, "next.crt") == following
    world.finish(random.Random(1), 0.3)
    assert world.rests_on_one_authority() == following


def test_an_authority_that_somebody_puts_there_takes_over(world: World) -> None:
    world.another_one()
    theirs = key_id(world, "tls.crt")
    world.finish(random.Random(1), 0.3)
    assert world.rests_on_one_authority() == theirs


@pytest.mark.parametrize("content", [None, b"another key and certificate"], ids=["missing", "another"])
def test_key_and_certificate_in_one_file_are_those_of_the_two_files(
    world: World, content: bytes | None
) -> None:
    """ZooKeeper reads that file, and all others are for who looks."""
    for role in ROLES:
        data = world.secrets[role]
        combined = data.pop(COMBINED, None)
        if role == "zookeeper":
            assert combined == data["tls.key"] + data["tls.crt"]
            if content is not None:
                data[COMBINED] = content
        else:
            assert combined is None
    world.write_all()
    data = world.secrets["zookeeper"]
    assert data[COMBINED] == data["tls.key"] + data["tls.crt"]
    assert {write[0] for write in world.look(settled=True)} == set()


def test_authorities_have_different_names(world: World) -> None:
    """Java takes of two with the same name in one file the last only."""
    world.now += 61 * DAY
    world.write_all()
    names = [describe(one, "").common_name for one in split(world.secrets["zookeeper"]["ca.crt"])]
    assert len(names) == len(set(names)) == 2


def test_a_next_authority_alone_signs(world: World) -> None:
    """Nobody knows another one: it is not announced to anybody."""
    pair = make_authority("left over", world.now, 90 * DAY)
    world.secrets = {CA: {"next.crt": pair.certificate, "next.key": pair.key}}
    world.write_all()
    assert {issuer(world, role) for role in ROLES} == {describe(pair.certificate, "").key_id}


def test_when_all_is_lost_there_is_one_new_authority(world: World) -> None:
    old = key_id(world, "tls.crt")
    for name in (CA, *ROLES):
        world.deleted(name)
    world.write_all()
    world.restart_all()
    world.check()
    assert world.look(settled=True) == []
    assert world.rests_on_one_authority() != old
