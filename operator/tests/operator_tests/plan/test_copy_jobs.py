"""A copy job whose pod never runs, and one that fails: both are told, and a failed one is made again after a
pause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from operator_tests.plan.cluster import KEY, NOW, facts, kube, name, rendered
from waltz_operator.api.migration import MigrationPhase, MoveState
from waltz_operator.model.actions import DeleteJob, EmitEvent
from waltz_operator.model.desired import Memory, Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import NOT_STARTED, JobView, KubeView, NodeReplica, NodeView, ObjectKey
from waltz_operator.model.task import Record, Task, TaskKind
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.migration import TaskDecision, decide_task
from waltz_operator.plan.move_steps import COPY_PAUSE_SECONDS, COPY_START_SECONDS, ChangeOptions, next_step
from waltz_operator.plan.replica_changes import tidy_jobs
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of
from waltz_operator.run import read_kubernetes

FOUR = (0, 1, 2, 3)
START = "2026-01-01T00:00:00Z"
START_SECONDS = 1767225600.0
MOVE = Move(MoveKind.MOVE, 0, name(2), name(3))
ADD = Move(MoveKind.ADD, 0, None, name(3), 1.0)
LADDER = ChangeOptions("copy", "m", about=ObjectKey("WaltzMigration", "m"))
ACTIVE = JobView("j", "m", 0, name(2), name(3), "active", NOW - 500.0)
IMAGE = replace(ACTIVE, waits="ErrImagePull", waits_since=NOW - COPY_START_SECONDS)
FAILED = replace(ACTIVE, state="failed", message="no route to n2", ended_at=NOW - 1.0)


def job(pods: list[dict[str, Any]], **status: Any) -> JobView:
    """A Job as the API server tells of it."""
    annotations = {"waltz.dev/migration": "m", "waltz.dev/partition": "0", "waltz.dev/target": "n3:1"}
    body = {
        "metadata": {"uid": "j", "annotations": annotations, "creationTimestamp": START},
        "status": status,
    }
    found = read_kubernetes.job(body, pods)
    assert found is not None
    return found


def pod(state: Mapping[str, Any], created: str = START, *, deleting: bool = False) -> dict[str, Any]:
    metadata = {"creationTimestamp": created, "labels": {"app.kubernetes.io/component": "migration"}}
    if deleting:
        metadata["deletionTimestamp"] = START
    proxy = {"name": "proxy", "state": {"running": {}}}
    return {"metadata": metadata, "status": {"containerStatuses": [proxy, {"name": "copy", "state": state}]}}


WAITING = {"waiting": {"reason": "ErrImagePull"}}


@pytest.mark.parametrize(
    ("pods", "waits"),
    [
        ([pod({"running": {"startedAt": START}})], ""),
        ([pod({"terminated": {"exitCode": 1}})], ""),
        ([pod(WAITING)], "ErrImagePull"),
        ([pod({"waiting": {"reason": "ContainerCreating"}})], NOT_STARTED),
        ([], "it has no pod; a quota or an admission rule may be in the way"),
        ([pod({"running": {}}, deleting=True), pod(WAITING)], "ErrImagePull"),
    ],
)
def test_why_a_job_does_not_run_is_read_from_its_pods(pods: list[dict[str, Any]], waits: str) -> None:
    assert job(pods).waits == waits


def test_since_when_is_read_too() -> None:
    later = "2026-01-01T00:01:00Z"
    assert job([]).waits_since == START_SECONDS
    assert job([], startTime=later).waits_since == START_SECONDS + 60
    assert job([pod(WAITING, later)], startTime=START).waits_since == START_SECONDS + 60
    failure = {"type": "Failed", "status": "True", "lastTransitionTime": later, "message": "gone"}
    failed = job([], startTime=START, conditions=[failure])
    assert (failed.state, failed.waits, failed.ended_at) == ("failed", "", START_SECONDS + 60)
    well = {"type": "Complete", "status": "True", "lastTransitionTime": later}
    assert job([], startTime=START, conditions=[well]).ended_at == START_SECONDS + 60


DONE = '{"verifiedThrough": 5, "checksum": "ab", "copied": 6}'


def ended(code: int, message: str = "", at: str = START, *, deleting: bool = False) -> dict[str, Any]:
    """A pod in which our container has ended and a proxy runs on."""
    return pod({"terminated": {"exitCode": code, "message": message, "finishedAt": at}}, deleting=deleting)


def test_a_job_is_over_when_our_container_is() -> None:
    """Kubernetes ends a Job when all containers have ended; a proxy that a webhook has put in never does."""
    later = "2026-01-01T00:01:00Z"
    found = job([ended(0, DONE, later)], active=1, startTime=START)
    assert (found.state, found.verified_through, found.checksum) == ("succeeded", 5, "ab")
    assert (found.ended_at, found.waits, found.message) == (START_SECONDS + 60, "", "")
    found = job([ended(1, '{"error": "no route to n2"}', later)], active=1, startTime=START)
    assert (found.state, found.message, found.ended_at) == ("failed", "no route to n2", START_SECONDS + 60)
    assert job([ended(137)], active=1).state == "failed"
    assert job([ended(143, deleting=True), ended(0, DONE)]).state == "succeeded"


@pytest.mark.parametrize("state", [{"running": {"startedAt": START}}, WAITING, {}])
@pytest.mark.parametrize("deleting", [False, True])
def test_a_job_is_not_over_while_our_container_runs_or_may_begin(
    state: Mapping[str, Any], deleting: bool
) -> None:
    assert job([ended(1), pod(state, deleting=deleting)], active=1).state == "active"
    assert job([pod(state, deleting=deleting)], active=1).state == "active"
    assert job([], active=1).state == "active"


def look(found: JobView, at: str = "copy") -> Facts:
    """One look during the change, with the job of this name; the target has the partition, offline."""
    offline = NodeReplica(False, max_transaction_id=-1)
    view = replace(kube(nodes=FOUR), jobs={at: found})
    return facts(view, {3: NodeView({0: offline}, NOW)}, nodes=FOUR)


@pytest.mark.parametrize("found", [ACTIVE, replace(IMAGE, waits_since=NOW - COPY_START_SECONDS + 1)])
def test_a_copy_that_runs_or_is_about_to_is_waited_for(found: JobView) -> None:
    step = next_step(look(found), MOVE, LADDER)
    assert (step.state, step.actions, step.blocked) == (MoveState.COPYING, (), None)


def test_a_copy_whose_pod_does_not_start_is_told() -> None:
    step = next_step(look(IMAGE), MOVE, LADDER)
    assert (step.state, step.actions) == (MoveState.COPYING, ())
    assert step.blocked is not None
    assert step.blocked.reason == "PodStuck"
    assert step.message == "partition 0: copy job copy does not start: ErrImagePull"


def test_a_copy_that_failed_is_told_and_rests() -> None:
    step = next_step(look(FAILED), MOVE, LADDER)
    assert (step.state, step.actions) == (MoveState.TARGET_OFFLINE, ())
    assert step.blocked is not None
    assert step.blocked.reason == "CopyFailed"
    assert step.message == "partition 0: the copy job failed: no route to n2"


@pytest.mark.parametrize("ended", [NOW - COPY_PAUSE_SECONDS, 0.0])
def test_then_it_is_made_again_with_an_event(ended: float) -> None:
    event, deletion = next_step(look(replace(FAILED, ended_at=ended)), MOVE, LADDER).actions
    text = "partition 0: the copy job failed: no route to n2; it is tried again"
    assert event == EmitEvent(LADDER.about or ObjectKey("", ""), "CopyFailed", text, "Warning")
    assert deletion == DeleteJob("copy", "j", "it failed: no route to n2")


def test_a_report_that_cannot_be_read_yet_is_waited_for_a_while() -> None:
    """The pods may have been listed before the Job was."""
    ended = replace(ACTIVE, state="succeeded", ended_at=NOW - 1.0)
    step = next_step(look(ended), MOVE, LADDER)
    assert (step.state, step.actions, step.blocked) == (MoveState.COPYING, (), None)
    (deletion,) = next_step(look(replace(ended, ended_at=NOW - COPY_PAUSE_SECONDS)), MOVE, LADDER).actions
    assert isinstance(deletion, DeleteJob)


def test_the_migration_says_so_and_its_event_is_about_it() -> None:
    task = Task("m", "u", TaskKind.DRAIN, "1", source=name(2), records=(Record(MOVE, MoveState.COPYING),))

    def decided(found: JobView) -> TaskDecision:
        return decide_task(look(found, "copy-m-0"), task)

    assert decided(IMAGE).reason == "PodStuck"
    assert [one.reason for one in decided(FAILED).blocked] == ["CopyFailed"]
    event = decided(replace(FAILED, ended_at=0.0)).actions[0]
    assert isinstance(event, EmitEvent)
    assert event.about == ObjectKey("WaltzMigration", "m")


def cluster(found: JobView) -> Facts:
    """The operator's own change, with this copy job."""
    return replace(look(replace(found, migration="scale"), "copy-scale-0"), memory=Memory(KEY, ADD))


def condition(found: Facts, kind: str) -> tuple[str, str]:
    decision = decide(found, rendered(FOUR))
    told_ = conditions(found, decision, health_of(found), (), (), 1)
    one = next(one for one in told_ if one.type == kind)
    return one.status, one.reason


def test_the_cluster_says_so_when_the_change_is_its_own() -> None:
    for found, reason, progress in (
        (IMAGE, "PodStuck", "False"),
        (replace(IMAGE, waits="Unschedulable"), "PodStuck", "True"),
        (replace(IMAGE, waits=NOT_STARTED), "PodStuck", "True"),
        (FAILED, "CopyFailed", "True"),
    ):
        assert condition(cluster(found), "Degraded") == ("True", reason)
        assert condition(cluster(found), "Progressing") == (progress, reason)
    decision = decide(cluster(replace(FAILED, ended_at=0.0)), rendered(FOUR))
    (event,) = [one for one in decision.actions if isinstance(one, EmitEvent)]
    assert event.about == ObjectKey("WaltzCluster", "c")


@pytest.mark.parametrize("phase", [MigrationPhase.COMPLETED, MigrationPhase.RUNNING])
def test_a_migration_with_the_name_of_the_clusters_own_jobs_takes_none_of_them_away(
    phase: MigrationPhase,
) -> None:
    """It would be made and deleted without end, and the change would never come to its end."""
    own = replace(ACTIVE, migration="scale")
    named = Task("scale", "u", TaskKind.REBALANCE, "1", phase=phase, deadline_seconds=60)
    found = facts(replace(kube(nodes=FOUR), jobs={"copy": own}), nodes=FOUR)
    changing = replace(found, tasks=(named,), memory=Memory(KEY, ADD))
    assert isinstance(changing.kube, KubeView)
    for memory, over in ((Memory(KEY), phase is MigrationPhase.COMPLETED), (Memory(KEY, ADD), False)):
        decision = Decision(memory)
        tidy_jobs(replace(changing, memory=memory), changing.kube, decision)
        assert bool(decision.actions) == over
