"""The steps of one replica change: which step comes next is derived from what is seen, and what is not
known stops it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import NODES, SESSION, answer, facts, listed, name, replica
from waltz_cluster.replica_rules import NeverStarted
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.api.migration import MoveState
from waltz_operator.model.actions import (
    Action,
    AssignInZooKeeper,
    AssignOnNode,
    DeleteJob,
    EmitEvent,
    RemoveOnNode,
    SetAvailability,
    StartCopyJob,
    UnassignInZooKeeper,
)
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import (
    JobView,
    KubeView,
    NodeReplica,
    NodeView,
    TreeView,
    Unknown,
)
from waltz_operator.plan.move_steps import (
    DISK_MARGIN,
    ChangeOptions,
    Step,
    next_step,
    undo_step,
    undoable,
    verified,
)

FOUR = (0, 1, 2, 3)
SOURCE, TARGET = name(2), name(3)
MOVE = Move(MoveKind.MOVE, 0, SOURCE, TARGET)
LADDER = ChangeOptions("copy", "m", rate_limit_bytes=7)
SILENT = Unknown("no route")
OFFLINE = NodeReplica(False, max_transaction_id=-1)
COPIED = NodeReplica(False, low_water_mark=5, max_transaction_id=5)
"""What the target has after the copy job: everything up to transaction 5, switched off."""
VERIFIED = JobView("j", "m", 0, SOURCE, TARGET, "succeeded", verified_through=5, checksum="ab")


def look(
    target: NodeReplica | NodeView | Unknown | None = None,
    job: JobView | None = None,
    *,
    held: tuple[int, ...] = NODES,
    counted: tuple[int, ...] | None = None,
    source: NodeView | Unknown | None = None,
    closed: tuple[int, ...] = (),
) -> Facts:
    """One look during the move from node 2 to node 3. `held`: assigned in ZooKeeper; `counted`: replicas
    by the metadata."""
    says: dict[int, NodeView | Unknown] = {}
    if isinstance(target, NodeReplica):
        says[3] = answer(target)
    elif target is not None:
        says[3] = target
    if source is not None:
        says[2] = source
    found = facts(KubeView(jobs={"copy": job} if job else {}), says, nodes=FOUR, assigned=held, closed=closed)
    if counted is not None:
        assert isinstance(found.tree, TreeView)
        record = PartitionMetadata(0, SESSION, {name(one): listed(one) for one in counted})
        found = replace(found, tree=replace(found.tree, partitions={0: record}))
    return found


def step(found: Facts, move: Move = MOVE) -> Step:
    return next_step(found, move, LADDER)


def reason(taken: Step | None) -> Reason | None:
    assert taken is not None
    assert taken.actions == ()
    assert not taken.finished
    return Reason(taken.blocked.reason) if taken.blocked is not None else None


REMAINING = (0, 1, 3)
WELL = replica()
CLIMB: list[tuple[str, Facts, MoveState, tuple[type[Action], ...]]] = [
    ("nothing was done", look(), MoveState.STARTED, (SetAvailability, AssignOnNode)),
    ("online without having been verified", look(replica(session_id=-1)), MoveState.STARTED, (SetAvailability,)),
    ("assigned, offline", look(OFFLINE), MoveState.TARGET_OFFLINE, (StartCopyJob,)),
    ("the job runs", look(OFFLINE, replace(VERIFIED, state="active")), MoveState.COPYING, ()),
    ("the job failed", look(OFFLINE, replace(VERIFIED, state="failed")), MoveState.TARGET_OFFLINE, (EmitEvent, DeleteJob)),
    ("no report", look(COPIED, replace(VERIFIED, verified_through=None)), MoveState.TARGET_OFFLINE, (DeleteJob,)),
    ("less than was verified", look(replace(COPIED, low_water_mark=4), VERIFIED), MoveState.TARGET_OFFLINE, (DeleteJob,)),
    ("job to another node", look(COPIED, replace(VERIFIED, target=name(1))), MoveState.TARGET_OFFLINE, (DeleteJob,)),
    ("job of another partition", look(COPIED, replace(VERIFIED, partition=1)), MoveState.TARGET_OFFLINE, (DeleteJob,)),
    ("that job is being deleted", look(COPIED, replace(VERIFIED, deleting=True)), MoveState.TARGET_OFFLINE, ()),
    ("the target lost it", look(answer(), VERIFIED), MoveState.STARTED, (DeleteJob,)),
    ("verified", look(COPIED, VERIFIED), MoveState.VERIFIED, (SetAvailability, AssignInZooKeeper)),
    ("online", look(replace(COPIED, available=True), VERIFIED), MoveState.TARGET_ONLINE, (AssignInZooKeeper,)),
    ("catches up", look(replica(session_id=-1), VERIFIED, held=FOUR), MoveState.ASSIGNED, ()),
    ("session without the target", look(WELL, VERIFIED, held=FOUR, counted=NODES), MoveState.ASSIGNED, ()),
    ("session with more", look(WELL, VERIFIED, held=REMAINING, counted=FOUR), MoveState.ASSIGNED, ()),
    ("current, the job still there", look(WELL, VERIFIED, held=FOUR), MoveState.CAUGHT_UP, (DeleteJob, UnassignInZooKeeper)),
    ("current", look(WELL, held=FOUR), MoveState.CAUGHT_UP, (UnassignInZooKeeper,)),
    ("unassigned", look(WELL, held=REMAINING, source=answer(WELL)), MoveState.SOURCE_GONE, (RemoveOnNode,)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "state", "actions"), [one[1:] for one in CLIMB], ids=[one[0] for one in CLIMB]
)
def test_each_look_has_one_next_step(
    found: Facts, state: MoveState, actions: tuple[type[Action], ...]
) -> None:
    taken = step(found)
    assert (taken.state, taken.blocked, taken.finished) == (state, None, False)
    assert tuple(type(action) for action in taken.actions) == actions


def test_it_is_over_when_the_source_has_nothing() -> None:
    assert step(look(WELL, held=REMAINING)) == Step(MoveState.DONE, finished=True)


def test_a_copy_that_is_given_up_stays_while_the_metadata_counts_it() -> None:
    drop = Move(MoveKind.DROP, 0, SOURCE, None)
    (first,) = step(look(WELL, held=FOUR), drop).actions
    assert isinstance(first, UnassignInZooKeeper)
    waits = step(look(WELL, held=REMAINING, counted=FOUR, source=answer(WELL)), drop)
    assert (waits.state, waits.actions, waits.finished) == (MoveState.SOURCE_UNASSIGNED, (), False)
    (last,) = step(look(WELL, held=REMAINING, source=answer(WELL)), drop).actions
    assert isinstance(last, RemoveOnNode)


def test_a_source_that_was_unregistered_needs_no_answer() -> None:
    found = look(WELL, held=REMAINING, source=SILENT)
    assert reason(step(found)) is Reason.NODE_SILENT
    assert isinstance(found.tree, TreeView)
    groups = {node: group for node, group in found.tree.groups.items() if node != SOURCE}
    assert step(replace(found, tree=replace(found.tree, groups=groups))).finished


def test_the_flag_is_off_before_the_target_is_told_that_it_has_the_partition() -> None:
    assert step(look()).actions == (SetAvailability(TARGET, 2, 0, False), AssignOnNode(TARGET, 2, (0,)))


def test_a_target_that_is_online_unverified_goes_offline_and_a_verified_one_online() -> None:
    assert step(look(replica(session_id=-1))).actions == (SetAvailability(TARGET, 2, 0, False),)
    online, assign = step(look(COPIED, VERIFIED)).actions
    assert online == SetAvailability(TARGET, 2, 0, True)
    assert isinstance(assign, AssignInZooKeeper)


def test_the_copy_comes_from_the_replica_that_leaves() -> None:
    start = StartCopyJob("copy", "m", 0, SOURCE, 2, TARGET, 2, 7)
    assert step(look(OFFLINE)).actions == (start,)


def test_or_from_the_one_with_the_highest_mark_when_that_is_not_current() -> None:
    found = replace(look(OFFLINE, closed=(2,)))
    ahead = {**found.nodes, name(0): answer(replica(local_low_water_mark=9))}
    (start,) = step(replace(found, nodes=ahead)).actions
    assert isinstance(start, StartCopyJob)
    assert start.source == name(0)


def test_without_a_current_replica_nothing_is_copied() -> None:
    assert reason(step(look(OFFLINE, closed=NODES))) is Reason.NO_SOURCE


@pytest.mark.parametrize(("free", "fits"), [(110, False), (111, True), (None, True)])
def test_the_copy_must_fit_on_the_disk_with_a_margin(free: int | None, fits: bool) -> None:
    assert DISK_MARGIN == 1.1
    target = replace(answer(), disk_free_bytes=free)
    taken = step(look(target, source=answer(replica(size_bytes=100))))
    assert bool(taken.actions) is fits
    assert fits or reason(taken) is Reason.DISK_FULL


def test_nothing_needs_to_be_copied_when_both_are_positively_empty() -> None:
    empty = replica(max_transaction_id=-1, low_water_mark=-1, local_low_water_mark=-1)
    found = look(OFFLINE, source=answer(empty))
    assert step(found).actions[0] == SetAvailability(TARGET, 2, 0, True)
    quiet = answer(replace(empty, max_transaction_id=None))  # a source of release 0.13.2 does not tell
    assert isinstance(step(look(OFFLINE, source=quiet)).actions[0], StartCopyJob)


def test_a_partition_that_was_never_started_is_only_assigned() -> None:
    found = look()
    assert isinstance(found.tree, TreeView)
    fresh = replace(found, tree=replace(found.tree, partitions={0: NeverStarted()}))
    assert step(fresh).actions == (AssignInZooKeeper({TARGET: (0,)}, 0, False),)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (replace(look(), tree=SILENT), Reason.ZOOKEEPER_UNKNOWN),
        (look(SILENT), Reason.NODE_SILENT),
        (facts(), Reason.NO_TARGET),  # the target is not registered
        (look(replace(COPIED, available=True), VERIFIED, closed=(0, 1)), Reason.UNSAFE_CHANGE),
        (look(WELL, held=FOUR, closed=(0, 1)), Reason.UNSAFE_CHANGE),
        (look(WELL, held=REMAINING, source=SILENT), Reason.NODE_SILENT),
        (look(WELL, held=REMAINING, source=answer(WELL), closed=(0, 1)), Reason.NO_QUORUM_WITHOUT),
    ],
    ids=["ZooKeeper", "target", "unregistered", "assign", "unassign", "source", "remove"],
)
def test_what_is_unknown_or_unsafe_stops_it(found: Facts, why: Reason) -> None:
    assert reason(step(found)) is why


def test_without_a_target_it_does_not_begin() -> None:
    assert reason(step(look(), Move(MoveKind.ADD, 0, None, None))) is Reason.NO_TARGET


def test_an_addition_ends_when_its_copy_is_current_and_takes_nothing_away() -> None:
    taken = step(look(WELL, held=FOUR), Move(MoveKind.ADD, 0, None, TARGET))
    assert taken == Step(MoveState.CAUGHT_UP, finished=True)


# ----------------------------------------------------------------------------------------------- the way back


def test_the_way_back_takes_the_job_then_the_copy_then_nothing() -> None:
    running = replace(VERIFIED, state="active")
    for found, actions in (
        (look(OFFLINE, running), (DeleteJob("copy", "j", "the change is taken back"),)),
        (look(OFFLINE, replace(running, deleting=True)), ()),
    ):
        taken = undo_step(found, MOVE, LADDER)
        assert taken is not None
        assert (taken.state, taken.actions, taken.finished) == (MoveState.STARTED, actions, False)
    taken = undo_step(look(OFFLINE), MOVE, LADDER)
    assert taken is not None
    (remove,) = taken.actions
    assert isinstance(remove, RemoveOnNode)
    assert (remove.node, remove.partition, remove.delete_files) == (TARGET, 0, True)
    assert undo_step(look(), MOVE, LADDER) == Step(MoveState.CANCELLED, finished=True)


def test_the_way_back_stops_at_a_silent_target() -> None:
    assert reason(undo_step(look(SILENT), MOVE, LADDER)) is Reason.NODE_SILENT


def test_there_is_no_way_back_once_other_copies_rest_on_it() -> None:
    assert undo_step(look(WELL, held=FOUR), MOVE, LADDER) is None
    drop = Move(MoveKind.DROP, 0, SOURCE, None)
    assert undoable(look(), drop)
    assert not undoable(look(held=REMAINING), drop)


def test_a_refill_can_be_taken_back_until_the_lost_copy_is_unassigned() -> None:
    refill = Move(MoveKind.REFILL, 0, SOURCE, SOURCE)
    lost = look(source=answer())
    assert undoable(lost, refill)
    (first,) = step(lost, refill).actions
    assert isinstance(first, UnassignInZooKeeper)
    assert not undoable(look(held=(0, 1), source=answer()), refill)


def test_a_report_holds_while_the_target_has_what_was_compared() -> None:
    assert verified(VERIFIED, COPIED)
    assert not verified(VERIFIED, replace(COPIED, low_water_mark=4))
    assert not verified(replace(VERIFIED, verified_through=None), COPIED)
