"""A claim that somebody has deleted is kept by its running pod, and goes with it: the operator does not end
that pod, keeps Kubernetes from evicting it, and reports it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import (
    answer,
    facts,
    identity,
    kube,
    pod,
    rendered,
    replica,
)
from operator_tests.plan.test_zookeeper_restarts import SET, ensemble, objects, server
from operator_tests.resources.clusters import INPUTS, cluster
from operator_tests.resources.clusters import objects as manifests
from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.actions import DeletePod
from waltz_operator.model.ensemble import members
from waltz_operator.model.facts import Facts, inputs_of
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, NodeView, PodView, Snapshot, Unknown
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.cordons import closed_to_copies
from waltz_operator.plan.preconditions import still_so
from waltz_operator.plan.safety_gates import Allowed, Denied, may_restart
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of
from waltz_operator.plan.status.stalled import stands_still

SILENT = Unknown("no route")
STUCK = pod(ready=False, stuck="CrashLoopBackOff")
NODE = identity(2)


def dying(found: Facts, *claims: str) -> Facts:
    """The same, with these claims deleted."""
    assert isinstance(found.kube, KubeView)
    pvcs = {claim: replace(view, deleting=claim in claims) for claim, view in found.kube.pvcs.items()}
    return replace(found, kube=replace(found.kube, pvcs=pvcs))


def seen(
    node: PodView | None = None, says: dict[int, NodeView | Unknown] | None = None, *, pause: bool = False
) -> Facts:
    """Node 2, whose claim is deleted, has another template than the wanted one."""
    found = facts(kube({2: node or pod("t0")}), says)
    return dying(replace(found, desired=replace(found.desired, allow_pause=pause)), NODE.pvc)


def degraded(found: Facts) -> tuple[str, str, str]:
    all_of_them = conditions(found, decide(found, rendered()), health_of(found), (), (), 1)
    one = next(one for one in all_of_them if one.type == "Degraded")
    return one.status, one.reason, one.message


@pytest.mark.parametrize("pause", [False, True])
def test_a_pod_that_keeps_it_is_not_restarted(pause: bool) -> None:
    found = seen(pause=pause)
    decision = decide(found, rendered())
    assert not any(isinstance(one, DeletePod) for one in decision.actions)
    (blocked,) = [one for one in decision.blocked if one.reason == Reason.VOLUME_BEING_DELETED]
    assert NODE.pvc in blocked.text
    assert stands_still(found, blocked)
    assert isinstance(still_so(found, DeletePod(NODE.pod, "uid", "", "")), Denied)


def test_the_only_copy_is_not_destroyed_where_writes_may_pause() -> None:
    found = facts(kube({2: pod("t0")}), assigned=(2,))
    found = replace(found, desired=replace(found.desired, allow_pause=True))
    assert isinstance(may_restart(found, NODE), Allowed)
    assert isinstance(may_restart(dying(found, NODE.pvc), NODE), Denied)


def test_the_claim_of_its_journal_counts_too() -> None:
    found = facts(kube({2: pod("t0")}))
    node: NodeIdentity = NODE._replace(journal_pvc="journal-s2-0")
    assert isinstance(found.kube, KubeView)
    view = found.kube.pvcs[NODE.pvc]
    found = replace(found, kube=replace(found.kube, pvcs={**found.kube.pvcs, "journal-s2-0": view}))
    assert isinstance(may_restart(dying(found, "journal-s2-0"), node), Denied)


def test_a_node_that_was_drained_is_restarted() -> None:
    found = dying(facts(kube({2: pod("t0")}), assigned=(0, 1)), NODE.pvc)
    assert isinstance(may_restart(found, NODE), Allowed)


@pytest.mark.parametrize(
    ("says", "assigned", "allowed"),
    [
        ({2: SILENT}, (0, 1, 2), True),
        ({2: SILENT, 1: SILENT}, (0, 1, 2), False),
        ({2: SILENT}, (2,), False),
        ({2: answer(replica())}, (0, 1, 2), False),
    ],
    ids=["two others are current", "one other is", "it is the only copy", "it answers"],
)
def test_one_that_does_nothing_is_ended_when_its_data_is_proven_to_be_needless(
    says: dict[int, NodeView | Unknown], assigned: tuple[int, ...], allowed: bool
) -> None:
    found = facts(kube({2: STUCK}), says, assigned=assigned)
    assert isinstance(may_restart(dying(found, NODE.pvc), NODE), Allowed if allowed else Denied)


def test_degraded_says_what_to_do_whether_or_not_a_restart_is_due() -> None:
    status, reason, text = degraded(dying(facts(), NODE.pvc))
    assert (status, reason) == ("True", "VolumeBeingDeleted")
    for part in (NODE.pvc, NODE.pod, "drain"):
        assert part in text
    ending = dying(facts(kube({2: pod(deleting=True)})), NODE.pvc)
    assert degraded(ending)[1] != "VolumeBeingDeleted"  # its end is decided


def test_a_server_of_zookeeper_that_keeps_it_is_not_restarted() -> None:
    claim = f"data-{SET}-0"
    found = dying(ensemble(server()), claim)
    decision = decide(found, objects())
    assert not any(isinstance(one, DeletePod) for one in decision.actions)
    assert [one.reason for one in decision.blocked] == [Reason.VOLUME_BEING_DELETED]
    assert isinstance(still_so(found, DeletePod(f"{SET}-0", "uid", "", "")), Denied)
    assert degraded(found)[1] == "VolumeBeingDeleted"
    assert claim in degraded(found)[2]


def test_the_other_servers_of_zookeeper_are_restarted_all_the_same() -> None:
    found = dying(ensemble(server(), server(), server()), f"data-{SET}-2")
    restarted = [one.name for one in decide(found, objects()).actions if isinstance(one, DeletePod)]
    assert restarted == [f"{SET}-1"]


def test_it_gets_no_new_copies() -> None:
    assert NODE.connect_string not in closed_to_copies(facts())
    assert NODE.connect_string in closed_to_copies(dying(facts(), NODE.pvc))


@pytest.mark.parametrize(
    ("others", "allowed"),
    [
        ((server(), server()), True),
        ((server(), server(ready=False)), False),
        ((server(), server(deleting=True)), False),
        ((), False),
    ],
)
def test_a_server_that_does_not_serve_is_ended_when_all_others_do(
    others: tuple[PodView, ...], allowed: bool
) -> None:
    found = dying(ensemble(server(ready=False), *others), f"data-{SET}-0")
    answered = still_so(found, DeletePod(f"{SET}-0", "uid", "", ""))
    assert isinstance(answered, Allowed if allowed else Denied)


def test_an_ensemble_does_not_begin_to_grow() -> None:
    one = replace(server(), members=1)
    found = ensemble(one)
    wanted = replace(found.desired, zookeeper_claims=tuple(f"data-{SET}-{n}" for n in range(3)))
    assert isinstance(found.kube, KubeView)
    whole = replace(found.kube.statefulsets[SET], members=1)
    view = replace(found.kube, statefulsets={**found.kube.statefulsets, SET: whole})
    found = replace(found, desired=wanted, kube=view)
    assert isinstance(found.kube, KubeView)
    assert members(wanted, found.kube) == 2
    kept = dying(found, f"data-{SET}-0").kube
    assert isinstance(kept, KubeView)
    assert members(wanted, kept) == 1


def budgets(found: Facts) -> tuple[int, str, bool]:
    snapshot = Snapshot(cluster(), found.kube, found.tree, {}, {}, 0.0)
    inputs = inputs_of(snapshot, found)
    inputs = replace(
        INPUTS,
        storage_evictions=inputs.storage_evictions,
        broken_evictions=inputs.broken_evictions,
        zookeeper_evictions=inputs.zookeeper_evictions,
    )
    made = manifests(cluster(), inputs)
    storage = made["PodDisruptionBudget", "ledger-storage"]["spec"]
    zookeeper = made["PodDisruptionBudget", "ledger-zookeeper"]["spec"]
    return storage["maxUnavailable"], storage["unhealthyPodEvictionPolicy"], zookeeper["maxUnavailable"] == 1


def test_no_drain_of_a_machine_evicts_it() -> None:
    assert budgets(facts()) == (1, "IfHealthyBudget", True)
    assert budgets(dying(facts(), NODE.pvc)) == (0, "IfHealthyBudget", True)
    stuck = facts(kube({2: STUCK}), {2: SILENT})
    assert budgets(stuck)[1] == "AlwaysAllow"
    assert budgets(dying(stuck, NODE.pvc))[1] == "IfHealthyBudget"
    assert budgets(ensemble(server()))[2]
    assert not budgets(dying(ensemble(server()), f"data-{SET}-0"))[2]
