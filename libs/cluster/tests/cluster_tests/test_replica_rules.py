"""The rules about copies: is one current, may the replicas be changed, may one be removed (safety rule
A6)."""

from __future__ import annotations

from itertools import product

import pytest

from waltz_cluster.quorum import quorum_of
from waltz_cluster.replica_rules import (
    Answer,
    NeverStarted,
    NoAnswer,
    NotHeld,
    Obstacle,
    ReplicaAnswer,
    Standing,
    change_incomplete,
    standing_of,
    why_not_change,
    why_not_current,
    why_not_intact,
    why_not_remove,
    why_stale,
    why_still_needed,
)
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId

NODE = "a:1"


def listed(session_id: int = 7, closing: int = UNRESOLVED, node: str = NODE) -> ReplicaState:
    return ReplicaState(PartitionId(0), node, session_id, closing)


def metadata(*replicas: ReplicaState) -> PartitionMetadata:
    return PartitionMetadata(1, 7, {one.connect_string: one for one in replicas})


def of(nodes: str) -> PartitionMetadata:
    return metadata(*(listed(node=node) for node in nodes))


@pytest.mark.parametrize(
    ("replica", "answer", "standing"),
    [
        (listed(), ReplicaAnswer(7, True, True), Standing.CURRENT),
        (listed(), ReplicaAnswer(7, True, False), Standing.INCOMPLETE),
        (listed(), ReplicaAnswer(7, True, None), Standing.INCOMPLETE),
        (listed(), ReplicaAnswer(7, False, True), Standing.UNAVAILABLE),
        (listed(), ReplicaAnswer(7, True, True, "a sync failed"), Standing.UNAVAILABLE),
        (listed(), ReplicaAnswer(6, True, True), Standing.SET_BACK),
        (listed(), ReplicaAnswer(6, False, True), Standing.SET_BACK),
        (listed(), ReplicaAnswer(8, True, True), Standing.AHEAD),
        (listed(), NotHeld(), Standing.UNASSIGNED),
        (listed(), NoAnswer("refused"), Standing.UNREACHABLE),
        (listed(6), ReplicaAnswer(6, True, True), Standing.BEHIND),
        (listed(6), ReplicaAnswer(7, True, False), Standing.BEHIND),
        (listed(6, 3), ReplicaAnswer(6, True, True), Standing.BEHIND),
        (listed(7, 3), ReplicaAnswer(7, True, True), Standing.BEHIND),
        (listed(node="b:1"), ReplicaAnswer(-1, True, True), Standing.BEHIND),
        (listed(node="b:1"), ReplicaAnswer(7, True, True), Standing.BEHIND),
    ],
)
def test_safety_a6_where_a_copy_is(replica: ReplicaState, answer: Answer, standing: Standing) -> None:
    found = standing_of(metadata(replica), NODE, answer)
    assert found.standing is standing
    assert bool(found.reason) == (standing is not Standing.CURRENT)
    assert why_not_current(metadata(replica), NODE, answer) == found.reason


def test_a_replica_that_was_in_no_session_has_not_dropped_out() -> None:
    """0.13.2 lists one that it adds with session -1, and the mark up to which it is filled."""
    reason = why_not_current(metadata(listed(-1, 1282)), NODE, ReplicaAnswer(7, True, True))
    assert reason == why_not_current(metadata(), NODE, ReplicaAnswer(7, True, True))


def test_without_metadata_nothing_is_current() -> None:
    assert standing_of(None, NODE, ReplicaAnswer(7, True, True)).standing is Standing.NOT_STARTED
    assert standing_of(None, NODE, NoAnswer()).standing is Standing.UNREACHABLE


def test_a_page_lets_the_next_session_pass_and_nothing_else() -> None:
    later = ReplicaAnswer(8, True, True)
    assert why_not_current(metadata(listed()), NODE, later) == "it is in session 8, ZooKeeper in 7"
    assert not why_not_current(metadata(listed()), NODE, later, later_session_passes=True)
    for bad in (later._replace(available=False), later._replace(holds_low_water_mark=False)):
        assert why_not_current(metadata(listed()), NODE, bad, later_session_passes=True)
    assert why_not_current(metadata(listed(6)), NODE, later, later_session_passes=True)


@pytest.mark.parametrize(
    ("answer", "intact"),
    [
        (ReplicaAnswer(6, True, True), True),
        (ReplicaAnswer(8, True, True), True),
        (ReplicaAnswer(5, True, True), False),
        (ReplicaAnswer(6, False, True), False),
        (ReplicaAnswer(6, True, False), False),
        (ReplicaAnswer(6, True, True, "a sync failed"), False),
        (NotHeld(), False),
        (NoAnswer(), False),
    ],
)
def test_safety_a1_a_copy_that_dropped_out_is_intact_while_it_has_what_it_had(
    answer: Answer, intact: bool
) -> None:
    assert (why_not_intact(listed(6, 3), answer) == "") == intact


def test_an_old_answer_proves_nothing() -> None:
    assert not why_stale(0.0)
    assert not why_stale(10.0)
    assert why_stale(60.2) == "its answer is 60 s old"


def test_safety_a6_changes_by_enumeration() -> None:
    """All sets of up to four replicas, all changes among five, all combinations of those that are current."""
    for size in range(1, 5):
        old = "abcde"[:size]
        for chosen in product((False, True), repeat=5):
            new = [node for node, taken in zip("abcde", chosen, strict=True) if taken]
            for current in product(("", "why"), repeat=size):
                reasons = dict(zip(old, current, strict=True))
                live = [node for node in old if node in new and not reasons[node]]
                safe = bool(new) and len(live) >= max(quorum_of(size), quorum_of(len(new)))
                pause = safe or (bool(new) and set(old) <= set(new) and len(live) == size)
                assert (why_not_change(of(old), old, new, reasons) is None) == safe
                assert (why_not_change(of(old), old, new, reasons, allow_pause=True) is None) == pause


def test_safety_a6_who_was_not_asked_does_not_count() -> None:
    refusal = why_not_change(of("abc"), "abc", "ab", {"a": ""})
    assert refusal is not None
    assert refusal.obstacle is Obstacle.NOT_ENOUGH_CURRENT
    assert refusal.reason == (
        "of the replicas that stay 1 are proven to be current (a), 2 are needed (quorum of 3 old replicas: 2, of 2 new ones: 2)"
        "; b: it was not asked"
    )


def test_a_reason_says_none_where_there_is_no_name() -> None:
    assert change_incomplete(of(""), "a") == (
        "a change of its replicas is not complete: its last session had the replicas none, assigned are a"
    )


def test_safety_a6_no_change_and_no_removal_upon_a_change_that_is_not_complete() -> None:
    well = dict.fromkeys("abcd", "")
    change = why_not_change(of("abc"), "abcd", "abcde", well)
    removal = why_not_remove(of("abc"), "x", "abcd", well)
    assert change is not None
    assert removal is not None
    assert {change.obstacle, removal.obstacle} == {Obstacle.CHANGE_INCOMPLETE}
    assert change.reason == change_incomplete(of("abc"), "abcd")
    assert not change_incomplete(of("abc"), "cba")


def test_safety_a6_a_copy_is_removed_only_when_nobody_needs_it() -> None:
    well = dict.fromkeys("abc", "")

    def obstacle(node: str, assigned: str, reasons: dict[str, str]) -> Obstacle | None:
        refusal = why_not_remove(of("abc"), node, assigned, reasons)
        return None if refusal is None else refusal.obstacle

    assert obstacle("d", "abc", well) is None
    assert obstacle("d", "abc", {**well, "c": "why"}) is None
    assert obstacle("d", "abc", {"a": ""}) is Obstacle.NOT_ENOUGH_CURRENT
    assert obstacle("c", "abc", well) is Obstacle.STILL_ASSIGNED
    assert obstacle("c", "ab", well) is Obstacle.STILL_COUNTED
    assert why_still_needed(of("abc"), "d", "abc") is None


def test_a_partition_that_was_never_started_has_nothing_to_lose() -> None:
    assert why_not_change(NeverStarted(), "", "a", {}) is None
    assert why_not_remove(NeverStarted(), "a", "", {}) is None
    refusal = why_not_remove(NeverStarted(), "a", "a", {})
    assert refusal is not None
    assert refusal.obstacle is Obstacle.STILL_ASSIGNED
