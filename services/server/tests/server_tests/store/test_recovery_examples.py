"""The examples and figures of the reference documentation, by name, and single rules of recovery."""

from __future__ import annotations

from server_tests.store.model import Node, answer, metadata, run_until_stuck, state, stream, take_step
from waltz_admin.forget import without_replica
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.types import UNRESOLVED, SessionInfo
from waltz_server.store.quorum import decide
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import Condition, Copy, Recovered, Refuse, SetLowWaterMark, Wait

H_C, H_A, H_B = 2, 4, 6


def is_undecided(recovery: Recovery) -> bool:
    return recovery.resolved is None


def is_complete(recovery: Recovery) -> bool:
    return recovery.complete


def start(
    nodes: dict[str, Node], old: PartitionMetadata, session: int = 6, present: str | None = None
) -> Recovery:
    names = present if present is not None else "".join(nodes)
    recovery = Recovery(partition_id=0, session_id=session, replicas=list(nodes), metadata=old)
    for name in names:
        answer(recovery, nodes, name)
    recovery.gather_over()
    run_until_stuck(recovery, nodes, names, session)
    return recovery


def member(mark: int, session: int = 5, lwm: int = 0) -> Node:
    return Node(stream("s5", 0, mark), session=session, lwm=lwm, local_lwm=lwm)


def written(recovery: Recovery, old: PartitionMetadata) -> dict[str, tuple[int, int]]:
    after = recovery.metadata_after(old)
    return {n: (s.session_id, s.closing_high_water_mark) for n, s in after.replicas.items()}


# ---- the three figures of the quorum check


def test_quorum_check_healthy() -> None:
    """All there: A votes for {HA, HC}, B for {HA, HB, HC}, C for {HC}; the highest mark with a majority is
    HA."""
    assert decide([H_A, H_B, H_C], absent=0, quorum=2).resolved == H_A


def test_quorum_check_b_offline() -> None:
    """Only A and C vote: HC has a majority, but B could make one for HA, so nothing is decided."""
    assert decide([H_A, H_C], absent=1, quorum=2).resolved is None
    assert decide([H_A, H_C], absent=1, quorum=2).open_mark == H_A


def test_quorum_check_c_catch_up() -> None:
    """C caught up with A: HA has its majority, whatever B holds."""
    assert decide([H_A, H_A], absent=1, quorum=2).resolved == H_A
    nodes = {"A": member(H_A), "B": member(H_B), "C": member(H_C)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = start(nodes, old, present="AC")
    assert recovery.resolved == H_A
    assert nodes["C"].log == nodes["A"].log
    assert written(recovery, old) == {"A": (6, UNRESOLVED), "B": (5, H_A), "C": (6, UNRESOLVED)}


def test_a_tail_is_kept_while_it_can_be_copied() -> None:
    nodes = {"A": member(H_A), "B": member(H_B), "C": member(H_C)}
    recovery = start(nodes, metadata(6, state("A", 5), state("B", 5), state("C", 5)))
    assert recovery.resolved == H_B
    assert all(node.log == stream("s5", 0, H_B) for node in nodes.values())


# ---- the four examples of the recovery procedure


def test_example_1_adding_single_replica() -> None:
    """A, B, C and now D: the three old ones decide; three of four must hold it; D is filled."""
    nodes = {"A": member(9), "B": member(9), "C": member(8), "D": Node()}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = start(nodes, old)
    assert recovery.resolved == 9
    assert recovery.recovered == ["A", "B", "C", "D"]
    assert nodes["D"].log == stream("s5", 0, 9)
    late = {"A": member(9), "B": member(9), "C": member(8), "D": Node()}
    recovery = start(late, old, present="ABC")
    assert recovery.quorum_recovered
    assert written(recovery, old)["D"] == (-1, 9)


def test_example_2_adding_multiple_replicas() -> None:
    """A, B, C and now D and E: any three of the five end the recovery, the old three decide."""
    nodes = {"A": member(9), "B": member(9), "C": member(7), "D": Node(), "E": Node()}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = start(nodes, old, present="ABD")
    assert recovery.resolved == 9
    assert recovery.quorum_recovered
    assert written(recovery, old) == {
        "A": (6, UNRESOLVED),
        "B": (6, UNRESOLVED),
        "C": (5, 9),
        "D": (6, UNRESOLVED),
        "E": (-1, 9),
    }
    only_new = start({n: Node(list(v.log), v.session) for n, v in nodes.items()}, old, present="DE")
    assert only_new.resolved is None


def test_example_3_removing_single_replica() -> None:
    """A, B, C without C: the removed one counts as absent in the old quorum; A and B decide."""
    nodes = {"A": member(9), "B": member(8)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = start(nodes, old)
    assert recovery.resolved == 9
    assert written(recovery, old) == {"A": (6, UNRESOLVED), "B": (6, UNRESOLVED)}


def test_example_4_removing_multiple_replicas() -> None:
    """Five to three works while three of the old five stay; three to one can not decide."""
    names = "ABCDE"
    old = metadata(6, *(state(n, 5) for n in names))
    nodes = {"A": member(9), "B": member(8), "C": member(7)}
    recovery = start(nodes, old)
    assert recovery.resolved == 9
    assert set(written(recovery, old)) == {"A", "B", "C"}
    alone = start({"A": member(9)}, metadata(6, state("A", 5), state("B", 5), state("C", 5)))
    assert alone.resolved is None
    condition, reason = alone.condition()
    assert condition is Condition.UNDECIDABLE
    assert "B (not assigned any longer)" in reason


# ---- single rules


def test_safety_a1_set_back_replica_is_neither_supporter_nor_opponent() -> None:
    nodes = {"A": member(9), "B": member(8), "C": Node(stream("s5", 0, 9), session=4, lwm=0, local_lwm=0)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = start(nodes, old, present="AC")
    assert is_undecided(recovery)
    assert recovery.next_step("C") == Wait()
    assert nodes["C"].log == stream("s5", 0, 9)  # untouched
    answer(recovery, nodes, "B")
    run_until_stuck(recovery, nodes, "ABC", 6)
    assert recovery.resolved == 9
    assert recovery.recovered == ["A", "B", "C"]


def test_safety_a1_damaged_replica_below_its_own_marks_is_absent() -> None:
    nodes = {"A": member(9, lwm=5), "B": member(8, lwm=5), "C": member(3, lwm=5)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = Recovery(partition_id=0, session_id=6, replicas=list(nodes), metadata=old)
    answer(recovery, nodes, "A")
    answer(recovery, nodes, "C")
    recovery.gather_over()
    assert recovery.resolved is None
    assert recovery.condition()[0] is Condition.UNDECIDABLE


def test_storage_7_18_low_water_mark_comes_after_the_refill() -> None:
    """A listed replica is marked only when it holds everything resolved, so its old session keeps telling."""
    nodes = {"A": member(9), "B": member(9), "C": Node(session=-1)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = Recovery(partition_id=0, session_id=6, replicas=list(nodes), metadata=old)
    for name in nodes:
        answer(recovery, nodes, name)
    assert recovery.next_step("C") == Copy("A", 0, 9)
    assert recovery.next_step("A") == SetLowWaterMark(9)
    run_until_stuck(recovery, nodes, "AB", 6)
    recovery.metadata_written(recovery.metadata_after(old))  # C is recorded as closed now
    assert recovery.next_step("C") == SetLowWaterMark(9)


def test_safety_a2_any_trace_of_records_stops_the_first_session() -> None:
    for info, max_txid in (
        (SessionInfo(-1, -1, -1), 0),
        (SessionInfo(0, 3, 3), 3),
        (SessionInfo(9, -1, -1), -1),
    ):
        recovery = Recovery(partition_id=0, session_id=2, replicas=["A", "B", "C"], metadata=metadata(2))
        recovery.answered("A", SessionInfo(-1, -1, -1), -1)
        recovery.answered("B", info, max_txid)
        recovery.answered("C", SessionInfo(-1, -1, -1), -1)
        recovery.gather_over()
        assert recovery.resolved is None
        assert recovery.condition()[0] is Condition.FAULT
        assert all(isinstance(recovery.next_step(n), Wait | Refuse) for n in "ABC")


def test_safety_a2_interrupted_first_session_is_not_a_trace() -> None:
    recovery = Recovery(partition_id=0, session_id=1, replicas=["A", "B", "C"], metadata=metadata(1))
    for name in "ABC":
        recovery.answered(name, SessionInfo(0, -1, -1), -1)
    assert recovery.resolved == -1


def test_safety_a2_first_session_waits_for_a_quorum_and_a_moment() -> None:
    recovery = Recovery(partition_id=0, session_id=0, replicas=["A", "B", "C"], metadata=metadata(0))
    recovery.answered("A", SessionInfo(-1, -1, -1), -1)
    recovery.answered("B", SessionInfo(-1, -1, -1), -1)
    assert is_undecided(recovery)
    recovery.gather_over()
    assert recovery.resolved == -1
    lonely = Recovery(partition_id=0, session_id=0, replicas=["A", "B", "C"], metadata=metadata(0))
    lonely.answered("A", SessionInfo(-1, -1, -1), -1)
    lonely.gather_over()
    assert lonely.resolved is None
    assert lonely.condition()[0] is Condition.NO_QUORUM


def test_safety_a2_late_replica_above_the_resolved_mark_is_refused_untouched() -> None:
    nodes = {
        "A": member(9),
        "B": member(9),
        "C": Node(stream("other", 0, 20), session=4, lwm=15, local_lwm=15),
    }
    old = metadata(6, state("A", 5), state("B", 5), state("C", 4, 7))
    recovery = start(nodes, old, present="AB")
    recovery.metadata_written(recovery.metadata_after(old))
    answer(recovery, nodes, "C")
    run_until_stuck(recovery, nodes, "ABC", 6)
    assert isinstance(recovery.next_step("C"), Refuse)
    assert len(nodes["C"].log) == 21


def test_safety_a2_nothing_is_truncated_below_a_mark_the_node_reports() -> None:
    nodes = {"A": member(9), "B": member(9), "C": Node(stream("s5", 0, 15), session=5, lwm=15, local_lwm=15)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 4, 7))
    recovery = start(nodes, old, present="AB")
    answer(recovery, nodes, "C")
    run_until_stuck(recovery, nodes, "ABC", 6)
    assert isinstance(recovery.next_step("C"), Refuse)
    assert len(nodes["C"].log) == 16


def test_low_water_mark_never_rests_on_copies_that_the_next_session_would_cut() -> None:
    """B's tail got its majority by copying to the closed C; C must be marked first, then B."""
    closed = Node(stream("s5", 0, 1), session=4, lwm=0, local_lwm=0)
    nodes = {"A": member(1), "B": member(2), "C": closed}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 4, 1))
    recovery = start(nodes, old, present="")
    for name in "BC":
        answer(recovery, nodes, name)
    while recovery.resolved is None:
        assert take_step(recovery, nodes, "C", 6)
    assert recovery.resolved == 2
    while take_step(recovery, nodes, "B", 6):
        pass
    assert recovery.next_step("B") == Wait()
    assert nodes["B"].session == 5
    while take_step(recovery, nodes, "C", 6):
        pass
    assert nodes["C"].lwm == 2
    assert recovery.next_step("B") == SetLowWaterMark(2)


def test_forked_replica_is_refused_untouched() -> None:
    fork = Node([*stream("s5", 0, 5), *stream("fork", 6, 9)], session=5, lwm=0, local_lwm=0)
    nodes = {"A": member(9), "B": member(9), "C": fork}
    recovery = start(nodes, metadata(6, state("A", 5), state("B", 5), state("C", 5)))
    assert recovery.recovered == ["A", "B"]
    assert isinstance(recovery.next_step("C"), Refuse)
    assert len(fork.log) == 10


def test_readded_replica_keeps_what_is_under_its_mark() -> None:
    nodes = {"A": member(9), "B": member(9), "C": Node([*stream("s5", 0, 6), "junk:7"], session=3, lwm=6)}
    recovery = start(nodes, metadata(6, state("A", 5), state("B", 5)))
    assert recovery.recovered == ["A", "B", "C"]
    assert nodes["C"].log == stream("s5", 0, 9)


def test_safety_a3_complete_only_after_metadata_is_written() -> None:
    nodes = {"A": member(9), "B": member(9), "C": member(9)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = start(nodes, old)
    assert recovery.quorum_recovered
    assert not is_complete(recovery)
    assert not recovery.is_listed("A")
    recovery.metadata_written(old)
    assert not is_complete(recovery)
    recovery.metadata_written(recovery.metadata_after(old))
    assert is_complete(recovery)
    assert recovery.next_step("A") == Recovered()


def test_unreadable_tail_is_given_up_only_when_it_is_decidable_without() -> None:
    nodes = {"A": member(9), "B": member(8), "C": member(8)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = Recovery(partition_id=0, session_id=6, replicas=list(nodes), metadata=old)
    for name in nodes:
        answer(recovery, nodes, name)
    recovery.gather_over()
    assert is_undecided(recovery)
    recovery.source_failed("B", "A")
    assert recovery.resolved == 8


def test_forgetting_one_keeps_what_the_others_hold() -> None:
    """A holds 9, the closed C less; B is gone for good: what A holds stays."""
    nodes = {"A": member(9), "B": Node(), "C": Node(stream("s5", 0, 2), session=4, lwm=0, local_lwm=0)}
    old = without_replica(metadata(6, state("A", 5), state("B", 5), state("C", 4, 2)), "B")
    without_a = start({n: v.copy() for n, v in nodes.items()}, old, present="C")
    assert without_a.resolved is None
    recovery = start(nodes, old, present="AC")
    assert recovery.resolved == 9


def test_safety_a1_a_copy_that_is_being_kept_cuts_nobody_who_comes_back() -> None:
    """`waltz storage forget --keep` of A ended between its writes: ZooKeeper lists A for the session that A
    has written down, beside the others. B, named as lost, comes back with more."""
    old = metadata(50, state("A", 50), state("B", 5), state("C", 5))
    nodes = {"A": member(9, session=50, lwm=9), "B": member(12, lwm=6), "C": member(12, session=-1, lwm=-1)}
    assert is_undecided(start(nodes, old, session=51, present="AC"))
    nodes["A"].session = -1  # or had not yet written it down
    assert is_undecided(start(nodes, old, session=51))
    nodes["A"].session = 50
    assert start(nodes, old, session=51).resolved == 12


def test_metadata_of_a_listed_replica_is_never_closed_by_its_own_session() -> None:
    nodes = {"A": member(9), "B": member(9), "C": member(9)}
    old = metadata(6, state("A", 5), state("B", 5), state("C", 5))
    recovery = start(nodes, old)
    new = recovery.metadata_after(old)
    recovery.metadata_written(new)
    recovery.failed("C", "gone")
    assert recovery.metadata_after(new).replicas["C"] == state("C", 6)
