"""Servers are changed after the storage nodes, unless a storage node waits for something that no waiting
brings."""

from __future__ import annotations

import pytest

from operator_tests.plan.cluster import answer, facts, kube, pod, rendered, replica
from waltz_operator.model.actions import ApplyObject, DeletePod
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import NodeView, Unknown
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide

OLD = {2: pod("t0")}
"""Node 2 still has the old image."""


def upgrade(found: Facts) -> Decision:
    """Both images were changed; the StatefulSets have it already, the servers and one storage node do not."""
    return decide(found, rendered(servers="t2"))


def rolls_servers(decision: Decision) -> bool:
    return any(isinstance(one, ApplyObject) and one.key.kind == "Deployment" for one in decision.actions)


def test_servers_wait_while_a_storage_restart_waits_for_copies_to_catch_up() -> None:
    decision = upgrade(facts(kube(OLD), {1: answer(replica(session_id=6))}, closed=(1,)))
    assert not any(isinstance(one, DeletePod) for one in decision.actions)
    assert [one.reason for one in decision.blocked] == ["StorageFirst", "NoQuorumWithoutIt"]
    assert not rolls_servers(decision)


def test_servers_wait_for_the_second_restart_when_the_first_can_never_be() -> None:
    """Node 0 may not go for want of a quorum without it; that node 2 may is enough."""
    decision = upgrade(facts(kube({0: pod("t0"), 2: pod("t0")}), {2: answer(replica(available=False))}))
    assert not rolls_servers(decision)


def test_servers_wait_for_a_node_that_is_away() -> None:
    assert not rolls_servers(upgrade(facts(kube({2: None}), {2: Unknown("gone")})))


@pytest.mark.parametrize(
    "says",
    [
        answer(),
        answer(replica(session_id=3)),
        answer(replica(problem="no room")),
        answer(replica(available=False)),
    ],
    ids=["empty disk", "set back", "out of service", "switched off"],
)
def test_servers_go_on_when_a_storage_restart_can_never_be(says: NodeView) -> None:
    decision = upgrade(facts(kube(OLD), {1: says}))
    assert not any(isinstance(one, DeletePod) for one in decision.actions)
    assert rolls_servers(decision)


def test_servers_go_on_when_all_storage_nodes_are_as_wanted() -> None:
    assert rolls_servers(upgrade(facts()))
