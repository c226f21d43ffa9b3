"""Pods that their controllers do not make, because a quota or an admission rule refuses them: after a minute
the status names them, and does not promise that anything is in progress."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan.cluster import NOW, facts, identity, kube, pod, rendered
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import KubeView, Unknown
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of
from waltz_operator.plan.status.stalled import POD_SECONDS
from waltz_operator.run import read_kubernetes
from waltz_operator.run.read_objects import with_missing

SILENT = Unknown("no such name")
POD = identity(1).pod
QUOTA = (
    'pods "c-server-7-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4'
)


def shown(found: Facts, template: str = "t1") -> dict[str, tuple[str, str, str]]:
    decision = decide(found, rendered(template=template, servers="t1"))
    made = conditions(found, decision, health_of(found), (), (), 1)
    return {one.type: (one.status, one.reason, one.message) for one in made}


def in_a_roll(since: float) -> Facts:
    """Node 1 was restarted with its new template; the others still have the old one."""
    view = kube({0: pod("t1"), 1: None, 2: pod("t1")}, template="t2")
    return facts(replace(view, missing={POD: since}), {1: SILENT})


def test_a_storage_node_whose_pod_is_refused_is_named_after_a_minute() -> None:
    early = shown(in_a_roll(NOW - POD_SECONDS + 1), "t2")
    assert early["Degraded"][1] == "NodeSilent"
    assert early["Progressing"][0] == "True"
    late = shown(in_a_roll(NOW - POD_SECONDS), "t2")
    status, reason, text = late["Degraded"]
    assert (status, reason) == ("True", "PodStuck")
    assert text.startswith(f"{POD}: it has no pod; a quota or an admission rule may be in the way")
    assert f"`kubectl describe statefulset {identity(1).statefulset}`" in text
    assert late["Progressing"][0] == "False"


def deployment(message: str, at: str) -> KubeView:
    refused = {"type": "ReplicaFailure", "status": "True", "message": message, "lastTransitionTime": at}
    status = {"replicas": 1, "readyReplicas": 1, "conditions": [refused]}
    body = {"metadata": {"uid": "d"}, "spec": {"replicas": 1}, "status": status}
    return replace(kube(), deployment=read_kubernetes.deployment(body))


def test_a_roll_of_servers_whose_pods_are_refused_is_reported_with_the_answer() -> None:
    found = facts(deployment(QUOTA, "1970-01-01T00:10:00Z"))
    late = shown(found)
    assert late["Degraded"] == ("True", "PodStuck", f"a pod of the servers cannot be made: {QUOTA}")
    assert (late["Progressing"][0], late["Progressing"][1]) == ("False", "PodStuck")
    early = shown(facts(deployment(QUOTA, "1970-01-01T00:16:00Z")))
    assert early["Degraded"][0] == "False"
    assert (early["Progressing"][0], early["Progressing"][1]) == ("True", "WaitingForServers")


def test_a_roll_that_only_waits_for_its_pods_is_in_progress() -> None:
    found = shown(facts(kube(calm=False)))
    assert found["Degraded"][0] == "False"


def test_since_when_a_pod_is_missing_is_kept_until_it_is_there() -> None:
    since: dict[str, float] = {}
    gone = kube({1: None})
    assert with_missing(kube(), since, 100.0).missing == {}
    assert with_missing(gone, since, 101.0).missing == {POD: 101.0}
    assert with_missing(gone, since, 161.0).missing == {POD: 101.0}
    assert with_missing(gone, since, 50.0).missing == {POD: 50.0}, "the clock was ahead"
    assert with_missing(kube(), since, 162.0).missing == {}
    assert with_missing(gone, since, 163.0).missing == {POD: 163.0}
    unsettled = {name: replace(one, settled=False) for name, one in gone.statefulsets.items()}
    assert with_missing(replace(gone, statefulsets=unsettled), since, 164.0).missing == {}
