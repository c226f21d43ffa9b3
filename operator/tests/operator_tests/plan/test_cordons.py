"""For how long a drain that is over, and is kept, closes its node: for the life of that node, so that it can
be taken out of the specification; and who is informed of it where no node is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import pod, told
from operator_tests.plan.test_placement import identity, look, moves, task
from waltz_operator.api.migration import MigrationPhase
from waltz_operator.model.actions import Blocked
from waltz_operator.model.facts import Facts
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, ObjectView, PVCView, TreeView
from waltz_operator.model.task import TaskKind
from waltz_operator.model.times import timestamp
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.cordons import cordoned
from waltz_operator.plan.migration import decide_task
from waltz_operator.plan.nodes import seed
from waltz_operator.plan.placement import seeds
from waltz_operator.plan.replica_changes import begin_change

DRAINED = task(
    TaskKind.DRAIN,
    "a1",
    name="old-drain",
    phase=MigrationPhase.COMPLETED,
    created=timestamp(300.0),
    finished_at=400.0,
)
EMPTY = {"a0": (0, 1, 2, 3), "b0": (0, 2), "b1": (1, 3)}
"""a1 was drained."""


def made(found: Facts, *, cluster: float = 0.0, claim: float = 0.0, workload: float = 0.0) -> Facts:
    """With the times at which the cluster, the claim and the StatefulSet of a1 were made."""
    node = identity("a1")
    body = {"metadata": {"creationTimestamp": timestamp(workload)}}
    kube = KubeView(
        objects={ObjectKey("StatefulSet", node.statefulset): ObjectView("u", "1", None, body)},
        pvcs={node.pvc: PVCView("u", 1, 1, created=claim)},
    )
    return replace(found, kube=kube, desired=replace(found.desired, created=cluster))


def seeding(found: Facts) -> Decision:
    assert isinstance(found.tree, TreeView)
    decision = Decision(found.memory)
    seed(found, found.tree, decision)
    return decision


def test_a_node_that_was_drained_stays_closed_until_it_is_taken_out() -> None:
    found = look(EMPTY, tasks=(DRAINED,))
    for still in (found, made(found), made(found, cluster=100.0, claim=200.0, workload=400.0)):
        assert cordoned(still) == {"a1"}
    begun_by_this_cluster = replace(DRAINED, finished_at=0.0)
    assert cordoned(made(look(EMPTY, tasks=(begun_by_this_cluster,)), cluster=300.0)) == {"a1"}


@pytest.mark.parametrize("later", ["cluster", "claim", "workload"])
def test_it_does_not_close_a_node_that_was_made_later(later: str) -> None:
    asked = task(TaskKind.REBALANCE, group="a")
    again = made(look(EMPTY, tasks=(DRAINED, asked)), **{later: 401.0})
    assert cordoned(again) == frozenset()
    assert moves(again, asked) == [(3, "a0", "a1"), (2, "a0", "a1")]


def test_a_clock_of_the_operator_that_is_behind_opens_nothing() -> None:
    behind = replace(DRAINED, finished_at=10.0)
    assert cordoned(made(look(EMPTY, tasks=(behind,)), cluster=100.0, claim=200.0)) == {"a1"}


def test_a_drain_in_progress_closes_a_node_of_any_age() -> None:
    running = replace(DRAINED, phase=MigrationPhase.RUNNING, finished_at=0.0)
    assert cordoned(made(look(EMPTY, tasks=(running,)), cluster=900.0)) == {"a1"}


def test_a_cluster_that_is_made_again_is_seeded() -> None:
    again = made(look({}, nodes=("a1", "b0"), started=False, tasks=(DRAINED,)), cluster=500.0)
    assert seeds(again) == {"a1": (0, 1, 2, 3), "b0": (0, 1, 2, 3)}
    assert seeding(again).blocked == []


def test_seeding_reports_what_blocks_it() -> None:
    found = look({"b0": (0, 1, 2, 3)}, nodes=("a1", "b0"), started=False, tasks=(DRAINED,))
    pods = {identity(node).pod: pod() for node in ("a1", "b0")}
    found = replace(found, kube=KubeView(pods=pods), leaving=())
    servers = (Rendered(ObjectKey("Deployment", "c-server"), {}, "d", "t"),)
    status, reason, message = told(found, decide(found, servers))
    assert (status, reason) == ("False", "NoTarget")
    assert "partition 0: no node of group a may take it and 3 more; " in message
    assert "migration old-drain has drained a-1" in message


def test_a_node_of_each_group_is_enough_to_seed() -> None:
    found = look({}, started=False, tasks=(DRAINED,))
    assert seeding(found).blocked == []


def test_what_finds_no_node_names_the_migration() -> None:
    asked = task(TaskKind.DRAIN, "a0", name="drain-a0")
    decision = decide_task(look(EMPTY, tasks=(DRAINED, asked)), asked)
    assert decision.reason == "NoTarget"
    assert decision.message == (
        "partition 0: no other node of its group can take it: add one; migration old-drain has drained a-1, "
        "which gets no copies until it is made again or that migration is deleted"
    )


def blocked_changes(found: Facts) -> list[Blocked]:
    decision = Decision(found.memory)
    begin_change(found, decision)
    return decision.blocked


def test_changes_of_the_cluster_name_it_too() -> None:
    leaves = look(EMPTY, nodes=("a1", "b0", "b1"), tasks=(DRAINED,))
    new = look({"b0": (0, 2), "b1": (1, 3)}, nodes=("a1", "b0", "b1"), tasks=(DRAINED,))
    for found in (leaves, new):
        first = blocked_changes(found)[0]
        assert first.reason == "NoTarget"
        assert first.text.startswith(
            "partition 0: no node of the group may take it; migration old-drain has "
        )
    running = replace(DRAINED, phase=MigrationPhase.RUNNING)
    new = replace(new, tasks=(running,))
    assert blocked_changes(new)[0].text.endswith("it; migration old-drain drains a-1")
