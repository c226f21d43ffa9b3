"""A disk was put back from a copy of a session that ZooKeeper does not know, and ids have passed that session
since: the others' acknowledged records are not cut for it (rule A8)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from server_tests.store.model import Node, answer, metadata, run_until_stuck, state, stream
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import Condition, Refuse

SHARED = stream("s0", 0, 20)
LATER = 8


def voter() -> Node:
    """Listed in session 1, in which records 21 to 25 were acknowledged."""
    return Node([*SHARED, *stream("s1", 21, 25)], session=1, lwm=20, local_lwm=20)


def put_back(low: int, last: int) -> Node:
    """From a copy of session 8 of a history in which it went another way behind record 20."""
    return Node([*SHARED, *stream("s7", 21, last)], session=LATER, lwm=low, local_lwm=low)


def recovered(
    nodes: dict[str, Node],
    order: Sequence[str],
    recorded: int,
    *,
    early: str = "",
    closing: int = 20,
) -> Recovery:
    """The recovery of the session after `recorded`; who is named in `early` does what it can before the rest
    answers."""
    before = metadata(recorded + 1, state("A", 1), state("B", 1), state("C", 0, closing))
    session = before.session_id
    recovery = Recovery(partition_id=0, session_id=session, replicas="ABC", metadata=before)
    for name in order:
        answer(recovery, nodes, name)
        if name in early:
            run_until_stuck(recovery, nodes, order[: order.index(name) + 1], session)
    recovery.gather_over()
    run_until_stuck(recovery, nodes, order, session)
    return recovery


@pytest.mark.parametrize("order", ["".join(order) for order in itertools.permutations("ABC")])
@pytest.mark.parametrize("recorded", [LATER, LATER + 1, LATER + 60_000])
@pytest.mark.parametrize("ends", [(20, 30), (28, 30), (20, 23), (22, 23), (25, 25), (20, 21)])
def test_safety_a8_what_a_majority_acknowledged_is_not_cut_for_a_copy_of_another_history(
    order: str, recorded: int, ends: tuple[int, int]
) -> None:
    nodes = {"A": voter(), "B": voter(), "C": put_back(*ends)}
    recovery = recovered(nodes, order, recorded, early=order)
    assert [nodes[name].log for name in "AB"] == [voter().log] * 2
    assert nodes["C"].log == put_back(*ends).log
    condition, reason = recovery.condition()
    if recovery.fault is None:  # the others had resolved the log before it answered
        assert recovery.next_step("C") == Refuse("its low-water mark 28 is above the resolved mark 25")
        return
    assert condition is Condition.FAULT
    assert (
        "C has completed session 8, in which no majority took part, and holds other records than " in reason
    )
    assert "Nothing was cut" in reason


def test_a_copy_of_an_interrupted_session_that_holds_the_same_is_kept() -> None:
    """No majority took part in it either, and all that it holds came from those who voted before."""
    nodes = {"A": voter(), "B": voter(), "C": voter()}
    nodes["C"].session, nodes["C"].lwm, nodes["C"].local_lwm = LATER, 25, 25
    recovery = recovered(nodes, "CAB", LATER)
    assert recovery.resolved == 25
    assert recovery.recovered == ["A", "B", "C"]


def test_safety_a8_a_tail_that_a_later_session_decided_against_is_cut_while_that_may_have_had_a_majority() -> (
    None
):
    """B is away, and may have taken part in session 8 with C: records of C are acknowledged then."""
    nodes = {"A": voter(), "C": put_back(20, 30)}
    recovery = recovered(nodes, "AC", LATER)
    assert recovery.resolved == 30
    assert nodes["A"].log == nodes["C"].log


def test_a_replica_that_was_emptied_does_not_say_that_a_session_had_no_majority() -> None:
    """B took part in session 8 and lost its disk since."""
    nodes = {"A": voter(), "B": Node(), "C": put_back(20, 30)}
    recovery = recovered(nodes, "ABC", LATER)
    assert recovery.resolved == 30
    assert nodes["A"].log == nodes["B"].log == nodes["C"].log == put_back(20, 30).log
