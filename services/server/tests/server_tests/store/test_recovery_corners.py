"""Recovery where something is missing: nobody to copy from or to compare with, everybody refused, questions
too early."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from server_tests.store.model import Node, answer, metadata, run_until_stuck, state, stream
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, SessionInfo
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_replica import Kind, classify
from waltz_server.store.recovery_steps import (
    Compare,
    Condition,
    Copy,
    Refuse,
    SetLowWaterMark,
    Truncate,
    Wait,
)

SESSION = 6
OLD = metadata(SESSION, state("A", 5), state("B", 5), state("C", 5))


def member(mark: int, lwm: int = 0) -> Node:
    return Node(stream("s5", 0, mark), session=5, lwm=lwm, local_lwm=lwm)


def recovery_of(names: str, old: PartitionMetadata = OLD, acknowledged: int = -1) -> Recovery:
    return Recovery(
        partition_id=0, session_id=SESSION, replicas=list(names), metadata=old, acknowledged=acknowledged
    )


def answered(
    nodes: dict[str, Node], names: str, old: PartitionMetadata = OLD, *, steps: bool = True
) -> Recovery:
    recovery = recovery_of("".join(nodes), old)
    for name in names:
        answer(recovery, nodes, name)
    recovery.gather_over()
    if steps:
        run_until_stuck(recovery, nodes, names, SESSION)
    return recovery


def test_states_are_not_written_before_the_mark_is_known() -> None:
    with pytest.raises(ValueError, match="not resolved"):
        recovery_of("ABC").metadata_after(OLD)


def test_a_complete_recovery_waits_for_nothing() -> None:
    nodes = {name: member(3) for name in "ABC"}
    recovery = answered(nodes, "ABC")
    recovery.metadata_written(recovery.metadata_after(OLD))
    assert recovery.condition() == (Condition.COMPLETE, "")
    assert recovery.in_progress == []
    # what a node says afterwards is its own problem, not a fault of the partition
    recovery.answered("A", SessionInfo(99, 0, 0), 3)
    assert recovery.fault is None
    assert isinstance(recovery.next_step("A"), Refuse)


def test_replicas_that_contradict_the_log_leave_no_quorum_but_a_fault() -> None:
    recovery = recovery_of("ABC")
    recovery.refuse("A", "it is forked")
    recovery.refuse("B", "it is forked too")
    condition, reason = recovery.condition()
    assert condition is Condition.FAULT
    assert reason == "A: it is forked; B: it is forked too"


def test_a_partition_without_replicas_is_a_fault() -> None:
    condition, reason = recovery_of("", PartitionMetadata()).condition()
    assert (condition, reason) == (Condition.FAULT, "no replica is assigned to the partition")


def test_the_first_fault_is_the_one_that_is_told() -> None:
    recovery = recovery_of("ABC")
    recovery.answered("A", SessionInfo(50, 0, 0), 3)
    recovery.answered("B", SessionInfo(60, 0, 0), 3)
    assert recovery.fault is not None
    assert "A has completed session 50" in recovery.fault


def test_safety_a2_acknowledged_records_and_no_states_is_a_fault() -> None:
    recovery = recovery_of("ABC", PartitionMetadata(1, SESSION), acknowledged=41)
    recovery.answered("A", SessionInfo(-1, -1, -1), -1)
    condition, reason = recovery.condition()
    assert condition is Condition.FAULT
    assert "41 was acknowledged" in reason


def test_safety_a1_closed_replicas_alone_do_not_decide_for_the_one_that_took_part() -> None:
    """B and C dropped out at 1 and are here; A went on alone with others and is not: nobody knows what it
    holds."""
    old = metadata(SESSION, state("A", 5), state("B", 4, 1), state("C", 4, 1))
    nodes = {name: Node(stream("s4", 0, 1), session=4, lwm=0, local_lwm=0) for name in "ABC"}
    recovery = answered(nodes, "BC", old)
    assert recovery.resolved is None
    assert recovery.condition()[0] is Condition.UNDECIDABLE


def test_a_replica_behind_waits_while_nobody_can_give_records() -> None:
    nodes = {"A": member(3), "B": member(3), "C": member(1)}
    recovery = answered(nodes, "ABC", steps=False)
    assert recovery.resolved == 3
    recovery.compared("C", "A", equal=True)
    recovery.failed("A", "gone")
    recovery.failed("B", "gone")
    assert recovery.next_step("C") == Wait()
    answer(recovery, nodes, "A")
    run_until_stuck(recovery, nodes, "AC", SESSION)
    assert recovery.recovered == ["A", "C"]


def test_a_lost_replica_waits_while_nobody_can_be_compared_with() -> None:
    nodes = {"A": member(3), "B": member(3), "C": Node(stream("s5", 0, 2), session=2, lwm=1, local_lwm=1)}
    recovery = answered(nodes, "ABC", steps=False)
    assert recovery.resolved == 3
    recovery.failed("A", "gone")
    recovery.failed("B", "gone")
    assert recovery.next_step("C") == Wait()


def test_records_of_a_stranger_are_refused_while_the_log_has_none() -> None:
    """The log is still empty; D brings records without a mark: nothing says that they are of this log."""
    old = metadata(SESSION, state("A", 5), state("B", 5), state("C", 5))
    nodes = {name: Node(session=5) for name in "ABC"}
    nodes["D"] = Node(stream("x", 0, 2))
    recovery = answered(nodes, "ABCD", old)
    assert recovery.resolved == -1
    assert recovery.next_step("D") == Refuse("it holds records up to 2, but the log has none yet")
    assert nodes["D"].max_txid == 2


def test_a_reference_that_cannot_be_read_before_the_mark_is_known_counts_as_a_source() -> None:
    """C is lost, so only a copy from A to B can decide; when A cannot be read, B may try again later."""
    nodes = {"A": member(4), "B": member(3), "C": member(4)}
    recovery = answered(nodes, "AB", steps=False)
    assert recovery.resolved is None
    before = recovery.next_step("B")
    recovery.reference_failed("B", "A")
    assert recovery.next_step("B") == before  # nobody else can give it: asked again
    run_until_stuck(recovery, nodes, "AB", SESSION)
    assert recovery.resolved == 4


def test_another_source_is_taken_while_there_is_one() -> None:
    nodes = {"A": member(4), "B": member(4), "C": member(2)}
    recovery = answered(nodes, "ABC", steps=False)
    assert recovery.resolved == 4
    recovery.compared("C", "A", equal=True)
    recovery.source_failed("C", "A")
    step = recovery.next_step("C")
    assert getattr(step, "source", None) == "B"


def test_a_source_that_failed_while_records_before_were_appended_is_not_asked_next() -> None:
    """It would cost the same time limit again; it is asked when there is nobody else."""
    nodes = {"A": member(4), "B": member(4), "C": member(1)}
    recovery = answered(nodes, "ABC", steps=False)
    recovery.compared("C", "A", equal=True)
    recovery.source_failed("C", "A")
    recovery.copied("C", 2)
    assert recovery.next_step("C") == Copy("B", 3, 4)
    recovery.failed("B", "gone")
    assert recovery.next_step("C") == Copy("A", 3, 4)


def test_the_standing_of_a_source_changes_with_its_answers_failures_and_cuts() -> None:
    nodes = {"A": member(4), "B": member(4), "C": member(4)}
    recovery = answered(nodes, "ABC", steps=False)
    seen = [recovery.standing_of("A")]
    changes: list[Callable[[], None]] = [
        lambda: recovery.truncated("A", 3),
        lambda: recovery.copied("A", 4),
        lambda: recovery.failed("A", "gone"),
        lambda: answer(recovery, nodes, "A"),
    ]
    for change in changes:
        change()
        seen.append(recovery.standing_of("A"))
    assert len(set(seen)) == len(seen)


def test_a_listed_reference_keeps_its_mark_when_it_cannot_be_read() -> None:
    nodes = {"A": member(4), "B": member(4), "C": member(4)}
    recovery = answered(nodes, "AB")
    recovery.metadata_written(recovery.metadata_after(OLD))
    answer(recovery, nodes, "C")
    recovery.reference_failed("C", "A")
    assert recovery.is_listed("A")
    run_until_stuck(recovery, nodes, "C", SESSION)
    assert recovery.condition()[0] is Condition.COMPLETE
    after = recovery.metadata_after(OLD)
    assert after.replicas["A"].closing_high_water_mark == UNRESOLVED


# ---- guards against copies that are not what the metadata says of them


@pytest.mark.parametrize(("recorded", "session"), [(None, 5), (state("D", 5), 4)], ids=["new", "lost"])
def test_safety_a2_a_mark_of_any_node_proves_what_was_committed(
    recorded: ReplicaState | None, session: int
) -> None:
    """A, B and C are a quorum and end at 3, but D was told that 5 is committed: the others were set back
    together."""
    others = [state(name, 5) for name in "ABC"]
    old = metadata(SESSION, *others, *([recorded] if recorded is not None else []))
    nodes = {name: member(3) for name in "ABC"}
    nodes["D"] = Node(stream("s5", 0, 5), session=session, lwm=5, local_lwm=5)
    recovery = answered(nodes, "DABC", old)
    assert recovery.resolved is None
    condition, reason = recovery.condition()
    assert condition is Condition.FAULT
    assert "the low-water mark of D proves 5 committed" in reason
    assert [len(nodes[name].log) for name in "ABCD"] == [4, 4, 4, 6]


def test_safety_a2_what_this_server_acknowledged_proves_what_was_committed() -> None:
    """All three were set back together: what they agree on is less than the clients of this server were
    told."""
    nodes = {name: member(3) for name in "ABC"}
    for acknowledged, resolved in ((3, 3), (4, None)):
        recovery = recovery_of("ABC", acknowledged=acknowledged)
        for name in "ABC":
            answer(recovery, nodes, name)
        recovery.gather_over()
        assert recovery.resolved == resolved
    assert "what this server acknowledged proves 4 committed" in recovery.condition()[1]


def test_safety_a2_a_closing_mark_proves_what_was_committed() -> None:
    """The same said by the metadata: D dropped out when 5 was resolved."""
    old = metadata(SESSION, *(state(name, 5) for name in "ABC"), state("D", 4, 5))
    nodes = {name: member(3) for name in "ABC"}
    recovery = answered({**nodes, "D": Node()}, "ABC", old)
    assert recovery.resolved is None
    assert "the recorded state of D proves 5 committed" in recovery.condition()[1]


@pytest.mark.parametrize(("lwm", "local_lwm"), [(5, 3), (3, 5), (5, 5)])
def test_safety_a1_a_copy_that_ends_below_a_mark_of_its_own_is_lost(lwm: int, local_lwm: int) -> None:
    """It took part in the recorded session and has lost its end since; no mark of it may be above its last
    record."""
    info = SessionInfo(5, lwm, local_lwm)
    assert classify(state("A", 5), info, 4, 5)[0] is Kind.LOST
    assert classify(state("A", 5), info, 5, 5) == (Kind.VOTER, 5, True)


def test_safety_a1_how_an_answer_is_judged() -> None:
    """(recorded session, closing mark), what the node says, its last record -> kind, good up to, vouched
    for."""
    closed, voter, lost = Kind.CLOSED, Kind.VOTER, Kind.LOST
    for recorded, said, last, expected in (
        ((0, UNRESOLVED), (0, 3, 3), 5, (voter, 5, True)),  # the very first session counts too
        ((5, UNRESOLVED), (6, 3, 3), 5, (voter, 5, True)),
        ((5, UNRESOLVED), (4, 3, 3), 5, (lost, 3, False)),
        ((5, UNRESOLVED), (5, 3, 3), 2, (lost, 2, True)),
        ((0, 2), (0, 1, 1), 5, (closed, 2, True)),
        ((4, 2), (4, 3, 3), 5, (closed, 3, True)),  # its own mark covers more than the closing one
        ((4, 3), (4, 2, 2), 5, (closed, 3, True)),
        ((4, 9), (4, 2, 2), 5, (closed, 5, True)),
        ((4, 3), (3, 1, 1), 5, (closed, 1, False)),
        ((-1, 3), (-1, -1, -1), 5, (closed, -1, False)),  # never took part: nothing of it is of this log
    ):
        assert classify(state("A", *recorded), SessionInfo(*said), last, 5) == expected, (recorded, said)
    assert classify(None, SessionInfo(5, 3, 3), 7, 5) == (Kind.NEW, 3, False)


def test_a_replica_that_was_refused_has_answered_nothing() -> None:
    recovery = recovery_of("ABC")
    for name in "AB":
        recovery.answered(name, SessionInfo(5, 0, 0), 3)
    recovery.refuse("A", "it is forked")
    recovery.gather_over()
    assert recovery.in_progress == ["B"]
    assert recovery.condition()[0] is Condition.NO_QUORUM
    assert "1 of 3 replicas, 2 needed: A (it is forked)" in recovery.condition()[1]


def test_safety_a1_a_closed_copy_that_was_set_back_holds_what_its_own_mark_covers_and_no_more() -> None:
    """C closed at 3 in session 4; its disk is of session 2, and its records above 1 were void then: they
    support nothing."""
    old = metadata(SESSION, state("A", 5), state("B", 5), state("C", 4, 3))
    nodes = {
        "A": member(3),
        "B": member(3),
        "C": Node([*stream("s5", 0, 1), "void:2", "void:3"], session=2, lwm=1, local_lwm=1),
    }
    recovery = answered(nodes, "AC", old, steps=False)
    assert not recovery.quorum_recovered
    assert recovery.next_step("C") == Truncate(1)
    run_until_stuck(recovery, nodes, "AC", SESSION)
    assert recovery.resolved == 3
    assert recovery.recovered == ["A", "C"]
    assert nodes["C"].log == stream("s5", 0, 3)


def test_a_closed_copy_that_lost_its_end_is_filled_before_it_is_marked() -> None:
    """Its node refuses a low-water mark while it ends below its local one: asked at once it would be asked
    for good."""
    old = metadata(SESSION, state("A", 5), state("B", 5), state("C", 4, 3))
    nodes = {"A": member(6), "B": member(6), "C": Node(stream("s5", 0, 1), session=4, lwm=3, local_lwm=3)}
    recovery = answered(nodes, "ABC", old)
    assert recovery.recovered == ["A", "B", "C"]
    assert nodes["C"].log == stream("s5", 0, 6)


# ---- answers that come again, sets that change


def _refilled(recovery: Recovery, nodes: dict[str, Node]) -> None:
    for name in nodes:
        answer(recovery, nodes, name)
    recovery.gather_over()
    run_until_stuck(recovery, nodes, list(nodes), SESSION)


def test_safety_a2_a_replica_that_answers_again_is_compared_again() -> None:
    """Its connection broke; what is behind the new one may be another log."""
    nodes = {name: member(3) for name in "ABC"}
    recovery = recovery_of("ABC")
    for name in "ABC":
        answer(recovery, nodes, name)
    assert recovery.next_step("C") == Compare("A", 3, 3)
    recovery.compared("C", "A", equal=True)
    recovery.failed("C", "the connection broke")
    nodes["C"] = Node([*stream("s5", 0, 2), "fork:3"], session=5, lwm=0, local_lwm=0)
    answer(recovery, nodes, "C")
    run_until_stuck(recovery, nodes, "ABC", SESSION)
    assert isinstance(recovery.next_step("C"), Refuse)
    assert recovery.recovered == ["A", "B"]


def test_safety_b2_a_replica_that_answers_again_is_marked_again() -> None:
    """It was emptied in between: filled, but without this session on its node, the next recovery would take
    it for lost."""
    nodes = {name: member(3) for name in "ABC"}
    recovery = recovery_of("ABC")
    _refilled(recovery, nodes)
    assert recovery.recovered == ["A", "B", "C"]
    recovery.failed("C", "the connection broke")
    nodes["C"] = Node()
    _refilled(recovery, nodes)
    assert recovery.recovered == ["A", "B", "C"]
    assert nodes["C"].session == SESSION
    assert nodes["C"].log == nodes["A"].log


def test_safety_a2_a_reference_that_fails_while_it_is_marked_is_compared_first() -> None:
    """It could not deliver the record; the answer to what it had been asked before says nothing of it."""
    nodes = {name: member(3) for name in "ABC"}
    recovery = recovery_of("ABC")
    for name in "ABC":
        answer(recovery, nodes, name)
    recovery.gather_over()
    assert isinstance(recovery.next_step("A"), SetLowWaterMark)
    assert recovery.next_step("B") == Compare("A", 3, 3)
    recovery.reference_failed("B", "A")
    recovery.low_water_mark_set("A")
    assert recovery.recovered == []
    run_until_stuck(recovery, nodes, "ABC", SESSION)
    assert recovery.recovered == ["A", "B", "C"]


def test_safety_a3_a_larger_set_is_complete_with_its_own_quorum() -> None:
    """Three become five: two listed replicas were a quorum of the old set and are none of the new one."""
    nodes = {**{name: member(3) for name in "ABC"}, "D": Node(), "E": Node()}
    recovery = recovery_of("ABCDE")
    for name in "ABC":
        answer(recovery, nodes, name)
    recovery.gather_over()
    run_until_stuck(recovery, nodes, "AB", SESSION)
    recovery.metadata_written(metadata(SESSION, state("A", SESSION), state("B", SESSION), state("C", 5, 3)))
    assert not recovery.complete
    run_until_stuck(recovery, nodes, "ABC", SESSION)
    recovery.metadata_written(recovery.metadata_after(OLD))
    assert recovery.condition()[0] is Condition.COMPLETE


def test_safety_a6_a_replica_that_was_taken_away_may_hold_what_cannot_be_read_here() -> None:
    """A's last records cannot be read; C, which is not assigned any more, may have acknowledged them with
    A."""
    nodes = {"A": member(5), "B": member(3), "D": Node()}
    recovery = recovery_of("ABD")
    for name in "ABD":
        answer(recovery, nodes, name)
    recovery.gather_over()
    recovery.source_failed("B", "A")
    assert recovery.resolved is None
    recovery.gather_over()
    assert recovery.resolved is None


def test_safety_a8_the_number_just_taken_was_in_use_before() -> None:
    """Nobody has asked this node to write the session down yet, so somebody else did, with the same
    number."""
    recovery = recovery_of("ABC")
    recovery.answered("A", SessionInfo(SESSION - 1, 0, 0), 3)
    assert recovery.condition()[0] is not Condition.FAULT
    recovery.answered("B", SessionInfo(SESSION, 0, 0), 3)
    assert "B has completed session 6, later than the 5" in recovery.condition()[1]


def test_safety_a2_a_fork_is_not_extended_before_the_mark_is_known() -> None:
    nodes = {"A": member(5), "B": Node([*stream("s5", 0, 2), "fork:3"], session=5, lwm=0, local_lwm=0)}
    recovery = recovery_of("ABC")
    for name in "AB":
        answer(recovery, nodes, name)
    recovery.gather_over()
    assert recovery.next_step("B") == Compare("A", 3, 3)
    run_until_stuck(recovery, nodes, "AB", SESSION)
    assert isinstance(recovery.next_step("B"), Refuse)
    assert len(nodes["B"].log) == 4


def test_safety_a1_the_closing_mark_of_a_replica_stays_until_it_takes_part_again() -> None:
    """What it holds above that mark is void, whatever later sessions resolve."""
    old = metadata(SESSION, state("A", 5), state("B", 5), state("C", 4, 1))
    nodes = {"A": member(3), "B": member(3), "C": Node()}
    recovery = answered(nodes, "AB", old)
    assert recovery.metadata_after(old).replicas["C"] == state("C", 4, 1)
