"""What the API server does not take, or the model cannot read, is said in the status, and does not hold up
what has nothing to do with it."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.resources.clusters import PLAIN, UID, merged
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import ConnectError
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.api.metadata import API_VERSION, FINALIZER
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import (
    KubeConflictError,
    KubeForbiddenError,
    KubeInvalidError,
    KubeUnavailableError,
)
from waltz_operator.model.actions import ApplyObject, Plan, StartCopyJob
from waltz_operator.model.snapshot import ObjectKey, Snapshot
from waltz_operator.run.apply import Applier
from waltz_operator.run.events import EventWriter
from waltz_operator.run.observe import Observer
from waltz_operator.run.process import PurePlanner
from waltz_operator.run.reconcile import PassResult, Reconciler
from waltz_operator.run.tls_files import TlsFiles
from waltz_operator.run.write_kubernetes import KubernetesWriter
from waltz_operator.run.zookeeper_sessions import Ensembles

FORBIDDEN = KubeForbiddenError("PATCH /api: services is forbidden", status=403)
BAD: dict[str, Any] = {"servers": {"config": {"server.graphite.prefix": ["a"]}}}


def waltz_cluster(**spec: Any) -> Object:
    metadata = {
        "name": "ledger", "namespace": "demo", "uid": UID, "generation": 3, "resourceVersion": "1", "finalizers": [FINALIZER],
    }  # fmt: skip
    plain = merged(
        PLAIN, {"zookeeper": {"managed": {"authentication": "None"}}}
    )  # no Secret is written first
    whole = {**copy.deepcopy(plain), "tls": {"mode": "Disabled"}, **spec}
    return {"apiVersion": API_VERSION, "kind": "WaltzCluster", "metadata": metadata, "spec": whole}


def waltz_migration(name: str, **spec: Any) -> Object:
    metadata = {
        "name": name, "namespace": "demo", "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1",
        "finalizers": [FINALIZER], "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
    }  # fmt: skip
    return {
        "apiVersion": API_VERSION, "kind": "WaltzMigration", "metadata": metadata,
        "spec": {"cluster": "ledger", "drain": {"node": "1-0"}, **spec},
    }  # fmt: skip


class Stage:
    """An operator without ZooKeeper on a small API server; its clock stands unless a test moves it."""

    def __init__(self, server: ObjectsKube, files: TlsFiles, planner: PurePlanner, job: Object) -> None:
        async def nobody(_: ZooKeeperSettings) -> ZooKeeperStore:
            raise ConnectError("nobody listens")

        self.server = server
        self.now = 1000.0
        observer = Observer(server, Ensembles(nobody), files, lambda: self.now)
        events = EventWriter(server, lambda: self.now, "test")
        hand = KubernetesWriter(server, events, lambda *_: job)
        applier = Applier(hand, cast("Any", None), observer.observe, observer.observe_copies, lambda: None)
        self.loop = Reconciler(observer, planner, applier, MagicMock(), 60.0)

    async def one_pass(self) -> PassResult:
        self.now += 1.0
        return await self.loop.reconcile("demo", "ledger")

    async def settle(self, passes: int = 6) -> PassResult:
        for _ in range(passes):
            result = await self.one_pass()
        return result

    def conditions(self, kind: str = "WaltzCluster", name: str = "ledger") -> dict[str, dict[str, Any]]:
        status = self.server.objects[kind, name].get("status") or {}
        return {one["type"]: one for one in status.get("conditions", ())}

    def status_writes(self) -> int:
        return sum(verb == "status" for verb, _, _ in self.server.writes)

    def tries(self, kind: str, name: str) -> int:
        return sum(one[1:] == (kind, name) for one in self.server.writes)

    def events(self) -> list[str]:
        return [one["note"] for (kind, _), one in self.server.objects.items() if kind == "Event"]


@asynccontextmanager
async def stage(
    *objects: Object, planner: PurePlanner | None = None, job: Object | None = None
) -> AsyncIterator[Stage]:
    files = TlsFiles()
    try:
        yield Stage(ObjectsKube(*objects), files, planner or PurePlanner(), job or {})
    finally:
        files.close()


async def test_a_refused_object_holds_up_nothing_else_and_is_said() -> None:
    async with stage(waltz_cluster()) as all_well, stage(waltz_cluster()) as refused:
        refused.server.refuse["Service", "ledger-zookeeper"] = FORBIDDEN
        await all_well.settle()
        await refused.settle()
        missing = set(all_well.server.objects) - set(refused.server.objects)
        assert missing == {("Service", "ledger-zookeeper")}
        degraded = refused.conditions()["Degraded"]
        assert (degraded["status"], degraded["reason"]) == ("True", "RefusedChange")
        assert "apply Service ledger-zookeeper" in degraded["message"]
        assert "forbidden" in degraded["message"]
        assert all_well.conditions()["Degraded"]["reason"] != "RefusedChange"
        refused.server.refuse.clear()
        await refused.settle(2)
        assert set(all_well.server.objects) == set(refused.server.objects)
        assert refused.conditions()["Degraded"]["reason"] != "RefusedChange"


async def test_what_rests_on_a_refused_object_is_not_made() -> None:
    """The StatefulSet would mount the ConfigMap, and is found by the Service, of somebody else."""
    for kind, name in (("ConfigMap", "ledger-zookeeper"), ("Service", "ledger-zookeeper-headless")):
        foreign = {"kind": kind, "metadata": {"name": name, "uid": "theirs"}, "data": {"a": "b"}}
        async with stage(waltz_cluster(), foreign) as refused:
            await refused.settle()
            assert ("StatefulSet", "ledger-zookeeper") not in refused.server.objects
            assert refused.server.objects[kind, name] == foreign
            assert ("ConfigMap", "ledger-server") in refused.server.objects
            assert f"{kind} {name} exists and does not belong" in refused.conditions()["Degraded"]["message"]


async def test_a_refused_object_at_rest_causes_no_status_writes_and_no_hot_loop() -> None:
    async with stage(waltz_cluster()) as refused:
        refused.server.refuse["Service", "ledger-zookeeper"] = FORBIDDEN
        await refused.settle()
        before, written = refused.conditions(), refused.status_writes()
        result = await refused.settle()
        assert refused.status_writes() == written
        assert refused.conditions() == before
        assert result.requeue_seconds >= 30.0
        assert not result.error
        assert "ledger-zookeeper" in result.left_out


async def test_a_secret_of_somebody_else_is_said_and_the_rest_goes_on() -> None:
    foreign = {"kind": "Secret", "metadata": {"name": "ledger-tls-storage", "uid": "theirs"}, "data": {}}
    async with stage(waltz_cluster(tls={"mode": "SelfSigned"}), foreign) as refused:
        await refused.settle(10)
        assert refused.server.objects["Secret", "ledger-tls-storage"] == foreign
        assert ("Secret", "ledger-tls-server") in refused.server.objects
        assert ("StatefulSet", "ledger-zookeeper") in refused.server.objects
        assert "Secret ledger-tls-storage exists" in refused.conditions()["Degraded"]["message"]
        writes = [one for one in refused.server.writes if one[1] != "Event"]
        result = await refused.one_pass()
        assert {one for one in refused.server.writes[len(writes):] if one[1] not in ("Event", "Secret")} == set()  # fmt: skip
        assert result.requeue_seconds >= 30.0


async def test_a_rotation_of_the_authority_that_is_refused_is_said_once() -> None:
    """Its second step comes when nothing else is to be done, and is part of the same status."""
    tls = {"mode": "SelfSigned", "authorityLifetimeHours": 30, "certificateLifetimeHours": 24}
    async with stage(waltz_cluster(tls=tls)) as refused:
        await refused.settle(8)
        refused.now += 21 * 3600.0
        while "next.crt" not in refused.server.objects["Secret", "ledger-tls-ca"]["data"]:
            await refused.one_pass()
        made = refused.server.objects["Secret", "ledger-tls-ca"]
        refused.server.refuse["Secret", "ledger-tls-ca"] = FORBIDDEN
        await refused.settle(8)
        degraded = refused.conditions()["Degraded"]
        assert degraded["reason"] == "RefusedChange"
        assert "Secret ledger-tls-ca" in degraded["message"]
        written = refused.status_writes()
        await refused.settle()
        assert refused.status_writes() == written
        refused.server.refuse.clear()
        await refused.settle(8)
        assert refused.server.objects["Secret", "ledger-tls-ca"] != made
        assert refused.conditions()["Degraded"]["reason"] != "RefusedChange"


async def test_a_failure_is_said_too_and_what_is_read_back_stays() -> None:
    async with stage(waltz_cluster()) as failing:
        failing.server.refuse["Service", "ledger-zookeeper"] = KubeUnavailableError("no answer within 10 s")
        result = await failing.one_pass()
        degraded = failing.conditions()["Degraded"]
        assert (degraded["status"], degraded["reason"]) == ("True", "WriteFailed")
        assert "no answer within 10 s" in degraded["message"]
        assert failing.server.objects["WaltzCluster", "ledger"]["status"]["observedGeneration"] == 0
        assert "no answer" in result.error
        failing.server.refuse.clear()
        await failing.settle(2)
        assert failing.conditions()["Degraded"]["reason"] != "WriteFailed"
        assert failing.server.objects["WaltzCluster", "ledger"]["status"]["observedGeneration"] == 3


@pytest.mark.parametrize(
    "status", [500, *(pytest.param(status, marks=pytest.mark.long) for status in (503, 0))]
)
async def test_a_write_that_keeps_failing_holds_up_only_itself(status: int) -> None:
    """What the API server answers to a typing error in a pod template is HTTP 500, however often it is
    asked."""
    async with stage(waltz_cluster()) as all_well, stage(waltz_cluster()) as failing:
        error = KubeUnavailableError("PATCH /apis: nodeSelektor: field not declared in schema", status=status)
        failing.server.refuse["Service", "ledger-zookeeper"] = error
        await all_well.settle()
        result = await failing.settle()
        assert not result.error
        assert "nodeSelektor" in result.left_out
        assert set(all_well.server.objects) - set(failing.server.objects) == {("Service", "ledger-zookeeper")}
        degraded = failing.conditions()["Degraded"]
        assert (degraded["status"], degraded["reason"]) == ("True", "WriteFailed")
        assert "apply Service ledger-zookeeper" in degraded["message"]
        assert "nodeSelektor: field not declared in schema" in degraded["message"]
        written, tried = failing.status_writes(), failing.tries("Service", "ledger-zookeeper")
        await failing.settle(130)
        assert failing.status_writes() == written, "the status changes to and fro"
        assert failing.tries("Service", "ledger-zookeeper") - tried <= 10, "it has its own back-off"
        failing.server.refuse.clear()
        await failing.settle(61)
        made = {key for key in failing.server.objects if key[0] != "Event"}
        assert set(all_well.server.objects) == made
        assert failing.conditions()["Degraded"]["reason"] != "WriteFailed"


async def test_a_step_of_a_teardown_that_keeps_failing_is_tried_in_each_pass_and_reported() -> None:
    """Its steps have an order, so none is left out."""

    class Planner(PurePlanner):
        def plan(self, snapshot: Snapshot) -> Plan:
            made = super().plan(snapshot)
            body = {"kind": "Service", "metadata": {"name": "a"}}
            return Plan(
                (ApplyObject(ObjectKey("Service", "a"), body, "x"), *made.actions), made.status, (), 30.0
            )

    body = waltz_cluster()
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    async with stage(body, planner=Planner()) as failing:
        failing.server.refuse["Service", "a"] = KubeUnavailableError("PATCH /api: HTTP 500", status=500)
        for _ in range(5):
            result = await failing.one_pass()
            assert "HTTP 500" in result.error


async def test_a_corrected_object_is_written_at_once_whatever_its_back_off() -> None:
    async with stage(waltz_cluster()) as failing:
        key = ("ConfigMap", "ledger-server")
        failing.server.refuse[key] = KubeUnavailableError("PATCH /apis: HTTP 500", status=500)
        await failing.settle(130)
        failing.server.refuse.clear()
        servers = {"config": {"server.log.level": "WARNING"}}
        failing.server.objects["WaltzCluster", "ledger"]["spec"]["servers"] = servers
        await failing.settle(2)
        assert key in failing.server.objects


async def test_a_migration_whose_write_keeps_failing_does_not_hold_up_the_next_one() -> None:
    start = StartCopyJob("ledger-copy-m1-0", "m1", 0, "a:1", 2, "b:1", 2, 0)
    seen: list[str] = []

    class Planner(PurePlanner):
        def plan_migration(self, name: str, snapshot: Snapshot, *_: Any) -> Plan:
            seen.append(name)
            plan = super().plan_migration(name, snapshot, *_)
            if name == "m2" or snapshot.failed is not None:
                return plan
            return Plan((start, *plan.actions), plan.status, (), plan.requeue_seconds)

    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": start.name, "namespace": "demo"}}
    async with stage(
        waltz_cluster(), waltz_migration("m1"), waltz_migration("m2"), planner=Planner(), job=job
    ) as failing:
        failing.server.refuse["Job", start.name] = KubeUnavailableError("POST /apis: HTTP 500", status=500)
        result = await failing.settle(8)
        assert "m2" in seen
        assert "HTTP 500" in result.error


async def test_a_conflict_is_said_when_it_does_not_pass() -> None:
    async with stage(waltz_cluster()) as failing:
        failing.server.refuse["Service", "ledger-zookeeper"] = KubeConflictError("it has changed", status=409)
        first = await failing.one_pass()
        assert failing.conditions() == {}
        assert first.passing, "the edit of a person is no reason for a Warning"
        lasting = await failing.settle()
        assert failing.conditions()["Degraded"]["reason"] == "WriteFailed"
        assert not lasting.passing


# ---- values that the model cannot read


async def test_a_value_that_cannot_be_read_is_said() -> None:
    async with stage(waltz_cluster()) as bad:
        await bad.settle()
        bad.server.objects["WaltzCluster", "ledger"]["spec"].update(copy.deepcopy(BAD))
        result = await bad.one_pass()
        valid = bad.conditions()["Valid"]
        assert (valid["status"], valid["reason"]) == ("False", "InvalidSpec")
        assert valid["message"].startswith("spec.servers.config")
        assert valid["observedGeneration"] == 3
        assert bad.conditions()["Available"]["status"] == "Unknown"
        assert valid["message"] in result.left_out
        before, written = bad.conditions(), bad.status_writes()
        await bad.settle()
        assert (bad.conditions(), bad.status_writes()) == (before, written)
        bad.server.objects["WaltzCluster", "ledger"]["spec"]["servers"] = {}
        await bad.settle(2)
        assert bad.conditions()["Valid"]["status"] == "True"


async def test_a_deletion_that_waits_for_such_a_value_says_so() -> None:
    body = waltz_cluster(**BAD)
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    async with stage(body) as bad:
        await bad.one_pass()
        message = bad.conditions()["Valid"]["message"]
        assert message.startswith("spec.servers.config")
        assert "the deletion waits until it is corrected" in message


async def test_a_migration_that_cannot_be_read_is_said_there() -> None:
    bad_one = waltz_migration("m1", rateLimitBytesPerSecond="x")
    async with stage(waltz_cluster(), bad_one) as bad:
        result = await bad.settle()
        valid = bad.conditions("WaltzMigration", "m1")["Valid"]
        assert (valid["status"], valid["reason"]) == ("False", "InvalidSpec")
        assert valid["message"].startswith("spec.rateLimitBytesPerSecond")
        assert "spec.rateLimitBytesPerSecond" in result.left_out
        written = bad.status_writes()
        await bad.settle()
        assert bad.status_writes() == written


@pytest.mark.parametrize("error", [FORBIDDEN, KubeUnavailableError("no answer")])
async def test_a_status_that_cannot_be_written_is_an_error_of_the_pass(error: Exception) -> None:
    async with stage(waltz_cluster()) as failing:
        failing.server.refuse["WaltzCluster", "ledger"] = error
        results = [await failing.one_pass() for _ in range(3)]
        assert str(error) in results[-1].error


# ---- migrations


async def test_a_refused_write_of_a_migration_is_told_on_it_and_the_next_one_is_looked_at() -> None:
    start = StartCopyJob("ledger-copy-m1-0", "m1", 0, "a:1", 2, "b:1", 2, 0)

    class Planner(PurePlanner):
        def plan_migration(self, name: str, snapshot: Snapshot, *_: Any) -> Plan:
            plan = super().plan_migration(name, snapshot, *_)
            if name == "m2" or snapshot.failed is not None:
                return plan
            return Plan((start, *plan.actions), plan.status, (), plan.requeue_seconds)

    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": start.name, "namespace": "demo"}}
    async with stage(
        waltz_cluster(), waltz_migration("m1"), waltz_migration("m2"), planner=Planner(), job=job
    ) as refused:
        refused.server.refuse["Job", start.name] = KubeInvalidError(
            "POST /apis: label is too long", status=422
        )
        result = await refused.settle()
        status = refused.server.objects["WaltzMigration", "m1"]["status"]
        assert status["reason"] == "RefusedChange"
        assert "label is too long" in status["message"]
        assert refused.conditions("WaltzMigration", "m1")["Blocked"]["status"] == "True"
        assert refused.conditions("WaltzMigration", "m2")["Blocked"]["reason"] == "ZooKeeperUnknown"
        assert any("label is too long" in event for event in refused.events())
        assert "WaltzMigration m1" in result.left_out
        assert not result.error
        written = refused.status_writes()
        await refused.settle()
        assert refused.status_writes() == written


async def test_a_cluster_that_was_made_before_a_rule_is_worked_on_all_the_same() -> None:
    """Its certificates lack the addresses that its servers advertise: who does not compare names is
    served."""
    async with stage(waltz_cluster()) as found:
        await found.settle(8)
        spec = found.server.objects["WaltzCluster", "ledger"]["spec"]
        spec["tls"] = {"mode": "SelfSigned"}
        spec["servers"] = {**spec.get("servers", {}), "externalListener": {}}
        del found.server.objects["Service", "ledger"]
        await found.settle(8)
        assert ("Service", "ledger") in found.server.objects
        valid = found.conditions()["Valid"]
        assert (valid["status"], valid["reason"]) == ("False", "RefusedChange")
        assert "spec.servers.externalListener: the certificates of the servers" in valid["message"]
