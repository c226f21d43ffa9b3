"""The managed ZooKeeper's servers go down one at a time, and only while all others serve in a quorum."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import desired, facts, kube, rendered
from waltz_admin.found_tree import NoTree
from waltz_operator.model.actions import DeletePod
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import (
    KubeView,
    ObjectKey,
    ObjectView,
    PodView,
    PVCView,
    StatefulSetView,
    Unknown,
)
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.preconditions import still_so
from waltz_operator.plan.safety_gates import Allowed
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of
from waltz_operator.run import read_kubernetes

SET = "c-zookeeper"
OLD, NEW = "t1", "t2"
NOW = facts().now


def server(template: str = OLD, *, ready: bool = True, deleting: bool = False, stuck: str = "") -> PodView:
    return PodView("uid", "zookeeper", template, ready, deleting, stuck)


def ensemble(*pods: PodView | None, seen: str = NEW, grows: int | None = None, members: int = 0) -> Facts:
    """A cluster with these ZooKeeper servers, whose StatefulSet has the template `seen`."""
    names = [f"{SET}-{number}" for number in range(members or len(pods))]
    base = kube()
    view = replace(
        base,
        objects={**base.objects, ObjectKey("StatefulSet", SET): ObjectView("z", "", "set")},
        statefulsets={**base.statefulsets, SET: StatefulSetView("z", "", "", seen, len(names), 1, True)},
        pods={**base.pods, **{name: pod for name, pod in zip(names, pods, strict=False) if pod is not None}},
        pvcs={
            **base.pvcs,
            **{
                f"data-{name}": PVCView(
                    "v", 1, 1, component="zookeeper", resize_pending_since=0.0 if number == grows else None
                )
                for number, name in enumerate(names)
            },
        },
    )
    wanted = replace(desired(), zookeeper_claims=tuple(f"data-{name}" for name in names), zookeeper_set=SET)
    return replace(facts(view), desired=wanted)


def objects(template: str = NEW) -> tuple[Rendered, ...]:
    return (*rendered(), Rendered(ObjectKey("StatefulSet", SET), {}, "set", template))


def restarted(found: Facts, template: str = NEW) -> list[str]:
    decision = decide(found, objects(template))
    return [action.name for action in decision.actions if isinstance(action, DeletePod)]


def test_one_at_a_time_while_all_others_serve() -> None:
    assert restarted(ensemble(server(), server(), server())) == [f"{SET}-2"]
    assert restarted(ensemble(server(), server(), server(NEW, ready=False))) == []
    assert restarted(ensemble(server(), server(), server(NEW, deleting=True))) == []
    assert restarted(ensemble(server(), server(), None)) == []
    assert restarted(ensemble(server(), server(), server(NEW))) == [f"{SET}-1"]
    assert restarted(ensemble(server(NEW), server(NEW), server(NEW))) == []


def test_a_server_that_does_not_serve_goes_first_when_the_others_are_a_quorum() -> None:
    assert restarted(ensemble(server(), server(ready=False), server())) == [f"{SET}-1"]
    assert restarted(ensemble(server(), server(ready=False), server(ready=False))) == []
    everything = (server(ready=False, stuck="CrashLoopBackOff"),) * 3
    assert restarted(ensemble(*everything)) == [f"{SET}-2"], "a template that can't run does not last"


def test_a_single_server_is_restarted_though_zookeeper_can_not_be_read() -> None:
    found = replace(ensemble(server(ready=False, stuck="ImagePullBackOff")), tree=Unknown("no answer"))
    assert restarted(found) == [f"{SET}-0"]
    assert restarted(ensemble(server())) == [f"{SET}-0"]


def while_servers(calm: bool, *servers: PodView) -> Facts:
    """Three servers of ZooKeeper that serve and are to be restarted, and these of ours."""
    found = ensemble(server(), server(), server())
    assert isinstance(found.kube, KubeView)
    assert found.kube.deployment is not None
    pods = {**found.kube.pods, **{f"c-server-{number}": one for number, one in enumerate(servers)}}
    deployment = replace(found.kube.deployment, calm=calm)
    return replace(found, kube=replace(found.kube, deployment=deployment, pods=pods))


def test_none_that_serves_is_restarted_while_servers_are_replaced() -> None:
    """One that was stopped without a quorum kept its partitions until its session ended: 13 s."""
    runs = PodView("uid", "server", NEW, True)
    for found in (while_servers(False, runs, runs), while_servers(True, runs, replace(runs, deleting=True))):
        assert restarted(found) == []
        assert decide(found, objects()).blocked[0].reason == Reason.SERVERS_FIRST
        assert not isinstance(still_so(found, DeletePod(f"{SET}-2", "uid", "", "")), Allowed)
    assert restarted(while_servers(True, runs, runs)) == [f"{SET}-2"]


@pytest.mark.parametrize(("created", "running_since"), [(NOW - 50, None), (1.0, NOW - 50)])
def test_a_server_that_starts_is_waited_for(created: float, running_since: float | None) -> None:
    """ZooKeeper was restarted in the first second of a roll, and between its two halves: an old server is
    stopped as soon as the new one is ready, whether ZooKeeper serves again by then or not."""
    runs = PodView("uid", "server", NEW, True)
    starts = replace(runs, ready=False, created=created, running_since=running_since)
    found = while_servers(False, runs, runs, starts)
    assert restarted(found) == []
    assert decide(found, objects()).blocked[0].reason == Reason.SERVERS_FIRST
    assert restarted(replace(found, now=NOW + 20)) == [f"{SET}-2"]
    assert restarted(while_servers(False, runs, replace(starts, stuck="CrashLoopBackOff"))) == [f"{SET}-2"]
    by_another_clock = replace(starts, created=NOW + 3600, running_since=None)
    assert restarted(while_servers(False, runs, by_another_clock)) == [f"{SET}-2"]


@pytest.mark.parametrize(
    ("spec", "conditions", "stalls"),
    [
        ({}, {"ReplicaFailure": "True", "Progressing": "True"}, True),
        ({}, {"Progressing": "False"}, True),
        ({"paused": True}, {}, True),
        ({}, {"Progressing": "True"}, False),
    ],
)
def test_a_roll_that_does_not_get_on_is_not_waited_for(
    spec: dict[str, object], conditions: dict[str, str], stalls: bool
) -> None:
    """A quota that refuses the new server may have room again when ZooKeeper has been made smaller."""
    listed = [{"type": name, "status": status} for name, status in conditions.items()]
    told = read_kubernetes.deployment(
        {"metadata": {"uid": "d"}, "spec": spec, "status": {"conditions": listed}}
    )
    assert told.stalls is stalls
    runs = PodView("uid", "server", NEW, True)
    found = while_servers(False, runs, runs)
    assert isinstance(found.kube, KubeView)
    found = replace(found, kube=replace(found.kube, deployment=replace(told, calm=False)))
    assert restarted(found) == ([f"{SET}-2"] if stalls else [])


def test_servers_that_do_not_get_ready_or_are_gone_with_their_machine_are_not_waited_for() -> None:
    runs = PodView("uid", "server", NEW, True)
    gone = replace(runs, ready=False, deleting=True)
    assert restarted(while_servers(False, runs, replace(runs, ready=False))) == [f"{SET}-2"]
    assert restarted(while_servers(True, runs, gone)) == [f"{SET}-2"]


def test_one_that_does_not_serve_waits_for_no_server() -> None:
    found = while_servers(False, PodView("uid", "server", NEW, True))
    assert isinstance(found.kube, KubeView)
    pods = {**found.kube.pods, f"{SET}-1": server(ready=False)}
    assert restarted(replace(found, kube=replace(found.kube, pods=pods))) == [f"{SET}-1"]


def test_nothing_before_the_stateful_set_has_the_change() -> None:
    found = ensemble(server(), server(), server(), seen=OLD)
    assert restarted(found) == []
    assert decide(found, objects()).blocked[0].reason == Reason.ROLL_NOT_SEEN


def test_a_volume_that_grows_with_a_restart_gets_one() -> None:
    assert restarted(ensemble(server(), server(), server(), seen=OLD, grows=1), OLD) == [f"{SET}-1"]


@pytest.mark.parametrize(("other", "allowed"), [(server(NEW), True), (server(NEW, ready=False), False)])
def test_the_second_look_proves_that_the_others_serve(other: PodView, allowed: bool) -> None:
    answer = still_so(ensemble(server(), server(), other), DeletePod(f"{SET}-0", "uid", "", ""))
    assert isinstance(answer, Allowed) == allowed


def degraded(found: Facts) -> tuple[str, str]:
    decision: Decision = decide(found, objects(OLD))
    by_type = {one.type: one for one in conditions(found, decision, health_of(found), (), (), 1)}
    return by_type["Degraded"].status, by_type["Degraded"].reason


def test_the_status_says_when_a_server_of_the_ensemble_does_not_serve() -> None:
    assert degraded(ensemble(server(), server(), server(), seen=OLD)) == ("False", "AsWanted")
    assert degraded(ensemble(server(), server(), server(ready=False), seen=OLD)) == ("True", "Unhealthy")


def test_a_lost_tree_is_a_fault() -> None:
    lost = replace(ensemble(server(), seen=OLD), tree=NoTree())
    assert degraded(lost) == ("True", "TreeLost")
