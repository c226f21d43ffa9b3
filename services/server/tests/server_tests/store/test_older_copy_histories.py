"""Histories around an older copy of ZooKeeper in which an acknowledged record was once lost (rule A8)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from server_tests.store.model import Node, answer, metadata, reported, run_until_stuck, state, stream
from waltz_admin.restored_metadata import Nodes, rebuild
from waltz_cluster.older_copy import evidence
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import SessionInfo
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import Compare, Truncate


def recover(
    nodes: dict[str, Node],
    meta: PartitionMetadata,
    replicas: Sequence[str],
    present: Sequence[str],
    before: int,
) -> Recovery:
    recovery = Recovery(
        partition_id=0,
        session_id=meta.session_id,
        replicas=list(replicas),
        metadata=meta,
        recorded_session=before,
    )
    for name in present:
        answer(recovery, nodes, name)
    recovery.gather_over()
    run_until_stuck(recovery, nodes, present, meta.session_id)
    return recovery


@pytest.mark.parametrize("copy_on_d", [True, False])
@pytest.mark.parametrize("lost", ["D", ""])
def test_safety_a8_who_joins_the_last_session_has_no_other_tail_to_offer(lost: str, copy_on_d: bool) -> None:
    """ABC became BCD. Session 1: B alone stored record 1. Session 2: C and D acknowledged another one. D is
    empty, ZooKeeper is back at session 0 with ABC, and the way out lists B beside C."""
    nodes = {
        "A": Node(["s0:0"], 0, 0, 0),
        "B": Node(["s0:0", "s1:1"], 1, 0, 0),
        "C": Node(["s0:0", "s2:1"], 2, 0, 0),
        "D": Node(),
    }
    held = {name: reported(node) for name, node in nodes.items() if name != "D" or copy_on_d}
    older = metadata(0, *[state(name, 0) for name in "ABC"])
    rebuilt = rebuild(0, older, Nodes("ABCD", "ABC", "ABCD", held, lost=set(lost)))
    replicas = sorted({*"ABC", *rebuilt.reassign})
    after = metadata(rebuilt.after.session_id + 1, *rebuilt.after.replicas.values())
    recover(nodes, after, replicas, replicas, rebuilt.after.session_id)
    assert nodes["C"].log == ["s0:0", "s2:1"]
    assert sum(node.log == nodes["C"].log for node in nodes.values()) > 1


def test_safety_a8_an_unlisted_replica_that_has_taken_appends_is_evidence() -> None:
    """ABC became ABCDE; all five were listed in session 5, and A, D and E acknowledged record 1. ZooKeeper is
    back at session 5 before that listing, and A is away: D and E alone know."""
    nodes = {name: Node(stream("s4", 0, 0), 4, -1, -1) for name in "ABC"} | {name: Node() for name in "DE"}
    older = metadata(5, *[state(name, 4) for name in "ABC"])
    recover(nodes, older, "ABCDE", "ABCDE", 4)
    assert found(older, nodes, "ABCDE") == []  # whoever was only filled is none: nothing was acknowledged
    for name in "ADE":
        nodes[name].log.append("s5:1")
    assert found(older, nodes, "BCDE") == ["D", "E"]


def found(recorded: PartitionMetadata, nodes: dict[str, Node], names: Collection[str]) -> list[str]:
    return [name for name in names if evidence(recorded, name, nodes[name].info, nodes[name].max_txid)]


@pytest.mark.parametrize("wiped", [True, False])
def test_safety_a8_a_later_session_is_compared_with_before_an_older_voter(wiped: bool) -> None:
    """C holds a tail of session 1 that nobody acknowledged. Session 2: A and B acknowledge another record 1;
    ZooKeeper is back before they were listed. Session 3 marks A and B and ends before it lists them."""
    nodes = {
        "A": Node(["s0:0"], 0, 0, 0),
        "B": Node(["s0:0"], 1, 0, 0),
        "C": Node(["s0:0", "s1:1"], 1, 0, 0),
    }
    older: tuple[ReplicaState, ...] = (state("A", 0, 0), state("B", 1), state("C", 1))
    recover(nodes, metadata(2, *older), "ABC", "AB", 1)
    for name in "AB":
        nodes[name].log.append("s2:1")
    recover(nodes, metadata(3, *older), "ABC", "AB", 2)
    if wiped:
        nodes["B"].wipe()
    last = recover(nodes, metadata(4, *older), "ABC", "CAB", 3)
    assert last.resolved == 1
    assert "A" in last.recovered
    assert [node.log for node in nodes.values()] == [["s0:0", "s2:1"]] * 3


@pytest.mark.parametrize("interrupted", [0, 1, 2], ids=["", "b is marked", "b is marked again"])
def test_safety_a8_an_append_that_was_sent_again_does_not_make_two_logs_one(interrupted: int) -> None:
    """C alone holds W and X of session 0. Session 1: A and B acknowledge V, and X, which its client sent
    again. ZooKeeper is back at the listing of session 0, A is away, and both logs end with X."""
    nodes = {
        "B": Node(["R", "V", "X"], 1, 0, 0),
        "C": Node(["R", "W", "X"], 0, -1, -1),
    }
    listed = [state(name, 0) for name in "ABC"]
    for session in range(3, 3 + interrupted):
        nodes["B"].set_lwm(session, 2)
    session = 3 + interrupted
    last = recover(nodes, metadata(session, *listed), "ABC", "CB", session - 1)
    assert last.recovered == ["B", "C"]
    assert [node.log for node in nodes.values()] == [["R", "V", "X"]] * 2


def test_safety_a8_a_difference_is_judged_against_the_replica_that_was_compared_with() -> None:
    """C answers while A is compared with B, and would be the next one to compare with."""
    listed = metadata(5, *[state(name, 0) for name in "ABCDE"])
    recovery = Recovery(
        partition_id=0, session_id=5, replicas=list("ABCDE"), metadata=listed, recorded_session=4
    )
    recovery.answered("A", SessionInfo(0, -1, -1), 2)
    recovery.answered("B", SessionInfo(3, 1, 1), 3)
    recovery.answered("E", SessionInfo(3, 1, 1), 1)
    recovery.gather_over()
    assert recovery.next_step("A") == Compare("B", 0, 2)
    recovery.answered("C", SessionInfo(0, -1, -1), 9)
    recovery.condition()
    recovery.compared("A", "B", equal=False)
    assert recovery.next_step("A") == Truncate(1)


def test_a_voter_of_the_session_before_is_compared_above_the_mark_that_was_decided_next() -> None:
    """However long its session was: nobody reads all of it."""
    b, c = Node(stream("s0", 0, 900), 1, 899, 899), Node(stream("s0", 0, 900), 0, -1, -1)
    recovery = Recovery(
        partition_id=0,
        session_id=2,
        replicas=list("ABC"),
        metadata=metadata(2, *[state(name, 0) for name in "ABC"]),
    )
    for name, node in (("B", b), ("C", c)):
        answer(recovery, {name: node}, name)
    recovery.gather_over()
    assert recovery.next_step("C") == Truncate(899)
    recovery.truncated("C", 899)
    assert recovery.next_step("C") == Compare("B", 899, 899)


def test_safety_a8_longer_logs_of_others_do_not_contradict_a_majority() -> None:
    """B and E acknowledged record 0 in session 2. A was taken out with its files, and C was left behind, each
    with a tail that nobody acknowledged."""
    nodes = {
        "A": Node(stream("s0", 0, 2), 0, -1, -1),
        "B": Node(["s2:0"], 2, -1, -1),
        "C": Node(stream("s1", 0, 2), 1, -1, -1),
        "E": Node(["s2:0"], 2, -1, -1),
    }
    older = metadata(1, *[state(name, 1) for name in "BCE"])
    held = {name: reported(node) for name, node in nodes.items()}
    after = rebuild(0, older, Nodes("ABCE", "BCE", "ABCE", held)).after
    assert sorted(after.replicas) == ["B", "E"]
