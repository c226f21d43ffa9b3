"""A quota that refuses the volumes of every node: the status says so in what a condition takes, everything
else is done, and one plan is made for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from operator_tests.plan.cluster import facts, kube, rendered
from operator_tests.resources.clusters import UID
from operator_tests.run.test_refusals import stage, waltz_cluster, waltz_migration
from waltz_operator.api.cluster_status import MAX_MESSAGE
from waltz_operator.api.errors import ResourceError
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeForbiddenError
from waltz_operator.model.actions import Action, ApplyObject, EmitEvent, Plan
from waltz_operator.model.desired import created_key
from waltz_operator.model.snapshot import ObjectKey, Rejection, Snapshot
from waltz_operator.model.texts import MAX_TEXTS, first_texts, fitting
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.rejected_objects import reported
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of
from waltz_operator.plan.status.unreadable import UnreadableError, unreadable_status
from waltz_operator.run.apply import Outcome
from waltz_operator.run.process import PurePlanner
from waltz_operator.run.rejections import apply_with_rejections

NODES = 63
LONG = "x" * 600


class Counting(PurePlanner):
    planned = 0

    def plan(self, snapshot: Snapshot) -> Plan:
        self.planned += 1
        return super().plan(snapshot)


def many_nodes() -> Object:
    groups = [{"name": str(group), "count": NODES // 9} for group in range(1, 10)]
    made = waltz_cluster(storage={"groups": groups}, replicas=None)
    return {**made, "status": {"clusterKey": str(created_key(UID))}}


async def test_a_quota_that_refuses_the_claims_of_all_nodes() -> None:
    planner = Counting()
    async with stage(many_nodes(), planner=planner) as found:
        await found.settle(2)
        volume, service = "PersistentVolumeClaim", ("Service", "ledger-zookeeper")
        claims = [one for one in found.server.objects if one[0] == volume and "zookeeper" not in one[1]]
        assert len(claims) == NODES
        for key in (*claims, service):
            del found.server.objects[key]
        found.server.refuse.update(dict.fromkeys(claims, KubeForbiddenError(LONG, status=403)))
        found.server.writes.clear()
        planner.planned = 0
        result = await found.one_pass()
        assert not result.error
        assert planner.planned <= 6
        degraded = found.conditions()["Degraded"]
        assert (degraded["status"], degraded["reason"]) == ("True", "RefusedChange")
        assert degraded["message"].endswith(f"; and {NODES - MAX_TEXTS} more")
        assert len(degraded["message"]) <= MAX_MESSAGE
        assert service in found.server.objects
        assert all(found.tries(*claim) == 1 for claim in claims)


def test_the_first_texts_are_given_and_the_others_counted() -> None:
    assert first_texts(["a", "b"]) == "a; b"
    assert first_texts(["a"] * MAX_TEXTS) == "; ".join(["a"] * MAX_TEXTS)
    assert first_texts(["a"] * (MAX_TEXTS + 3)) == "; ".join([*["a"] * MAX_TEXTS, "and 3 more"])
    many = {ObjectKey("Service", str(i)): Rejection(LONG, there=True) for i in range(5000)}
    found = reported(many)
    assert found is not None
    assert len(found[1]) < 7000


def test_a_message_fits_its_condition() -> None:
    assert fitting("x" * MAX_MESSAGE) == "x" * MAX_MESSAGE
    assert len(fitting("x" * (MAX_MESSAGE + 1))) == MAX_MESSAGE


@pytest.mark.parametrize("texts", [[LONG] * 5000, ["x" * (2 * MAX_MESSAGE)]])
def test_every_condition_of_a_cluster_fits(texts: list[str]) -> None:
    for problems, unreadable in ((tuple(texts), ()), ((), tuple(texts))):
        seen = replace(facts(kube()), problems=problems, unreadable=unreadable)
        decision = decide(seen, rendered())
        for one in conditions(seen, decision, health_of(seen), texts, (), 1):
            assert len(one.message) <= MAX_MESSAGE
        assert all(len(one.text) <= max(7000, 3 * MAX_MESSAGE) for one in decision.blocked)
    seen = facts(kube())
    decision = Decision(seen.memory, unable=texts)
    by_type = {one.type: one for one in conditions(seen, decision, health_of(seen), (), (), 1)}
    assert by_type["Valid"].status == "False"
    assert len(by_type["Valid"].message) <= MAX_MESSAGE


def test_an_object_that_cannot_be_read_has_a_condition_that_fits() -> None:
    body = waltz_migration("m1")
    status = unreadable_status(UnreadableError(body, ResourceError("spec", "x" * (2 * MAX_MESSAGE)), 0.0))
    assert status is not None
    assert all(len(one["message"]) <= MAX_MESSAGE for one in status["conditions"])


def objects(*names: str) -> list[Action]:
    return [ApplyObject(ObjectKey(*name.split("/")), {"metadata": {}}, "it is not there") for name in names]


async def carried_out(
    actions: list[Action], refused: dict[str, bool], *, in_order: bool = False
) -> tuple[list[str], list[str], str]:
    """What was tried, what was found to be rejected, and what the outcome failed with. `refused`: whether it
    may be tried again."""
    tried: list[str] = []

    async def apply(left: object, _: object) -> Outcome:
        done: list[Action] = []
        for one in left:  # type: ignore[attr-defined]
            name = f"{one.key.kind}/{one.key.name}" if isinstance(one, ApplyObject) else "event"
            tried.append(name)
            if name in refused:
                return Outcome(tuple(done), one, "forbidden", retriable=refused[name])
            done.append(one)
        return Outcome(tuple(done))

    outcome, found = await apply_with_rejections(apply, actions, cast("Any", None), in_order=in_order)
    failed = outcome.failed.key.name if isinstance(outcome.failed, ApplyObject) else ""
    assert [one for one in outcome.done if one not in actions] == []
    return tried, [one.key.name for one, _ in found], failed


async def test_after_a_rejection_only_objects_of_its_kind_are_tried() -> None:
    """They do not depend on one another; a StatefulSet might depend on it."""
    event = EmitEvent(ObjectKey("WaltzCluster", "ledger"), "x", "y")
    some = [*objects("Service/a", "Service/b", "StatefulSet/s", "Service/c", "ConfigMap/d"), event]
    tried, found, failed = await carried_out(some, {"Service/a": False, "Service/c": False})
    assert tried == ["Service/a", "Service/b", "Service/c"]
    assert (found, failed) == (["a", "c"], "c")
    tried, found, failed = await carried_out(some, {"Service/a": False})
    assert tried == ["Service/a", "Service/b", "Service/c"]
    assert (found, failed) == (["a"], "a")


async def test_a_write_that_may_succeed_later_ends_the_round() -> None:
    some = objects("Service/a", "Service/b", "Service/c")
    tried, found, failed = await carried_out(some, {"Service/a": False, "Service/b": True})
    assert tried == ["Service/a", "Service/b"]
    assert (found, failed) == (["a"], "b")


async def test_workloads_and_a_teardown_are_taken_one_by_one() -> None:
    some = objects("StatefulSet/a", "StatefulSet/b")
    assert (await carried_out(some, {"StatefulSet/a": False}))[0] == ["StatefulSet/a"]
    some = objects("Service/a", "Service/b")
    assert (await carried_out(some, {"Service/a": False}, in_order=True))[0] == ["Service/a"]
