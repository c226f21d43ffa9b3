"""A storage node whose pod is on its way out still answers, and is current, but no change of replicas may
depend on it: seconds later it is down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import NOW, answer, facts, identity, kube, name, pod, rendered, replica
from operator_tests.plan.cluster import desired as specification
from waltz_operator.model.actions import UnassignInZooKeeper
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import NodeView, Unknown
from waltz_operator.model.task import Task, TaskKind
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.preconditions import still_so
from waltz_operator.plan.safety_gates import Allowed, Denied, may_change

GIVEN_UP = Move(MoveKind.DROP, 0, name(2), None, NOW - 100)


def fewer_copies(ending: tuple[int, ...], says: dict[int, NodeView | Unknown] | None = None) -> Facts:
    """Three copies are to become two: node 2 was taken out of the specification. Pods of these nodes are on
    their way out."""
    found = facts(kube({node: pod(deleting=True) for node in ending}), says)
    return replace(
        found,
        desired=specification((0, 1)),
        leaving=(identity(2),),
        memory=replace(found.memory, operation=GIVEN_UP),
    )


def unassigned(found: Facts) -> list[UnassignInZooKeeper]:
    return [one for one in decide(found, rendered((0, 1))).actions if isinstance(one, UnassignInZooKeeper)]


@pytest.mark.parametrize("node", [0, 1])
def test_no_copy_is_given_up_while_one_that_stays_goes_down(node: int) -> None:
    found = fewer_copies((node,))
    decision = decide(found, rendered((0, 1)))
    assert not unassigned(found)
    assert decision.held
    (blocked,) = [one for one in decision.blocked if one.what.startswith(MoveKind.DROP.value)]
    assert blocked.reason == Reason.OTHER_NODE_DOWN
    assert f"{name(node)}: its pod is going down" in blocked.text


def test_the_second_look_refuses_it_too() -> None:
    (action,) = unassigned(fewer_copies(()))
    assert isinstance(still_so(fewer_copies(()), action), Allowed)
    assert isinstance(still_so(fewer_copies((1,)), action), Denied)


@pytest.mark.parametrize(
    "says", [{}, {2: Unknown("dead")}, {2: answer(replica(available=False))}], ids=["well", "dead", "offline"]
)
def test_a_copy_whose_own_pod_goes_down_is_given_up(says: dict[int, NodeView | Unknown]) -> None:
    """Also one that is removed for good: the copies that stay prove it."""
    assert len(unassigned(fewer_copies((2,), says))) == 1


def test_a_spare_copy_that_goes_down_keeps_nothing_from_being_done() -> None:
    """From four copies to three, three of those that stay are needed; from five to four, three of four."""
    four = facts(kube({0: pod(deleting=True)}, nodes=(0, 1, 2, 3)), nodes=(0, 1, 2, 3), assigned=(0, 1, 2, 3))
    assert isinstance(may_change(four, "x", 0, [name(one) for one in (0, 1, 2)]), Denied)
    nodes = (0, 1, 2, 3, 4)
    five = facts(kube({0: pod(deleting=True)}, nodes=nodes), nodes=nodes, assigned=nodes)
    assert isinstance(may_change(five, "x", 0, [name(one) for one in (0, 1, 2, 3)]), Allowed)


def test_a_copy_is_added_when_those_that_do_not_go_down_are_enough() -> None:
    """From three to four copies three of the old ones are needed; from two to three both."""
    nodes = (0, 1, 2, 3)
    for old, ending, may in (
        ((0, 1, 2), 0, False),
        ((0, 1), 1, False),
        ((0, 1), 3, True),
        ((0, 1, 2), 3, True),
    ):
        found = facts(kube({ending: pod(deleting=True)}, nodes=nodes), nodes=nodes, assigned=old)
        answered = may_change(found, "x", 0, {*map(name, old), name(3)})
        assert isinstance(answered, Allowed) is may, (old, ending)


def test_a_pod_that_goes_down_is_the_reason_only_where_it_alone_is() -> None:
    found = fewer_copies((0,), {1: Unknown("dead")})
    refused = may_change(found, "x", 0, [name(0), name(1)])
    assert isinstance(refused, Denied)
    assert refused.blocked.reason == Reason.UNSAFE_CHANGE


def test_without_an_answer_of_kubernetes_the_copies_alone_prove_a_change() -> None:
    found = replace(fewer_copies(()), kube=Unknown("no API server"))
    assert isinstance(may_change(found, "x", 0, [name(0), name(1)]), Allowed)


def test_a_change_under_way_waits_for_the_pod_and_is_not_taken_back() -> None:
    """A migration waits behind it. What blocks the change goes without it."""
    waiting = Task("m", "u", TaskKind.DRAIN, "t", source=name(1))
    found = replace(fewer_copies((0,)), tasks=(waiting,))
    decision = decide(found, rendered((0, 1)))
    assert decision.memory.operation == GIVEN_UP
    assert decision.held
    found = replace(fewer_copies((), {1: Unknown("dead")}), tasks=(waiting,))
    assert decide(found, rendered((0, 1))).memory.operation is None
