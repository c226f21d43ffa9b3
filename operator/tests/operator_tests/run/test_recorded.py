"""What waits for nothing but a record in a status is done in the pass that writes it, on the same look; never
before it is written, and never on an old look."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from operator_tests.run.test_refusals import FORBIDDEN, Stage, stage, waltz_cluster, waltz_migration
from operator_tests.run.test_resting import Counted, counted
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeConflictError, KubeUnavailableError
from waltz_operator.model.actions import ApplyObject, Plan, SetStatus
from waltz_operator.model.snapshot import ObjectKey, Snapshot
from waltz_operator.plan.builder import AT_ONCE, SOON
from waltz_operator.run.process import PurePlanner
from waltz_operator.run.recorded import MAX_AGE_SECONDS, MAX_RECORDS

STEP = ("ConfigMap", "step")
BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "step", "namespace": "demo"}}
BUDGET = ObjectKey("PodDisruptionBudget", "budget")
BUDGET_BODY = {**BODY, "kind": BUDGET.kind, "metadata": {"name": BUDGET.name, "namespace": "demo"}}
MIGRATION = ("WaltzMigration", "m1")


class Planner(PurePlanner):
    """Makes an object once it has recorded so; or records one thing after another (`count`)."""

    soon = AT_ONCE
    late_seconds = 0.0
    count = False
    stage: Stage

    def plan_migration(self, name: str, snapshot: Snapshot, *_: Any) -> Plan:
        last = snapshot.migrations[0]
        if last.status.message and not self.count:
            made = STEP in self.stage.server.objects
            step = ApplyObject(ObjectKey(*STEP), BODY, "it is not there")
            return Plan(() if made else (step,), last.status)
        self.stage.now += self.late_seconds
        status = last.status.model_copy(update={"message": f"{last.status.message}."})
        about = ObjectKey("WaltzMigration", name)
        write = SetStatus(about, last.metadata.uid, last.metadata.resource_version, status)
        return Plan((write,), status, requeue_seconds=self.soon)


@asynccontextmanager
async def settled(migration: Object) -> AsyncIterator[tuple[Stage, Counted, Planner]]:
    """A cluster that has what it needs, without ZooKeeper; then the migration comes."""
    planner = Planner()
    async with stage(waltz_cluster(), planner=planner) as found:
        planner.stage = found
        found.loop._wall_clock = lambda: found.now
        await found.settle(10)
        server = counted(found)
        server.objects[MIGRATION] = migration
        server.writes.clear()
        yield found, server, planner


def looks(server: Counted) -> int:
    return server.asked.count("get WaltzCluster")


def writes(server: Counted) -> list[str]:
    return [verb for verb, kind, name in server.writes if (kind, name) in (MIGRATION, STEP)]


async def test_a_step_that_waits_for_its_record_is_done_on_the_same_look() -> None:
    async with settled(waltz_migration("m1")) as (found, server, _):
        result = await found.one_pass()
        assert writes(server) == ["status", "apply"]
        assert looks(server) == 1
        assert result.wrote


async def test_a_migration_that_is_new_begins_in_the_pass_that_puts_the_finalizer() -> None:
    migration = waltz_migration("m1")
    del migration["metadata"]["finalizers"]
    async with settled(migration) as (found, server, _):
        await found.one_pass()
        assert writes(server)[1:] == ["status", "apply"]
        assert server.objects[MIGRATION]["metadata"]["finalizers"]
        assert looks(server) == 1


async def test_nothing_is_done_without_its_record() -> None:
    async with settled(waltz_migration("m1")) as (found, server, _):
        server.refuse[MIGRATION] = KubeConflictError("it is another one by now", status=409)
        await found.one_pass()
        assert writes(server) == ["status"], "what was refused is not tried again in this pass"
        assert STEP not in server.objects


async def test_a_step_that_waits_for_more_than_its_record_is_left_to_the_next_pass() -> None:
    async with settled(waltz_migration("m1")) as (found, server, planner):
        planner.soon = SOON
        await found.one_pass()
        assert writes(server) == ["status"]


async def test_an_old_look_is_not_used_again() -> None:
    async with settled(waltz_migration("m1")) as (found, server, planner):
        planner.late_seconds = MAX_AGE_SECONDS + 1.0
        await found.one_pass()
        assert STEP not in server.objects
        await found.one_pass()
        assert STEP in server.objects


async def test_a_look_is_as_old_as_its_first_answer() -> None:
    """A silent node holds up the last one."""
    async with settled(waltz_migration("m1")) as (found, server, _):

        def slow() -> None:
            found.now += MAX_AGE_SECONDS

        server.during = slow  # before each list is answered
        await found.one_pass()
        assert writes(server) == ["status"]
        server.during = None
        await found.one_pass()
        assert STEP in server.objects


async def test_records_of_one_turn_are_bounded() -> None:
    async with settled(waltz_migration("m1")) as (found, server, planner):
        planner.count = True
        await found.one_pass()
        assert writes(server) == ["status"] * (1 + MAX_RECORDS)


class OneAtATime(PurePlanner):
    """A migration is begun, which is recorded, when no other one is under way."""

    def plan_migration(self, name: str, snapshot: Snapshot, *_: Any) -> Plan:
        mine = next(one for one in snapshot.migrations if one.metadata.name == name)
        if any(one.status.message for one in snapshot.migrations):
            return Plan((), mine.status)
        status = mine.status.model_copy(update={"message": "under way"})
        about = ObjectKey("WaltzMigration", name)
        write = SetStatus(about, mine.metadata.uid, mine.metadata.resource_version, status)
        return Plan((write,), status, requeue_seconds=AT_ONCE)


class LosesAnAnswer(Counted):
    """Writes the status of m1, and its first answer is lost."""

    lost = False

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        done = await super().replace(obj, status=status)
        if obj["metadata"]["name"] == "m1" and not self.lost:
            self.lost = True
            raise KubeUnavailableError("the connection was reset")
        return done


@pytest.mark.parametrize("server_class", [Counted, LosesAnAnswer])
async def test_the_next_migration_is_not_begun_when_the_record_of_another_one_is_in_doubt(
    server_class: type[Counted],
) -> None:
    async with stage(waltz_cluster(), planner=OneAtATime()) as found:
        found.loop._wall_clock = lambda: found.now
        await found.settle(10)
        server = counted(found)
        server.__class__ = server_class
        for name in ("m1", "m2"):
            server.objects["WaltzMigration", name] = waltz_migration(name)
        await found.settle(3)
        statuses = {name: server.objects["WaltzMigration", name].get("status") or {} for name in ("m1", "m2")}
        assert [name for name, status in statuses.items() if status.get("message")] == ["m1"]


async def test_a_migration_decides_on_a_look_of_its_own_when_an_object_was_left_out() -> None:
    """What became of an object whose write failed does not show in the look of the pass."""
    service = ("Service", "ledger-zookeeper")
    async with settled(waltz_migration("m1")) as (found, server, _):
        del server.objects[service]
        server.refuse[service] = FORBIDDEN
        await found.one_pass()  # writes the status
        await found.one_pass()
        server.objects[MIGRATION] = waltz_migration("m1")
        del server.objects[STEP]
        server.asked.clear()
        await found.one_pass()
        assert STEP in server.objects
        assert looks(server) == 2


class Counts(PurePlanner):
    """Records of a cluster one number after the other, each plan with a disruption budget that differs in
    the look of the pass; then the teardown is complete. A failure is reported as `FAILED`."""

    last = 3
    FAILED = 99

    def plan(self, snapshot: Snapshot) -> Plan:
        cluster = snapshot.cluster
        number = cluster.status.observed_generation
        if snapshot.failed is None and number >= self.last:
            return Plan((), cluster.status, teardown_complete=True)
        number = number + 1 if snapshot.failed is None else self.FAILED
        status = cluster.status.model_copy(update={"observed_generation": number})
        metadata = cluster.metadata
        about = ObjectKey("WaltzCluster", metadata.name)
        write = SetStatus(about, metadata.uid, metadata.resource_version, status)
        budget = () if metadata.deleting else (ApplyObject(BUDGET, BUDGET_BODY, "it differs", "uid-of-it"),)
        return Plan((*budget, write), status, requeue_seconds=AT_ONCE)


class Strict(Counted):
    """A status whose version is not the newest is a conflict; finalizers cannot be written."""

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        newest = self.objects[obj["kind"], obj["metadata"]["name"]]["metadata"]["resourceVersion"]
        if obj["metadata"]["resourceVersion"] != newest:
            raise KubeConflictError(f"the newest version is {newest}", status=409)
        return await super().replace(obj, status=status)

    async def merge_patch(self, *where: Any, status: bool = False) -> Object:
        raise KubeUnavailableError("no answer within 10 s")


async def test_a_disruption_budget_is_written_once_in_a_pass_with_several_records() -> None:
    async with stage(waltz_cluster(), planner=Counts()) as found:
        found.loop._wall_clock = lambda: found.now
        await found.one_pass()
        assert [verb for verb, *_ in found.server.writes] == ["apply", "status", "status", "status"]


async def test_a_failure_after_several_records_is_reported_on_the_version_that_they_left() -> None:
    body = waltz_cluster()
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    async with stage(body, planner=Counts()) as found:
        found.loop._wall_clock = lambda: found.now
        counted(found).__class__ = Strict
        result = await found.one_pass()
        assert "no answer within 10 s" in result.error
        status = found.server.objects["WaltzCluster", "ledger"]["status"]
        assert status["observedGeneration"] == Counts.FAILED
