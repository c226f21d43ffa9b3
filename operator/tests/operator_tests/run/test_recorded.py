"""What waits for nothing but a record in a status is done in the pass that writes it, on the same look; never
before it is written, and never on an old look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from operator_tests.run.test_refusals import Stage, stage, waltz_cluster, waltz_migration
from operator_tests.run.test_resting import Counted, counted
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeConflictError
from waltz_operator.model.actions import ApplyObject, Plan, SetStatus
from waltz_operator.model.snapshot import ObjectKey, Snapshot
from waltz_operator.plan.builder import AT_ONCE, SOON
from waltz_operator.run.process import PurePlanner
from waltz_operator.run.recorded import MAX_AGE_SECONDS, MAX_RECORDS

STEP = ("ConfigMap", "step")
BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "step", "namespace": "demo"}}
MIGRATION = ("WaltzMigration", "m1")


class Planner(PurePlanner):
    """Makes an object once it has recorded so; or records one thing after another (`count`)."""

    soon = AT_ONCE
    late_seconds = 0.0
    count = False
    stage: Stage

    def plan_migration(self, name: str, snapshot: Snapshot) -> Plan:
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


async def test_records_of_one_turn_are_bounded() -> None:
    async with settled(waltz_migration("m1")) as (found, server, planner):
        planner.count = True
        await found.one_pass()
        assert writes(server) == ["status"] * (1 + MAX_RECORDS)
