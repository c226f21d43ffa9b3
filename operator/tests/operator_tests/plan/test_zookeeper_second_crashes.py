"""The single server goes down only for a second one that has come up, not for one that crashes again and
again."""

from dataclasses import replace
from typing import Any

from operator_tests.plan.cluster import facts
from operator_tests.plan.test_ensemble import SET, Pod, World, specification, view
from waltz_operator.model.snapshot import KubeView
from waltz_operator.plan.safety_gates import Allowed, may_restart_zookeeper
from waltz_operator.run.read_kubernetes import pod


def crashing(restarts: int, started: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{SET}-1",
            "uid": "u",
            "labels": {"app.kubernetes.io/component": "zookeeper"},
            "annotations": {"waltz.dev/zookeeper-members": "2"},
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "zookeeper",
                    "restartCount": restarts,
                    "state": {"running": {"startedAt": started}},
                    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                }
            ],
        },
    }


def test_a_second_server_that_crashes_takes_the_first_one_down() -> None:
    world = World(3, 2, 2, 2, (Pod(1, True), Pod(2, True), None, None, None), 0)
    look = view(world)
    seen = pod(crashing(7, "2026-11-23T08:00:00Z"))
    assert seen.members == 2, "the annotation is read"
    broken: KubeView = replace(look, pods={**look.pods, f"{SET}-1": seen})
    answer = may_restart_zookeeper(replace(facts(broken), desired=specification(world)), f"{SET}-0")
    assert not isinstance(answer, Allowed), answer
