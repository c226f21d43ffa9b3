"""A disk was put back from a copy of a session that ZooKeeper does not know, and ids have passed that session
since: the others' acknowledged records are not cut for it (rule A8)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from server_tests.store.model import (
    Node,
    answer,
    metadata,
    reported,
    run_until_stuck,
    state,
    stream,
    take_step,
)
from waltz_admin.restored_metadata import Nodes, NothingToAcceptError, Rebuilt, rebuild
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.types import SessionInfo
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_replica import Kind, RecoveringReplica, cap_marks
from waltz_server.store.recovery_steps import Condition, Copy, Refuse, Wait

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
    text = "C has completed session 8, in which no majority took part, and holds other records than "
    if recovery.fault is None:  # the others were told to write this session down before it answered
        refused = recovery.next_step("C")
        assert isinstance(refused, Refuse)
        assert refused.reason.startswith((text, "its low-water mark 28 is above the resolved mark 25"))
        return
    assert condition is Condition.FAULT
    assert (
        "C has completed session 8, in which no majority took part, and holds other records than " in reason
    )
    assert "Nothing is cut from here on" in reason


@pytest.mark.parametrize("order", ["".join(order) for order in itertools.permutations("ABC")])
@pytest.mark.parametrize("recorded", [LATER + 1, LATER + 5])
@pytest.mark.parametrize("ends", [(20, 30), (28, 30), (25, 25), (25, 30), (20, 23)])
@pytest.mark.parametrize(
    "marked",
    [
        {"A": 2},
        {"B": 2},
        {"A": 2, "B": 2},
        {"A": LATER},
        {"B": LATER},
        {"A": LATER + 1},
        {"A": 2, "B": LATER},
    ],
    ids=str,
)
def test_safety_a8_interrupted_recoveries_of_the_others_do_not_speak_for_the_copy(
    order: str, recorded: int, ends: tuple[int, int], marked: dict[str, int]
) -> None:
    """Some of those that voted have been marked since, in sessions before, at and after the one it knows."""
    nodes = {"A": voter(), "B": voter(), "C": put_back(*ends)}
    for name, session in marked.items():
        nodes[name].set_lwm(session, 25)
    before = {name: node.copy() for name, node in nodes.items()}
    recovery = recovered(nodes, order, recorded)
    assert nodes == before
    condition, reason = recovery.condition()
    assert condition is Condition.FAULT
    assert "was put back to an earlier state. Nothing is cut from here on" in reason


@pytest.mark.parametrize("seed", range(400))
def test_safety_a8_no_order_of_steps_and_crashes_lets_the_copy_win(seed: int) -> None:
    """Three or five replicas: a majority voted, some of it holds tails, some were marked since; one copy of a
    later session is put back. Owners die after some steps; everybody answers, at any moment."""
    rng = random.Random(seed)
    names = rng.choice(["ABC", "ABCDE"])
    majority = len(names) // 2 + 1
    listed, later = rng.choice([1, 4]), rng.randint(5, 10)
    acknowledged = [*stream("s0", 0, 4), *stream("s1", 5, 4 + rng.randint(1, 3))]
    voters, back = names[: rng.randint(majority, len(names) - 1)], names[-1]
    nodes = {name: Node(stream("s0", 0, 4), 0, 4, 4) for name in names}
    for at, name in enumerate(rng.sample(voters, len(voters))):
        tail = [*acknowledged, *stream("s1", len(acknowledged), len(acknowledged) + rng.randint(-1, 1))]
        last = len(acknowledged) if at < majority else rng.randint(5, len(acknowledged))
        nodes[name] = Node(tail[: max(last, 5)], listed, 4, 4)
    last = rng.randint(5, 12)
    low = rng.randint(4, last)
    nodes[back] = Node([*stream("s0", 0, 4), *stream("s7", 5, last)], later, low, min(low, 5))
    recorded = later + rng.randint(0, 3)
    for name in voters:
        if rng.random() < 0.3 and nodes[name].max_txid >= len(acknowledged) - 1:
            nodes[name].set_lwm(rng.randint(listed + 1, recorded), nodes[name].max_txid)
    states = [state(name, listed) if name in voters else state(name, 0, 4) for name in names]
    for _ in range(3):
        before, recorded = recorded, recorded + rng.choice([1, 1, 2])
        recovery = Recovery(
            partition_id=0,
            session_id=recorded,
            replicas=names,
            metadata=metadata(recorded, *states),
            recorded_session=before,
        )
        _some_steps(rng, recovery, nodes, recorded, rng.choice([5, 10, 20, 1000]))
        if recovery.fault is None and recovery.resolved is not None and recovery.quorum_recovered:
            assert recovery.resolved >= len(acknowledged) - 1
            kept = [
                name for name in recovery.recovered if nodes[name].log[: len(acknowledged)] == acknowledged
            ]
            assert kept == recovery.recovered
            return
    assert sum(node.log[: len(acknowledged)] == acknowledged for node in nodes.values()) >= majority


def _some_steps(
    rng: random.Random, recovery: Recovery, nodes: dict[str, Node], session: int, count: int
) -> None:
    """Answers and steps in any order; grace is over once all have answered. From then on connections may
    break, and be there again at once."""
    silent, gathering, breaks = list(nodes), True, rng.random() < 0.5
    for _ in range(count):
        name = rng.choice(list(nodes))
        if name in silent:
            answer(recovery, nodes, name)
            silent.remove(name)
            if gathering and not silent:
                gathering = False
                recovery.gather_over()
        elif breaks and not gathering and rng.random() < 0.1:
            recovery.failed(name, "the connection broke")
            answer(recovery, nodes, name)
        else:
            take_step(recovery, nodes, name, session)


@pytest.mark.parametrize("ends", [(20, 30), (22, 30), (25, 25), (20, 25), (20, 23)])
def test_safety_a8_a_connection_that_breaks_takes_nothing_back_of_what_its_node_said(
    ends: tuple[int, int],
) -> None:
    nodes = {"A": voter(), "B": voter(), "C": put_back(*ends)}
    listed = metadata(LATER + 2, state("A", 1), state("B", 1), state("C", 0, 20))
    recovery = Recovery(partition_id=0, session_id=LATER + 2, replicas="ABC", metadata=listed)
    for name in "ACB":
        answer(recovery, nodes, name)
    recovery.gather_over()
    recovery.failed("B", "the connection broke")
    run_until_stuck(recovery, nodes, "CA", LATER + 2)
    answer(recovery, nodes, "B")
    run_until_stuck(recovery, nodes, "CAB", LATER + 2)
    assert recovery.condition()[0] is Condition.FAULT
    assert nodes == {"A": voter(), "B": voter(), "C": put_back(*ends)}


@pytest.mark.parametrize("order", ["".join(order) for order in itertools.permutations("ABC")])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("ends", [(20, 30), (22, 30), (25, 25), (20, 25), (20, 23)])
def test_safety_a8_a_replica_that_this_session_marked_is_not_left_out_for_a_late_copy(
    ends: tuple[int, int], both: bool, order: str
) -> None:
    """Its connection breaks once it is marked, and it is back before the copy is heard."""
    nodes = {"A": voter(), "B": voter(), "C": put_back(*ends)}
    session = LATER + 2
    listed = metadata(session, state("A", 1), state("B", 1), state("C", 0, 20))
    recovery = Recovery(partition_id=0, session_id=session, replicas="ABC", metadata=listed)
    for name in "AB":
        answer(recovery, nodes, name)
    recovery.failed("C", "away")
    recovery.gather_over()
    while nodes["A"].session != session or (both and nodes["B"].session != session):
        for name in "AB"[: 1 + (both or nodes["A"].session != session)]:
            take_step(recovery, nodes, name, session)
    recovery.failed("A", "the connection broke")
    answer(recovery, nodes, "A")
    answer(recovery, nodes, "C")
    run_until_stuck(recovery, nodes, order, session)
    assert [nodes[name].log for name in "AB"] == [voter().log] * 2
    assert "C" not in recovery.recovered or nodes["C"].log == voter().log
    assert recovery.refusal_of("A") is recovery.refusal_of("B") is None


def resolved_without_the_copy(before: int = 1) -> tuple[Recovery, dict[str, Node]]:
    """A and B have resolved 25, and A, marked in session `before` last, is marked; the copy has not answered
    yet."""
    nodes = {"A": voter(), "B": voter(), "C": put_back(20, 30)}
    if before > 1:
        nodes["A"].set_lwm(before, 25)
    session = LATER + 2
    listed = metadata(session, state("A", 1), state("B", 1), state("C", 0, 20))
    recovery = Recovery(partition_id=0, session_id=session, replicas="ABC", metadata=listed)
    for name in "AB":
        answer(recovery, nodes, name)
    recovery.gather_over()
    for name in "ABABAB":
        if nodes["A"].session != session:
            take_step(recovery, nodes, name, session)
    assert nodes["A"].session == session
    return recovery, nodes


def test_safety_a8_a_late_copy_that_nobody_can_be_compared_with_waits() -> None:
    recovery, nodes = resolved_without_the_copy()
    for name in "AB":
        recovery.failed(name, "the connection broke")
    answer(recovery, nodes, "C")
    assert recovery.resolved == 25
    assert isinstance(recovery.next_step("C"), Wait)


def test_safety_a8_a_difference_from_what_this_session_marked_does_not_speak_against_that() -> None:
    recovery, nodes = resolved_without_the_copy(before=LATER + 1)
    recovery.failed("A", "the connection broke")
    answer(recovery, nodes, "A")
    answer(recovery, nodes, "C")
    recovery.compared("C", "A", equal=False)
    assert recovery.refusal_of("A") is recovery.fault is None


def test_safety_a2_what_contradicts_the_log_is_no_source() -> None:
    """D lacks records that A, B and C have, and E holds more, of another history, with a mark above them."""
    nodes = {name: voter() for name in "ABC"} | {
        "D": Node(voter().log[:24], 1, 20, 20),
        "E": put_back(28, 30),
    }
    listed = metadata(LATER + 2, *[state(name, 1) for name in "ABCD"], state("E", 0, 20))
    recovery = Recovery(partition_id=0, session_id=LATER + 2, replicas="ABCDE", metadata=listed)
    for name in "BCADE":
        answer(recovery, nodes, name)
    recovery.gather_over()
    assert recovery.resolved == 25
    recovery.compared("D", "A", equal=True)
    assert recovery.next_step("D") in [Copy(name, 24, 25) for name in "ABC"]


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


def test_safety_a2_no_mark_is_capped_below_the_low_water_mark_of_its_node() -> None:
    earlier = RecoveringReplica("A", state("A", 1), Kind.VOTER, SessionInfo(2, 24, 24), max_txid=26, mark=26)
    later = RecoveringReplica(
        "C", state("C", 0, 20), Kind.VOTER, SessionInfo(8, 20, 20), max_txid=30, mark=30
    )
    cap_marks([earlier, later], listed=1, recorded=8, with_a_majority=8)
    assert (earlier.mark, later.mark) == (24, 30)


# ---- what `waltz zk accept-restored` says to do, once it has found another history


def reset(nodes: dict[str, Node], names: str) -> None:
    """`waltz storage restore-reset`: the records stay."""
    for name in names:
        nodes[name].session = nodes[name].lwm = nodes[name].local_lwm = -1


def asked(nodes: dict[str, Node], recorded: PartitionMetadata) -> Rebuilt:
    held = {name: reported(node) for name, node in nodes.items()}
    return rebuild(0, recorded, Nodes(held, held, held, held))


def opened(nodes: dict[str, Node], recorded: PartitionMetadata) -> Recovery:
    """The recovery of the next session, until everybody is listed who can be."""
    session = recorded.session_id + 1
    taken = PartitionMetadata(1, session, recorded.replicas)
    recovery = Recovery(partition_id=0, session_id=session, replicas=list(nodes), metadata=taken)
    for name in nodes:
        answer(recovery, nodes, name)
    recovery.gather_over()
    run_until_stuck(recovery, nodes, list(nodes), session)
    if recovery.quorum_recovered:
        recovery.metadata_written(recovery.metadata_after(taken))
        run_until_stuck(recovery, nodes, list(nodes), session)
    return recovery


@pytest.mark.parametrize("others", ["AB", "ABD", "ABDE"])
@pytest.mark.parametrize("low", [20, 22, 25])
@pytest.mark.parametrize("ends", [(20, 30), (28, 30), (22, 26), (25, 25)])
def test_both_ways_that_are_named_where_a_late_copy_is_of_another_history_lead_out(
    others: str, low: int, ends: tuple[int, int]
) -> None:
    """`low`: up to where the others have decided in their own session, by which their copies may differ from
    the late one below their mark."""

    def world() -> dict[str, Node]:
        kept = {name: Node(list(voter().log), session=6, lwm=low, local_lwm=low) for name in others}
        return {**kept, "C": put_back(*ends)}

    states = [*(state(name, 6) for name in others), state("C", 5, 20)]
    recorded = metadata(6, *states)
    doubt = asked(world(), recorded).doubt
    assert doubt is not None
    assert ("".join(doubt.later), "".join(doubt.earlier)) == ("C", others)

    nodes = world()  # the late copy is reset: ZooKeeper is not older than anybody then
    reset(nodes, "C")
    with pytest.raises(NothingToAcceptError):
        asked(nodes, recorded)
    opened(nodes, recorded)
    assert {tuple(node.log) for node in nodes.values()} == {tuple(voter().log)}

    nodes = world()  # as many of the others as are named; then those who are left
    named, left = others[: doubt.resets], others[doubt.resets :]
    reset(nodes, named)
    accepted = asked(nodes, recorded)
    assert accepted.doubt is None
    reset(nodes, left)
    opened(nodes, accepted.after)
    assert {tuple(node.log) for node in nodes.values()} == {tuple(put_back(*ends).log)}


@pytest.mark.parametrize("low", [20, 25])
def test_the_way_to_the_late_copy_leads_out_when_a_server_opens_before_all_are_reset(low: int) -> None:
    nodes = {name: Node(list(voter().log), session=6, lwm=low, local_lwm=low) for name in "AB"}
    nodes["C"] = put_back(28, 30)
    reset(nodes, "A")
    after = asked(nodes, metadata(6, state("A", 6), state("B", 6), state("C", 5, 20))).after
    recovery = opened(nodes, after)
    if low == 25:  # what B holds below its own mark is another log: it is refused, and nothing is decided
        assert recovery.resolved is None
        assert recovery.refusal_of("B") == "its log differs from that of the other replicas (fork)"
        reset(nodes, "B")
        opened(nodes, PartitionMetadata(1, after.session_id + 1, after.replicas))
    assert {tuple(node.log) for node in nodes.values()} == {tuple(put_back(28, 30).log)}
