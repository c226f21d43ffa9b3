"""Certificates of a cluster whose specification cannot be worked on: they are renewed as they are."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.resources.clusters import PLAIN, merged
from waltz_admin.authority import describe
from waltz_operator.api.topology import tls_roles
from waltz_operator.model.actions import ApplyObject
from waltz_operator.plan.certificates import renewal_steps
from waltz_operator.run.renewals import with_every_role
from waltz_operator.tls.secrets import TlsSecrets, secret_data

from .world import CA, DAY, LIFETIMES, ROLES, ZOOKEEPER, World

UNREADABLE: dict[str, Any] = {"storage": {"config": {"storage.disk.threads": [1]}}, "partitions": "many"}


@pytest.fixture
def world() -> World:
    made = World(handshakes=False)
    made.install()
    return made


def renewed(world: World) -> set[str]:
    """What is written in one pass, carried out."""
    cluster = with_every_role(body({"tls": LIFETIMES, **UNREADABLE}))
    assert cluster is not None
    cluster = cluster._replace(metadata=world.cluster.metadata)
    steps = renewal_steps(cluster, TlsSecrets(world.secrets, dict.fromkeys(world.secrets, "1")), world.now)
    found = {
        one.key.name.removeprefix("ledger-tls-"): secret_data(one.body)
        for one in steps
        if isinstance(one, ApplyObject)
    }
    for role, data in found.items():
        world.write(role, data, new=False)
    return set(found)


def body(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": "ledger", "namespace": "demo", "uid": "u"},
        "spec": merged(PLAIN, spec),
        "status": {"operation": {"kind": 7}},
    }


def test_what_is_due_is_renewed_for_the_names_that_it_has_and_nothing_restarts(world: World) -> None:
    before = {role: describe(world.secrets[role]["tls.crt"], role) for role in ROLES}
    authority = dict(world.secrets[CA])
    world.now += 59 * DAY
    assert renewed(world) == set()
    world.now += 2 * DAY
    assert renewed(world) == set(ROLES)
    for role, was in before.items():
        found = describe(world.secrets[role]["tls.crt"], role)
        assert (found.names, found.common_name) == (was.names, was.common_name)
        assert found.not_before > was.not_before
    assert world.secrets[CA] == authority
    assert world.outdated == []
    world.check()
    assert world.secrets["zookeeper"]["tls-combined.pem"].endswith(world.secrets["zookeeper"]["tls.crt"])


def test_no_role_gets_a_first_certificate(world: World) -> None:
    world.deleted("storage")
    world.now += 61 * DAY
    assert renewed(world) == set(ROLES) - {"storage"}


def test_nothing_is_renewed_without_an_authority_that_signs(world: World) -> None:
    world.now += 61 * DAY
    world.key_gone()
    assert renewed(world) == set()
    world.deleted()
    assert renewed(world) == set()


def test_of_a_specification_that_cannot_be_read_only_what_renewals_need_is_read() -> None:
    made = with_every_role(body({**UNREADABLE, "tls": {**LIFETIMES, "clientAuthentication": [3]}}))
    assert made is not None
    assert made.spec.tls.certificate_lifetime_hours == LIFETIMES["certificateLifetimeHours"]
    assert {role.role for role in tls_roles(made)} == {*ROLES, "console"}
    made = with_every_role(body({"tls": {"certificateLifetimeHours": "long"}}))
    assert made is not None
    assert made.spec.tls.certificate_lifetime_hours == 24 * 90


@pytest.mark.parametrize(
    "spec",
    [{"tls": {"mode": "Secret"}}, {"tls": {"mode": 3}}, {"tls": []}, {"paused": True}, {"paused": "yes"}],
    ids=str,
)
def test_certificates_of_others_and_paused_clusters_are_left_alone(spec: dict[str, Any]) -> None:
    assert with_every_role(body({**ZOOKEEPER, **spec})) is None
    assert with_every_role({**body({}), "spec": "nothing"}) is None
