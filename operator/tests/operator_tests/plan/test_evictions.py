"""Which storage pods a drain of a machine may evict: a broken one always, if it is proven to do nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import answer, facts, kube, pod, replica
from operator_tests.resources.clusters import INPUTS, cluster, objects
from waltz_operator.model.facts import only_broken_unready
from waltz_operator.model.snapshot import NodeView, PodView, Unknown

SILENT = Unknown("no route")
STUCK = pod(ready=False, stuck="CrashLoopBackOff")


@pytest.mark.parametrize(
    ("pods", "says", "may"),
    [
        ({}, {}, False),
        ({2: STUCK}, {2: SILENT}, True),
        ({2: STUCK}, {2: answer(replica())}, False),
        ({2: pod(ready=False)}, {2: SILENT}, False),
        ({1: pod(ready=False), 2: STUCK}, {2: SILENT}, False),
        ({1: STUCK, 2: STUCK}, {1: SILENT, 2: SILENT}, True),
        ({2: None}, {2: SILENT}, False),
    ],
    ids=[
        "all are well",
        "one cannot run",
        "something beside the node crashes, the node answers",
        "it may still come up, or only not be heard",
        "another one is unready and may be needed",
        "two cannot run",
        "one is missing",
    ],
)
def test_only_what_is_proven_to_do_nothing(
    pods: dict[int, PodView | None], says: dict[int, NodeView | Unknown], may: bool
) -> None:
    assert only_broken_unready(facts(kube(pods), says)) is may


def test_the_budget_lets_them_go() -> None:
    """Without it the copies that are behind, because the pod is broken, would keep it from being evicted."""
    broken = replace(INPUTS, storage_evictions=False, broken_evictions=True)
    for inputs, policy in ((INPUTS, "IfHealthyBudget"), (broken, "AlwaysAllow")):
        found = objects(cluster(), inputs)["PodDisruptionBudget", "ledger-storage"]["spec"]
        assert found["unhealthyPodEvictionPolicy"] == policy
    assert found["maxUnavailable"] == 0
