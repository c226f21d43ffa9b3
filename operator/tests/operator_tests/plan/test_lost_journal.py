"""A node whose data and journal do not belong together: a lost disk, given up by a person's word where others
prove that they can do without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan import cluster
from operator_tests.plan.cluster import NODES, answer, facts, identity, name, replica
from waltz_operator.api.migration import MigrationPhase, MoveState
from waltz_operator.model.actions import DeletePod, DeletePVC, GiveUpVolume
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, NodeView, PodView, PVCView, Unknown
from waltz_operator.model.task import Record, Task, TaskKind
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.migration import TaskDecision, decide_task
from waltz_operator.plan.preconditions import still_so
from waltz_operator.plan.safety_gates import Allowed, Denied
from waltz_operator.plan.status.stalled import stands_still

SILENT = Unknown("no route")
LOST = 2
DATA = identity(LOST).pvc
JOURNAL = "journal-s2-0"
CRASHED = replace(cluster.pod(ready=False, stuck="CrashLoopBackOff"), journal_lost=True)
REFILL = Task("m", "u", TaskKind.REPLACE, "1", source=name(LOST), deadline_seconds=60)


def seen(
    says: dict[int, NodeView | Unknown] | None = None,
    *tasks: Task,
    pod: PodView = CRASHED,
    assigned: tuple[int, ...] = NODES,
    going: bool = False,
) -> Facts:
    """Node 2 has a volume for its journal, and does not start. `going`: its data volume is on its way out."""
    kube = cluster.kube({LOST: pod})
    claims = {**kube.pvcs, JOURNAL: PVCView("w", 1, 1, group=str(LOST), node="0")}
    claims[DATA] = replace(claims[DATA], deleting=going)
    found = facts(replace(kube, pvcs=claims), {LOST: SILENT, **(says or {})}, assigned=assigned)
    wanted = tuple(one._replace(journal_pvc=f"journal-{one.pod}") for one in found.desired.nodes)
    desired = replace(found.desired, nodes=wanted, by_connect={one.connect_string: one for one in wanted})
    return replace(found, desired=desired, tasks=tasks)


def refill(found: Facts, task: Task = REFILL) -> TaskDecision:
    return decide_task(replace(found, tasks=(task,)), task)


def test_it_is_a_lost_disk_that_waits_for_a_persons_word() -> None:
    decision = decide(seen(), cluster.rendered())
    (blocked,) = [one for one in decision.blocked if one.reason is Reason.DISK_LOST]
    assert "replace" in blocked.text
    assert stands_still(seen(), blocked)
    assert not any(isinstance(one, GiveUpVolume | DeletePod) for one in decision.actions)


def test_both_volumes_are_given_up_before_the_pod_goes() -> None:
    decision = refill(seen())
    lines = [(type(one), getattr(one, "name", "")) for one in decision.actions]
    assert lines == [(GiveUpVolume, DATA), (GiveUpVolume, JOURNAL), (DeletePod, identity(LOST).pod)]
    assert decision.task.phase is not MigrationPhase.COMPLETED
    found = seen(None, REFILL)
    assert all(isinstance(still_so(found, one), Allowed) for one in decision.actions)


def test_who_continues_after_a_crash_does_the_rest() -> None:
    decision = refill(seen(going=True))
    assert [getattr(one, "name", "") for one in decision.actions] == [JOURNAL, identity(LOST).pod]


@pytest.mark.parametrize("assigned", [NODES, (0, 1)])
def test_one_that_is_lost_again_while_it_is_filled_is_given_up_again(assigned: tuple[int, ...]) -> None:
    """Else the refill that is under way waits for a node that cannot start, and nothing says why."""
    record = Record(Move(MoveKind.REFILL, 0, name(LOST), name(LOST)), MoveState.STARTED)
    task = replace(REFILL, phase=MigrationPhase.RUNNING, records=(record,))
    found = seen(None, task, assigned=assigned)
    given_up = [one for one in refill(found, task).actions if isinstance(one, GiveUpVolume)]
    assert [one.name for one in given_up] == [DATA, JOURNAL]
    assert all(isinstance(still_so(found, one), Allowed) for one in given_up)
    for stopped in (replace(task, cancel=True), replace(task, failure="late")):
        assert not any(isinstance(one, GiveUpVolume) for one in refill(found, stopped).actions)
    without_proof = seen({1: SILENT}, task)
    assert not any(isinstance(one, GiveUpVolume) for one in refill(without_proof, task).actions)


@pytest.mark.parametrize(
    ("says", "pod"),
    [
        ({1: SILENT}, CRASHED),
        ({1: answer(replica(available=False))}, CRASHED),
        ({1: answer(replica(session_id=cluster.SESSION - 1))}, CRASHED),
        ({LOST: answer(replica())}, CRASHED),
        ({}, replace(CRASHED, journal_lost=False)),
        ({}, replace(CRASHED, ready=True)),
    ],
)
def test_safety_a6_nothing_is_given_up_without_proof(
    says: dict[int, NodeView | Unknown], pod: PodView
) -> None:
    found = seen(says, REFILL, pod=pod)
    decision = refill(found)
    assert not any(isinstance(one, GiveUpVolume | DeletePod) for one in decision.actions)
    answers = [still_so(found, GiveUpVolume(one, "v", "proof")) for one in (DATA, JOURNAL)]
    assert all(isinstance(one, Denied) for one in answers)


@pytest.mark.parametrize(
    "task",
    [
        replace(REFILL, approved=False),
        replace(REFILL, dry_run=True),
        replace(REFILL, cancel=True),
        replace(REFILL, phase=MigrationPhase.FAILED),
        replace(REFILL, source=name(1)),
        replace(REFILL, kind=TaskKind.DRAIN),
    ],
)
def test_nothing_is_given_up_without_a_persons_word(task: Task) -> None:
    found = seen(None, task)
    assert not any(isinstance(one, GiveUpVolume) for one in refill(found, task).actions)
    assert isinstance(still_so(found, GiveUpVolume(DATA, "v", "proof")), Denied)


def test_of_two_copies_none_is_given_up() -> None:
    """The other one alone is no quorum of both."""
    found = seen(None, REFILL, assigned=(1, 2))
    assert isinstance(still_so(found, GiveUpVolume(DATA, "v", "proof")), Denied)


def test_a_volume_of_a_well_node_is_never_given_up() -> None:
    found = seen(None, REFILL)
    answer_ = still_so(found, GiveUpVolume(identity(1).pvc, "v", "proof"))
    assert isinstance(answer_, Denied)
    assert isinstance(still_so(found, GiveUpVolume("data-other-0", "v", "proof")), Denied)


def test_a_node_that_does_not_answer_is_not_completed() -> None:
    """What it has lost is not known; before, such a migration was reported as completed at once."""
    found = seen(pod=cluster.pod(ready=False))
    decision = refill(found)
    assert decision.task.phase is not MigrationPhase.COMPLETED
    assert decision.reason is Reason.NODE_SILENT
    late = replace(REFILL, progressed_at=cluster.NOW - 61)
    assert refill(found, late).task.phase is MigrationPhase.FAILED


def test_an_empty_node_is_filled_as_any_lost_disk() -> None:
    found = seen({LOST: answer()}, pod=cluster.pod())
    decision = refill(found)
    assert [record.move.partition for record in decision.task.under_way] == [0]


def test_a_volume_of_the_journal_grows_with_a_restart() -> None:
    found = seen({LOST: answer(replica())}, pod=cluster.pod())
    assert isinstance(found.kube, KubeView)
    grown = {**found.kube.pvcs, JOURNAL: replace(found.kube.pvcs[JOURNAL], resize_pending_since=0.0)}
    decision = decide(replace(found, kube=replace(found.kube, pvcs=grown)), cluster.rendered())
    (restart,) = [one for one in decision.actions if isinstance(one, DeletePod)]
    assert (restart.name, "grows" in restart.reason) == (identity(LOST).pod, True)


@pytest.mark.parametrize("left", [(DATA, JOURNAL), (JOURNAL,)])
def test_both_volumes_of_a_node_that_has_left_are_reclaimed(left: tuple[str, ...]) -> None:
    found = facts(nodes=(0, 1), assigned=(0, 1))
    gone = identity(LOST)._replace(journal_pvc=JOURNAL)
    claims = {one: PVCView("v", 1, 1, group=str(LOST), node="0") for one in left}
    assert isinstance(found.kube, KubeView)
    kube = replace(found.kube, pvcs={**found.kube.pvcs, **claims})
    found = replace(found, kube=kube, leaving=(gone,), desired=replace(found.desired, reclaim_delete=True))
    decision = decide(found, cluster.rendered((0, 1)))
    assert [one.name for one in decision.actions if isinstance(one, DeletePVC)] == list(left)
    assert all(isinstance(still_so(found, DeletePVC(one, "v", "proof")), Allowed) for one in left)
