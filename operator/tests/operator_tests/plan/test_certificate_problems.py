"""While a certificate is missing that a pod needs to start, no pod is changed and none that runs is
restarted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from operator_tests.plan.cluster import facts, kube, pod, rendered, told
from operator_tests.plan.test_zookeeper_restarts import ensemble, restarted, server
from operator_tests.resources.clusters import INPUTS, VARIANTS, cluster, live, objects
from waltz_cluster.replica_rules import NeverStarted
from waltz_operator.api.metadata import TEMPLATE_HASH
from waltz_operator.model.actions import AssignInZooKeeper, DeletePod
from waltz_operator.model.certificate_problems import CertificateProblem
from waltz_operator.model.facts import Facts, facts_of, inputs_of, render
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, ObjectKey, ObjectView, Snapshot, TreeView, Unknown
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of


def missing(role: str) -> CertificateProblem:
    return CertificateProblem(role, Reason.CERTIFICATE_MISSING, f"Secret c-tls-{role} is missing")


def with_problem(found: Facts, *roles: str) -> Facts:
    return replace(found, certificate_problems=tuple(missing(role) for role in roles))


def degraded(found: Facts, decision: Decision) -> tuple[str, str, str]:
    made = conditions(found, decision, health_of(found), (), (), 1)
    one = next(condition for condition in made if condition.type == "Degraded")
    return one.status, one.reason, one.message


def deleted(found: Facts) -> list[str]:
    return [one.name for one in decide(found, rendered(template="t2")).actions if isinstance(one, DeletePod)]


@pytest.mark.parametrize("role", ["storage", "server", "operator", "zookeeper"])
def test_no_storage_node_that_runs_is_restarted(role: str) -> None:
    changed = facts(kube({node: pod("t1") for node in (0, 1, 2)}, template="t2"))
    assert deleted(changed)
    assert deleted(with_problem(changed, role)) == []
    assert deleted(with_problem(changed, "client", "console"))


def test_the_denial_names_the_secret() -> None:
    changed = with_problem(facts(kube({0: pod("t1")}, template="t2")), "storage")
    decision = decide(changed, rendered(template="t2"))
    assert [(one.reason, one.text) for one in decision.blocked] == [
        ("CertificateMissing", "Secret c-tls-storage is missing")
    ]


def test_one_that_cannot_run_may_be_restarted() -> None:
    broken = facts(
        kube({0: pod("t1", ready=False, stuck="CrashLoopBackOff")}, template="t2"), {0: Unknown("no answer")}
    )
    assert deleted(with_problem(broken, "storage")) == ["s0-0"]


def test_a_zookeeper_waits_for_its_own_certificate_alone() -> None:
    changed = ensemble(server(), server(), server())
    assert restarted(with_problem(changed, "storage", "server"))
    assert restarted(with_problem(changed, "zookeeper")) == []


def test_the_condition_names_all_of_them() -> None:
    found = with_problem(facts(), "storage", "client")
    said = "Secret c-tls-storage is missing; Secret c-tls-client is missing"
    assert degraded(found, decide(found, rendered())) == ("True", "CertificateMissing", said)
    unread = Decision(found.memory, invalid=(Reason.INVALID_SPEC, "x"))
    assert degraded(found, unread)[0] == "False"
    begun = replace(found, desired=replace(found.desired, paused=True))
    assert degraded(begun, Decision(found.memory))[0] == "True"
    new = replace(begun, memory=replace(found.memory, cluster_key=None))
    assert degraded(new, Decision(new.memory))[0] == "False"


def test_without_the_certificate_of_the_operator_nothing_is_asked_of_nodes() -> None:
    """The first assignments, which need no answer of a node, would fail in every pass."""
    base = facts(assigned=())
    assert isinstance(base.tree, TreeView)
    new = replace(base, tree=replace(base.tree, partitions={0: NeverStarted()}))
    assert any(isinstance(one, AssignInZooKeeper) for one in decide(new, rendered()).actions)
    found = with_problem(new, "operator")
    decision = decide(found, rendered())
    assert decision.actions == []
    assert told(found, decision) == (
        "True",
        "CertificateMissing",
        "changes of the copies: Secret c-tls-operator is missing",
    )
    others = with_problem(new, "server", "storage", "client")
    assert any(isinstance(one, AssignInZooKeeper) for one in decide(others, rendered()).actions)


def test_one_that_ends_soon_holds_up_nothing() -> None:
    changed = facts(kube({node: pod("t1") for node in (0, 1, 2)}, template="t2"))
    soon = CertificateProblem("operator", Reason.CERTIFICATE_ENDS_SOON, "it ends", holds=False)
    late = replace(changed, certificate_problems=(soon,))
    assert deleted(late)
    assert degraded(late, decide(late, rendered())) == ("True", "CertificateEndsSoon", "it ends")
    worse = replace(late, certificate_problems=(soon, missing("storage")))
    assert degraded(worse, Decision(worse.memory))[1] == "CertificateMissing"


# ---- what is applied


def templates(snapshot: Snapshot) -> dict[str, str]:
    """Hash of the pods of each workload that is to be."""
    return {
        one.key.name: one.template_hash for one in render(snapshot, facts_of(snapshot)) if one.template_hash
    }


def look(variant: str, *roles: str) -> Snapshot:
    """The Secrets of these roles are gone, all else is as it was applied."""
    made = cluster(VARIANTS[variant])
    gone = {role: found for role, found in INPUTS.tls_digests.items() if role not in roles}
    there = {ObjectKey(*key): ObjectView("u", "1", "x", obj) for key, obj in live(objects(made)).items()}
    return Snapshot(
        made,
        KubeView(there),
        Unknown("not read"),
        {},
        {},
        0.0,
        tls_digests=gone,
        certificate_problems=tuple(missing(role) for role in roles),
    )


def applied(variant: str) -> Mapping[str, str]:
    return {
        name: body["spec"]["template"]["metadata"]["annotations"][TEMPLATE_HASH]
        for (_, name), body in objects(cluster(VARIANTS[variant])).items()
        if "template" in body.get("spec", {})
    }


@pytest.mark.parametrize("roles", [("storage",), ("server",), ("storage", "server", "console")])
@pytest.mark.parametrize("variant", ["console", "cert-manager"])
def test_the_pods_are_to_be_as_they_were_applied(variant: str, roles: tuple[str, ...]) -> None:
    assert templates(look(variant)) == applied(variant)
    assert templates(look(variant, *roles)) == applied(variant)


def test_what_else_is_wanted_of_the_pods_waits() -> None:
    """So that storage nodes and servers are changed in their order, once the Secret is back."""
    found = look("cert-manager", "storage")
    images = found.cluster.spec.images.model_copy(update={"server": "waltz-server:2"})
    changed = found.cluster._replace(spec=found.cluster.spec.model_copy(update={"images": images}))
    assert templates(replace(found, cluster=changed)) == applied("cert-manager")
    whole = replace(look("cert-manager"), cluster=changed)
    assert templates(whole) != applied("cert-manager")


def test_no_pod_is_evicted_that_could_not_start_again() -> None:
    def evictions(*roles: str) -> tuple[bool, bool]:
        inputs = inputs_of(look("cert-manager"), with_problem(facts(), *roles))
        return inputs.storage_evictions, inputs.zookeeper_evictions

    assert evictions() == evictions("client") == (True, True)
    assert evictions("storage") == (False, True)
    assert evictions("zookeeper") == (False, False)


def test_the_secrets_of_a_cluster_that_is_deleted_are_not_missed() -> None:
    found = look("cert-manager", "storage")
    assert facts_of(found).certificate_problems
    metadata = found.cluster.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    assert (
        facts_of(replace(found, cluster=found.cluster._replace(metadata=metadata))).certificate_problems == ()
    )
