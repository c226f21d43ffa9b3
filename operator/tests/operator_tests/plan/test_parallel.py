"""Several partitions of a migration at a time: how many, what they share, and that each pass changes the
assignments once."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan.cluster import NOW, replica
from operator_tests.plan.test_placement import look, moves, task
from waltz_operator.api.migration import MigrationPhase, MoveState
from waltz_operator.model.actions import (
    Action,
    AssignInZooKeeper,
    SetAvailability,
    StartCopyJob,
    UnassignInZooKeeper,
)
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, NodeReplica, NodeView, Unknown
from waltz_operator.model.task import Record, Task, TaskKind
from waltz_operator.plan.migration import TaskDecision, decide_task

HELD = {"a0": (0, 1, 2, 3), "b0": (0, 1, 2, 3)}
NODES = ("a0", "a1", "b0")
OFFLINE = replica(available=False, session_id=-1, low_water_mark=-1, max_transaction_id=-1)
STARTED = MoveState.STARTED


def record(partition: int, state: MoveState = STARTED) -> Record:
    return Record(Move(MoveKind.MOVE, partition, "a0", "a1"), state)


def drain(*under_way: Record, parallel: int = 3) -> Task:
    """Everything off node a0, which has four partitions; the group's other node is a1."""
    phase = MigrationPhase.RUNNING if under_way else MigrationPhase.PENDING
    return task(TaskKind.DRAIN, "a0", parallel=parallel, records=under_way, phase=phase, rate_limit_bytes=90)


def seen(
    on_target: dict[int, NodeReplica] | None = None,
    *,
    assigned: tuple[int, ...] = (),
    free: int | None = None,
) -> Facts:
    """`on_target`: copies that a1 has and ZooKeeper does not know; `assigned`: those that it does know."""
    there = {**dict.fromkeys(assigned, replica()), **(on_target or {})}
    sized = {p: replica(size_bytes=100) for p in range(4)}
    says: dict[str, NodeView | Unknown] = {
        "a0": NodeView(sized, NOW),
        "b0": NodeView(sized, NOW),
        "a1": NodeView(there, NOW, 1000, free),
    }
    return look({**HELD, "a1": assigned}, nodes=NODES, says=says)


def decide(found: Facts, one: Task) -> TaskDecision:
    return decide_task(replace(found, tasks=(one,)), one)


def begun(decision: TaskDecision) -> list[int]:
    return [one.move.partition for one in decision.task.under_way]


def of(decision: TaskDecision, *kinds: type[Action]) -> list[Action]:
    return [one for one in decision.actions if isinstance(one, kinds)]


def test_as_many_are_begun_as_there_may_be() -> None:
    assert begun(decide(seen(), drain())) == [0, 1, 2]
    assert begun(decide(seen(), drain(parallel=1))) == [0]
    assert len(decide(seen(), drain(parallel=32)).task.under_way) == 4


def test_the_next_is_begun_alongside_those_under_way() -> None:
    decision = decide(seen(), drain(record(0), record(1)))
    assert begun(decision) == [0, 1, 2]
    assert [one.partition for one in decision.actions if isinstance(one, SetAvailability)] == [0, 1]


def test_none_is_begun_while_it_is_cancelled_or_given_up() -> None:
    for changes in ({"cancel": True}, {"failure": "why"}):
        assert 2 not in begun(decide(seen(), replace(drain(record(0), record(1)), **changes)))


def test_copies_run_at_the_same_time_and_share_the_rate() -> None:
    decision = decide(seen({0: OFFLINE, 1: OFFLINE, 2: OFFLINE}), drain(record(0), record(1), record(2)))
    assert [
        (one.partition, one.rate_limit_bytes) for one in decision.actions if isinstance(one, StartCopyJob)
    ] == [
        (0, 30),
        (1, 30),
        (2, 30),
    ]


def test_the_assignments_change_once_in_a_pass() -> None:
    """Two copies are in service; their sources are unassigned one after the other."""
    found = seen(assigned=(0, 1))
    both = drain(record(0, MoveState.ASSIGNED), record(1, MoveState.ASSIGNED), parallel=2)
    decision = decide(found, both)
    assert len(of(decision, AssignInZooKeeper, UnassignInZooKeeper)) == 1
    assert [one.state for one in decision.task.records][1] is MoveState.ASSIGNED


def test_the_disk_must_have_space_for_all_of_them() -> None:
    enough = decide(
        seen({0: replace(OFFLINE, size_bytes=40)}, free=180), drain(record(0), record(1), parallel=2)
    )
    assert not [one for one in enough.blocked if one.reason == Reason.DISK_FULL]
    short = decide(
        seen({0: replace(OFFLINE, size_bytes=40)}, free=170), drain(record(0), record(1), parallel=2)
    )
    assert [one.reason for one in short.blocked] == [Reason.DISK_FULL]
    assert "others that are under way 60" in short.blocked[0].text


def test_one_that_is_held_up_does_not_hold_up_the_others() -> None:
    found = seen({0: OFFLINE, 1: OFFLINE})
    assert isinstance(found.kube, KubeView)
    silent = replace(found, nodes={**found.nodes, "b0": Unknown("no route")})
    decision = decide(silent, drain(record(0), record(1), parallel=2))
    assert [one.partition for one in decision.actions if isinstance(one, StartCopyJob)] == [0, 1]


def test_a_rebalance_counts_what_is_under_way_as_done() -> None:
    """Four partitions on one node: two move. While they are on both, no third one does."""
    asked = task(TaskKind.REBALANCE, group="a", parallel=2)
    before = {"a0": (0, 1, 2, 3), "b0": (0, 1, 2, 3)}
    assert [partition for partition, _, _ in moves(look(before, nodes=NODES), asked)] == [3, 2]
    both = look({**before, "a1": (2, 3)}, nodes=NODES)
    busy = replace(asked, records=(record(2, MoveState.ASSIGNED), record(3, MoveState.ASSIGNED)))
    assert moves(both, busy) == []
