"""A step of a cluster that the API server refuses for good, a restart above all, holds up no migration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from operator_tests.run.test_refusals import FORBIDDEN, Stage, stage, waltz_cluster, waltz_migration
from waltz_operator.api.metadata import FINALIZER
from waltz_operator.kube.errors import KubeUnavailableError
from waltz_operator.model.actions import (
    Action,
    AssignInZooKeeper,
    DeleteJob,
    DeletePod,
    DeletePVC,
    DisownObject,
    Plan,
    RegisterNode,
    SetFinalizer,
    SetStatus,
    StartCopyJob,
)
from waltz_operator.model.snapshot import ObjectKey, Snapshot
from waltz_operator.plan.builder import LATER, SOON
from waltz_operator.plan.safety_gates import Allowed
from waltz_operator.run.apply import Outcome
from waltz_operator.run.process import PurePlanner

CLUSTER = ObjectKey("WaltzCluster", "ledger")
CLAIM = "data-ledger-storage-1-0-0"
RESTART = DeletePod("ledger-storage-1-0-0", "uid", "its template has changed", "all others are current")
STEPS: list[tuple[Action, tuple[str, str]]] = [
    (RESTART, ("Pod", RESTART.name)),
    (DeletePVC(CLAIM, "uid", "its node is gone"), ("PersistentVolumeClaim", CLAIM)),
    (DisownObject(ObjectKey("ConfigMap", "kept"), "uid", "it is to stay"), ("ConfigMap", "kept")),
    (DeleteJob("ledger-copy-old-0", "uid", "what it copied for is over"), ("Job", "ledger-copy-old-0")),
    (StartCopyJob("ledger-copy-0", "", 0, "a:1", 2, "b:1", 2, 0), ("Job", "ledger-copy-0")),
]
OF_MIGRATION = DeleteJob("ledger-copy-m1-0", "uid", "its copy is in service")


class Planner(PurePlanner):
    """The cluster has a step to do, and the migration another one until it is done (`copied`)."""

    step: Action | None = None
    complete = False
    stage: Stage

    def plan(self, snapshot: Snapshot) -> Plan:
        made = super().plan(snapshot)
        if self.step is None or snapshot.failed is not None:
            return made
        return Plan((self.step,), made.status, (), LATER, self.complete)

    def plan_migration(self, name: str, snapshot: Snapshot, *_: Any) -> Plan:
        made = super().plan_migration(name, snapshot, *_)
        if ("Job", OF_MIGRATION.name) not in self.stage.server.objects:
            return made
        return Plan((OF_MIGRATION, *made.actions), made.status, (), SOON)


@asynccontextmanager
async def settled(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stage, Planner]]:
    """A cluster that has what it needs; what is destructive is right. Then its step comes, and a migration
    with one."""
    monkeypatch.setattr("waltz_operator.run.apply.prove", lambda *_: Allowed("the test says so"))
    planner = Planner()
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "ledger-copy-0", "namespace": "demo"},
    }
    async with stage(waltz_cluster(), planner=planner, job=job) as found:
        planner.stage = found
        await found.settle(10)
        objects = found.server.objects
        objects["WaltzMigration", "m1"] = waltz_migration("m1")
        owners = [{"uid": objects[CLUSTER]["metadata"]["uid"]}]
        kept = {"name": "kept", "uid": "uid", "resourceVersion": "1", "ownerReferences": owners}
        objects["ConfigMap", "kept"] = {"kind": "ConfigMap", "metadata": kept}
        objects["Job", OF_MIGRATION.name] = {"kind": "Job", "metadata": {"name": OF_MIGRATION.name}}
        yield found, planner


@pytest.mark.parametrize(("step", "key"), STEPS, ids=[type(step).__name__ for step, _ in STEPS])
async def test_a_refused_step_holds_up_no_migration(
    step: Action, key: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with settled(monkeypatch) as (found, planner):
        planner.step, found.server.refuse[key] = step, FORBIDDEN
        first = await found.one_pass()
        assert ("Job", OF_MIGRATION.name) not in found.server.objects, "the migration had no turn"
        assert first.wrote
        result = await found.settle()
        assert found.conditions("WaltzMigration", "m1")["Blocked"]["reason"] == "ZooKeeperUnknown"
        degraded = found.conditions()["Degraded"]
        assert (degraded["status"], degraded["reason"]) == ("True", "RefusedChange")
        assert step.line in degraded["message"]
        assert step.line in result.left_out
        assert not result.error
        written = found.status_writes()
        await found.settle()
        assert found.status_writes() == written, "the status changes to and fro"


async def test_what_a_migration_does_after_a_refused_step_it_decides_on_its_own_observation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with settled(monkeypatch) as (found, planner):
        planner.step, found.server.refuse["Pod", RESTART.name] = RESTART, FORBIDDEN
        seen: list[float] = []
        planned = planner.plan_migration

        def noted(name: str, snapshot: Snapshot, *rest: Any) -> Plan:
            seen.append(snapshot.now)
            return planned(name, snapshot, *rest)

        clock = found.now

        async def observed(*names: str, observe: Any = found.loop._observer.observe) -> Any:
            found.now += 0.25
            return await observe(*names)

        monkeypatch.setattr(planner, "plan_migration", noted)
        monkeypatch.setattr(found.loop._observer, "observe", observed)
        await found.one_pass()
        assert found.now > clock
        assert seen[-1] > seen[0], "it was planned on what was seen before the step was tried"


async def test_a_refused_step_waits_on_a_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many passes a migration takes meanwhile. Another step does not wait for that."""
    async with settled(monkeypatch) as (found, planner):
        planner.step, found.server.refuse["Pod", RESTART.name] = RESTART, FORBIDDEN
        for _ in range(60):
            result = await found.one_pass()  # a second each
            assert RESTART.line in result.left_out
        tried = found.tries("Pod", RESTART.name)
        assert tried == 5, "after 0, 2, 6, 14 and 30 seconds"
        found.now += 61
        await found.one_pass()
        assert found.tries("Pod", RESTART.name) == tried + 1
        planner.step = replace(RESTART, uid="of the next pod")
        await found.one_pass()
        assert found.tries("Pod", RESTART.name) == tried + 2


async def test_a_write_whose_outcome_is_not_known_keeps_migrations_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pod may be on its way out all the same."""
    async with settled(monkeypatch) as (found, planner):
        planner.step = RESTART
        found.server.refuse["Pod", RESTART.name] = KubeUnavailableError("no answer within 10 s")
        for _ in range(3):
            result = await found.one_pass()
            assert "no answer" in result.error
        assert ("Job", OF_MIGRATION.name) in found.server.objects


@pytest.mark.parametrize(
    "step",
    [
        SetStatus(CLUSTER, "uid", "1", cast("Any", None)),
        SetFinalizer(CLUSTER, "uid", True),
        RegisterNode("a:1", 2, 0),
        AssignInZooKeeper({"a:1": (0,)}, 1),
    ],
)
def test_records_and_what_zookeeper_and_nodes_refuse_are_no_refused_steps(step: Action) -> None:
    """Everything depends on a record; the other writes are several, and some of them may have been made."""
    assert Outcome((), step, "no", retriable=False).refused is None
    assert Outcome((), RESTART, "no", retriable=False).refused == RESTART
    assert Outcome((), RESTART, "no", retriable=True).refused is None


async def test_a_deletion_does_not_end_while_a_step_of_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with settled(monkeypatch) as (found, planner):
        planner.step, planner.complete = RESTART, True
        found.server.objects[CLUSTER]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        found.server.refuse["Pod", RESTART.name] = FORBIDDEN
        result = await found.settle(3)
        assert not result.gone
        assert FINALIZER in found.server.objects[CLUSTER]["metadata"]["finalizers"]
        assert RESTART.line in result.left_out
