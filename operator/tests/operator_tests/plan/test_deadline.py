"""A migration that gets no further fails after its deadline, holds up nobody, and can be begun again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan import cluster
from operator_tests.plan.cluster import NOW, SESSION, answer, name, replica
from operator_tests.plan.test_beginning import one_group
from waltz_operator.api.migration import MigrationPhase, MoveState
from waltz_operator.model.actions import RemoveOnNode, UnassignInZooKeeper
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import JobView, KubeView, NodeView, Unknown
from waltz_operator.model.task import Record, Task, TaskKind
from waltz_operator.plan.migration import TaskDecision, decide_task

LIMIT = 60
LONG_AGO = NOW - LIMIT - 1
SILENT = Unknown("it does not answer")
MOVE = Move(MoveKind.MOVE, 0, name(0), name(3))


def seen(
    says: dict[int, NodeView | Unknown] | None = None,
    *,
    assigned: tuple[int, ...] = (0, 1, 2),
    wanted: tuple[int, ...] = (0, 1, 2, 3),
    jobs: dict[str, JobView] | None = None,
) -> Facts:
    """Nodes 0 and 3 are one group, partition 0 is on node 0."""
    kube = replace(cluster.kube(nodes=(0, 1, 2, 3)), jobs=jobs or {})
    found = cluster.facts(kube, says, nodes=(0, 1, 2, 3), assigned=assigned)
    return one_group(found, (0, 3), wanted)


def task(state: MoveState = MoveState.PENDING, **given: object) -> Task:
    """Move partition 0 from node 0 to node 3; by default its deadline has passed."""
    made = Task("m", "u", TaskKind.MOVE, "1", source=name(0), target=name(3), deadline_seconds=LIMIT)
    if state is not MoveState.PENDING:
        made = replace(made, phase=MigrationPhase.RUNNING, records=(Record(MOVE, state),))
    return replace(made, **{"progressed_at": LONG_AGO, **given})  # type: ignore[arg-type]


def decide(found: Facts, one: Task) -> TaskDecision:
    return decide_task(replace(found, tasks=(one,)), one)


def run(found: Facts, one: Task, passes: int = 3) -> TaskDecision:
    """Several passes, each with what the last one recorded."""
    decision = decide(found, one)
    for _ in range(passes - 1):
        one = decision.task
        decision = decide(found, one)
    return decision


def test_one_that_cannot_begin_fails_after_its_deadline_and_says_why() -> None:
    decision = decide(seen({3: SILENT}), task())
    assert decision.task.phase is MigrationPhase.FAILED
    assert "NodeSilent: it got no further for 60 s" in decision.task.failure
    assert (decision.reason, decision.message) == ("Failed", decision.task.failure)


def test_before_its_deadline_it_waits() -> None:
    decision = decide(seen({3: SILENT}), task(progressed_at=NOW - LIMIT + 1))
    assert decision.task.phase is MigrationPhase.PENDING
    assert not decision.task.failure


def test_without_a_deadline_it_waits_without_end() -> None:
    assert decide(seen({3: SILENT}), task(deadline_seconds=0)).task.phase is MigrationPhase.PENDING


def test_the_first_observation_of_it_begins_the_count() -> None:
    assert decide(seen({3: SILENT}), task(progressed_at=None)).task.progressed_at == NOW


def test_one_whose_nodes_do_not_exist_fails_too() -> None:
    decision = decide(seen(), task(target="9-9"))
    assert decision.task.phase is MigrationPhase.FAILED
    assert "there is no storage node 9-9" in decision.task.failure


@pytest.mark.parametrize("given", [{"approved": False}, {"dry_run": True}], ids=["not approved", "dry run"])
def test_what_waits_for_a_person_does_not_fail(given: dict[str, object]) -> None:
    decision = decide(seen({3: SILENT}), replace(task(), **given))  # type: ignore[arg-type]
    assert decision.task.phase is MigrationPhase.PLANNED
    assert decision.task.progressed_at is None


def test_what_waits_for_another_migration_does_not_fail() -> None:
    other = replace(task(MoveState.COPYING), name="a")
    one = task()
    found = replace(seen(), tasks=(other, one))
    decision = decide_task(found, one)
    assert decision.task.phase is not MigrationPhase.FAILED
    assert decision.task.progressed_at is None


def test_what_is_under_way_is_taken_back_first() -> None:
    """Recorded, then the copy on the target goes, then it has failed."""
    offline = answer(replica(available=False, session_id=-1, low_water_mark=-1, max_transaction_id=-1))
    first = decide(seen({0: SILENT, 1: SILENT, 2: SILENT, 3: offline}), task(MoveState.TARGET_OFFLINE))
    assert first.task.phase is MigrationPhase.CANCELLING
    assert "NoSource" in first.task.failure
    assert not first.actions
    back = decide(seen({3: offline}), first.task)
    assert [type(one) for one in back.actions] == [RemoveOnNode]
    done = run(seen(), back.task, 2)
    assert done.task.phase is MigrationPhase.FAILED
    assert [one.state for one in done.task.records] == [MoveState.CANCELLED]
    assert done.task.failure == first.task.failure


def test_what_cannot_be_taken_back_either_is_left() -> None:
    """The target is gone for good: its partial copy has no vote."""
    decision = run(seen({3: SILENT}), task(MoveState.TARGET_OFFLINE))
    assert decision.task.phase is MigrationPhase.FAILED
    assert [one.state for one in decision.task.records] == [MoveState.FAILED]
    assert decision.task.failure.endswith("partition 0 is left as it was")


def test_past_the_point_of_no_return_it_is_left_and_a_retry_finishes_it() -> None:
    both = (0, 1, 2, 3)
    behind = seen({3: answer(replica(session_id=SESSION - 1))}, assigned=both)
    failed = run(behind, task(MoveState.ASSIGNED)).task
    assert failed.phase is MigrationPhase.FAILED
    assert [one.state for one in failed.records] == [MoveState.FAILED]
    assert decide(seen(assigned=both), failed).task == failed, "nobody asked for it"
    again = decide(seen(assigned=both), replace(failed, retry="1")).task
    assert (again.phase, again.failure, again.retry) == (MigrationPhase.PENDING, "", "")
    forward = decide(seen(assigned=both), again)
    assert [type(one) for one in forward.actions] == [UnassignInZooKeeper]


def test_a_retry_waits_for_who_is_at_work() -> None:
    failed = task(MoveState.FAILED, phase=MigrationPhase.FAILED, failure="why", retry="1")
    other = replace(task(MoveState.COPYING), name="z")
    decision = decide_task(replace(seen(), tasks=(failed, other)), failed)
    assert decision.task == failed
    assert "migration z has a partition under way" in decision.message


def test_a_copy_that_runs_is_not_given_up() -> None:
    job = JobView("j", "m", 0, name(0), name(3), "active", NOW)
    offline = answer(replica(available=False, session_id=-1, low_water_mark=1))
    found = seen({3: offline}, jobs={"copy-m-0": job})
    assert decide(found, task(MoveState.COPYING)).task.phase is MigrationPhase.RUNNING


def test_a_copy_that_fails_again_and_again_ends_too() -> None:
    """What goes back to an earlier step does not count as progress."""
    offline = answer(replica(available=False, session_id=-1, low_water_mark=1))
    one = replace(task(MoveState.COPYING), records=(Record(MOVE, MoveState.COPYING, copied_txid=1),))
    failed = JobView("j", "m", 0, name(0), name(3), "failed", NOW - 1, ended_at=NOW - 1, message="no")
    decision = decide(seen({3: offline}, jobs={"copy-m-0": failed}), one)
    assert "CopyFailed" in decision.task.failure


def test_one_whose_target_left_holds_up_no_other() -> None:
    """It was at work before: partition 1 is done, and its target is in the specification no longer."""
    first = replace(task(progressed_at=NOW), phase=MigrationPhase.RUNNING, target="0-9")
    second = Task("n", "v", TaskKind.MOVE, "2", source=name(0), target=name(3))
    decision = decide_task(replace(seen(), tasks=(first, second)), second)
    assert [one.state for one in decision.task.records] == [MoveState.STARTED]


def test_progress_begins_the_count_anew() -> None:
    offline = answer(replica(available=False, session_id=-1, low_water_mark=4))
    job = JobView("j", "m", 0, name(0), name(3), "active", NOW)
    one = replace(
        task(), phase=MigrationPhase.RUNNING, records=(Record(MOVE, MoveState.COPYING, copied_txid=1),)
    )
    found = seen({3: offline}, jobs={"copy-m-0": job})
    assert isinstance(found.kube, KubeView)
    assert decide(found, one).task.progressed_at == NOW
