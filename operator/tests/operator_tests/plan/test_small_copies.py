"""Which copies the operator makes itself, and what follows them in the same pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import answer, identity, name, replica
from operator_tests.plan.test_move_steps import FOUR, LADDER, MOVE, OFFLINE, SOURCE, TARGET, VERIFIED, look
from operator_tests.plan.test_placement import look as placed
from waltz_operator.api.migration import MoveState
from waltz_operator.model.actions import (
    AssignInZooKeeper,
    AssignOnNode,
    CopyPartition,
    DeleteJob,
    SetAvailability,
    StartCopyJob,
    UnassignInZooKeeper,
)
from waltz_operator.model.desired import Memory, Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import JobView, NodeReplica
from waltz_operator.plan.builder import AT_ONCE, BRIEFLY, Decision
from waltz_operator.plan.move_steps import SMALL_COPY_BYTES, Step, next_step
from waltz_operator.plan.replica_changes import begin_change, continue_change

SMALL = answer(replica(size_bytes=SMALL_COPY_BYTES))
UNLIMITED = replace(LADDER, rate_limit_bytes=0)


def step(found: Facts, rate: int = 0) -> Step:
    return next_step(found, MOVE, replace(LADDER, rate_limit_bytes=rate))


def copies(taken: Step) -> list[type]:
    return [type(one) for one in taken.actions if isinstance(one, CopyPartition | StartCopyJob)]


def test_a_partition_that_the_target_lacks_is_assigned_on_it_copied_and_assigned_in_one_pass() -> None:
    taken = step(look(source=SMALL))
    assert [type(one) for one in taken.actions] == [
        SetAvailability,
        AssignOnNode,
        CopyPartition,
        SetAvailability,
        AssignInZooKeeper,
    ]
    switched = [one.online for one in taken.actions if isinstance(one, SetAvailability)]
    assert switched == [False, True]
    assert taken.actions[2] == CopyPartition(0, SOURCE, 2, TARGET, 2)
    # so that the second look comes after the copy
    assert [one.destructive for one in taken.actions[2:]] == [False, False, True]


@pytest.mark.parametrize(("size", "rate"), [(SMALL_COPY_BYTES + 1, 0), (None, 0), (1000, 999)])
def test_one_that_is_left_to_a_job_is_assigned_on_the_target_alone(size: int | None, rate: int) -> None:
    taken = step(look(source=answer(replica(size_bytes=size))), rate)
    assert [type(one) for one in taken.actions] == [SetAvailability, AssignOnNode]


@pytest.mark.parametrize(
    ("target", "size", "rate", "job"),
    [
        (OFFLINE, SMALL_COPY_BYTES + 1, 0, None),
        (OFFLINE, None, 0, None),  # a node of release 0.13.2 does not report it
        (OFFLINE, 1000, 999, None),
        (OFFLINE, 1000, 0, None),  # the operator's own copy has failed before its first record
        (replace(OFFLINE, max_transaction_id=0), 1000, 0, None),  # begun, and nobody knows how far
        (replace(OFFLINE, max_transaction_id=None), 1000, 0, None),
    ],
)
def test_all_others_and_what_was_begun_are_made_by_a_job(
    target: NodeReplica, size: int | None, rate: int, job: JobView | None
) -> None:
    source = answer(replica(size_bytes=size))
    assert copies(step(look(target, job, source=source), rate)) == [StartCopyJob]


def test_one_whose_rate_lets_it_pass_within_a_second_is_small() -> None:
    assert copies(step(look(source=answer(replica(size_bytes=1000))), 1000)) == [CopyPartition]


def test_the_target_is_a_pod_of_ours() -> None:
    found = look(source=SMALL)
    nodes = tuple(identity(one)._replace(external=one == 3) for one in FOUR)
    wanted = replace(found.desired, nodes=nodes, by_connect={one.connect_string: one for one in nodes})
    assert copies(step(found)) == [CopyPartition]
    assert copies(step(replace(found, desired=wanted))) == []


def test_a_job_that_is_there_is_waited_for() -> None:
    assert step(look(OFFLINE, replace(VERIFIED, state="active"), source=SMALL)).state is MoveState.COPYING


def test_nothing_is_copied_that_may_not_be_assigned() -> None:
    """A small copy that was made leaves no trace, so a Job would make it again."""
    taken = step(look(source=SMALL, closed=(0, 1)))
    assert (taken.actions, taken.state) == ((), MoveState.STARTED)
    assert taken.blocked is not None


def test_one_that_is_found_switched_on_and_not_assigned_is_made_again_by_a_job() -> None:
    """The operator ended between the two: nobody knows whether it was compared."""
    done = replica(session_id=-1, low_water_mark=5, max_transaction_id=5)
    assert step(look(done, source=SMALL)).actions == (SetAvailability(TARGET, 2, 0, False),)
    assert copies(step(look(replace(done, available=False), source=SMALL))) == [StartCopyJob]


def test_it_waits_briefly_for_servers_only() -> None:
    assert step(look(replica(session_id=-1), held=FOUR)).awaits_servers
    assert step(look(replica(), held=(0, 1, 3), counted=FOUR)).awaits_servers
    assert not step(look(OFFLINE, replace(VERIFIED, state="active"))).awaits_servers
    assert not step(look(source=SMALL)).awaits_servers


def test_the_job_goes_in_the_pass_that_takes_the_source_out() -> None:
    taken = step(look(replica(), VERIFIED, held=FOUR))
    assert [type(one) for one in taken.actions] == [DeleteJob, UnassignInZooKeeper]


def added(held: tuple[int, ...], counted: tuple[int, ...] | None = None) -> tuple[Facts, Decision]:
    move = Move(MoveKind.ADD, 0, None, name(3), 1.0)
    found = look(replica(session_id=-1) if counted else replica(), held=held, counted=counted)
    found = replace(found, memory=replace(found.memory, operation=move))
    decision = Decision(found.memory)
    continue_change(found, decision)
    return found, decision


def test_the_next_change_is_recorded_in_the_pass_in_which_the_last_one_has_ended() -> None:
    move = Move(MoveKind.ADD, 0, None, "c0", 1.0)
    found = placed({"a0": (0, 1), "b0": (0, 1), "c0": (0,)}, nodes=("a0", "b0", "c0"))
    decision = Decision(replace(found.memory, operation=move))
    continue_change(replace(found, memory=decision.memory), decision)
    assert decision.memory == found.memory
    begin_change(replace(found, memory=replace(found.memory, operation=move)), decision)
    recorded = decision.memory.operation
    assert recorded is not None
    assert recorded[:4] == (MoveKind.ADD, 1, None, "c0")
    assert decision.requeue_seconds == AT_ONCE


def test_a_copy_that_catches_up_is_looked_at_soon() -> None:
    _, decision = added(FOUR, counted=(0, 1, 2))
    assert decision.memory != Memory(decision.memory.cluster_key)
    assert decision.requeue_seconds == BRIEFLY
