"""The end of a cluster: what of the managed ZooKeeper's volumes goes, and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import desired, facts, kube
from operator_tests.resources.clusters import cluster, objects
from waltz_operator.reconcile.actions import DeletePVC
from waltz_operator.reconcile.desired import desired_of
from waltz_operator.reconcile.facts import Facts
from waltz_operator.reconcile.gate import Allowed, Denied
from waltz_operator.reconcile.kube_view import is_ours
from waltz_operator.reconcile.plan import decide
from waltz_operator.reconcile.proof import still_so
from waltz_operator.reconcile.snapshot import PVCView, TreeMissing

CLAIMS = ("data-c-zookeeper-0", "data-c-zookeeper-1")
ELSE = "data-other-zookeeper-0"


def ending(*, delete: bool, gone: tuple[str, ...] = (), component: str = "zookeeper") -> Facts:
    """All is deleted but ZooKeeper; ``gone``: claims that are being deleted."""
    claims = {
        name: PVCView(f"uid of {name}", 1, 1, component=component, deleting=name in gone)
        for name in (*CLAIMS, ELSE)
    }
    left = replace(kube(nodes=()), deployment=None, pvcs=claims)
    wanted = replace(desired(), deleting=True, reclaim_delete=delete, zookeeper_claims=CLAIMS)
    return replace(facts(left), desired=wanted, tree=TreeMissing(), nodes={})


def test_with_delete_the_claims_of_the_managed_zookeeper_go_before_the_finalizer() -> None:
    decision = decide(ending(delete=True), ())
    deleted = {action.name: action.uid for action in decision.actions if isinstance(action, DeletePVC)}
    assert deleted == {name: f"uid of {name}" for name in CLAIMS}
    assert not decision.teardown_complete


def test_claims_that_wait_for_their_pods_do_not_hold_the_finalizer() -> None:
    decision = decide(ending(delete=True, gone=CLAIMS), ())
    assert decision.teardown_complete
    assert not decision.actions


def test_with_retain_the_claims_stay() -> None:
    decision = decide(ending(delete=False), ())
    assert decision.teardown_complete
    assert not decision.actions


def test_a_claim_of_that_name_that_is_not_zookeepers_stays() -> None:
    decision = decide(ending(delete=True, component=""), ())
    assert decision.teardown_complete
    assert not decision.actions


def test_the_tree_goes_before_the_claims() -> None:
    decision = decide(replace(ending(delete=True), tree=facts().tree), ())
    assert not any(isinstance(action, DeletePVC) for action in decision.actions)


@pytest.mark.parametrize(
    ("name", "delete", "allowed"),
    [(CLAIMS[0], True, True), (CLAIMS[0], False, False), (ELSE, True, False), ("data-s1-0", True, True)],
)
def test_the_second_look_proves_whose_the_claim_is(name: str, delete: bool, allowed: bool) -> None:
    answer = still_so(ending(delete=delete), DeletePVC(name, "uid", "proof"))
    assert isinstance(answer, Allowed if allowed else Denied)


def test_the_claims_that_the_stateful_set_makes_are_known_by_their_names_and_labels() -> None:
    made = cluster({"zookeeper": {"managed": {"replicas": 3}}})
    (found,) = [
        one for (kind, at), one in objects(made).items() if kind == "StatefulSet" and "zookeeper" in at
    ]
    (template,) = found["spec"]["volumeClaimTemplates"]
    names = [f"{template['metadata']['name']}-{found['metadata']['name']}-{n}" for n in range(3)]
    assert list(desired_of(made).zookeeper_claims) == names
    assert is_ours(template)
    assert not is_ours({"metadata": {"labels": {"app.kubernetes.io/instance": "ledger"}}})
    assert not is_ours({"metadata": {"labels": {"app.kubernetes.io/component": "zookeeper"}}})
