"""What a real API server refuses for good: said, and the rest goes on; under the shipped role."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operator_tests.apiserver import records, stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.installed import post
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.world import NAME, World
from waltz_operator.api.parse import stored_migration
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeConflictError, KubeError
from waltz_operator.kube.kinds import Kind

PLAIN: dict[str, Any] = {"tls": {"mode": "Disabled"}, "reclaimPolicy": "Delete"}


async def condition(world: World, kind: str) -> dict[str, Any]:
    body = await world.cluster()
    found: dict[str, Any] = next(one for one in body["status"]["conditions"] if one["type"] == kind)
    return found


def test_an_object_of_somebody_else_is_left_alone_until_it_is_moved_away(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        name = f"{NAME}-server"
        foreign = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": world.namespace},
            "data": {"a": "b"},
        }
        theirs = await world.kube.create(foreign)
        await world.create(stories.spec(replicas=3, **PLAIN))
        for _ in range(12):
            await world.operator.one_pass(world.namespace)
            await world.machinery.settle()
        found = await world.kube.get(kinds.CONFIG_MAP, world.namespace, name)
        require(found == theirs, f"it was changed: {found}")
        degraded = await condition(world, "Degraded")
        require(degraded["reason"] == "RefusedChange", f"Degraded says: {degraded}")
        require(f"ConfigMap {name} exists" in degraded["message"], f"Degraded says: {degraded}")
        sets = await world.machinery.list(kinds.STATEFUL_SET)
        require(len(sets) == 3, "the storage nodes have nothing to do with it")
        require(not await world.machinery.list(kinds.DEPLOYMENT), "the servers would mount it")
        before = (await world.cluster())["metadata"]["resourceVersion"]
        result = await world.operator.one_pass(world.namespace)
        require(
            (await world.cluster())["metadata"]["resourceVersion"] == before, "the status is written again"
        )
        require(not result.error, result.error)
        await world.kube.delete(kinds.CONFIG_MAP, world.namespace, name, uid=theirs["metadata"]["uid"])
        await world.settle()
        await stories.holds("1-0", "2-0", "3-0")(world)

    plane.run(scenario)


def test_an_object_is_applied_under_the_uid_that_was_seen(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "one", "namespace": world.namespace},
        }
        seen = {**body, "metadata": {**body["metadata"], "uid": "3a1ad8c2-6f4d-4d0c-9d0e-3b8a8a6f2c11"}}  # type: ignore[dict-item]
        with pytest.raises(KubeConflictError):
            await world.kube.apply(seen)  # it is gone
        made = await world.kube.apply(body)
        with pytest.raises(KubeConflictError):
            await world.kube.apply(seen)  # it is another one
        await world.kube.apply({**body, "metadata": {**body["metadata"], "uid": made["metadata"]["uid"]}})  # type: ignore[dict-item]

    plane.run(scenario)


def test_a_value_that_the_model_does_not_read_is_said_and_can_be_mended(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=3, **PLAIN))
        config = {"server.graphite.prefix": ["a"]}
        await world.change({"servers": {"config": config}})
        for _ in range(2):
            result = await world.operator.one_pass(world.namespace)
            require(not result.error, result.error)
            before = (await world.cluster())["metadata"]["resourceVersion"]
        valid = await condition(world, "Valid")
        require((valid["status"], valid["reason"]) == ("False", "InvalidSpec"), f"Valid says: {valid}")
        require("spec.servers.config" in valid["message"], f"Valid says: {valid}")
        await world.operator.one_pass(world.namespace)
        require(
            (await world.cluster())["metadata"]["resourceVersion"] == before, "the status is written again"
        )
        await world.delete()
        await world.operator.one_pass(world.namespace)
        valid = await condition(world, "Valid")
        require("the deletion waits" in valid["message"], f"Valid says: {valid}")
        await world.change({"servers": {"config": {"server.graphite.prefix": None}}})
        await world.settle()
        require(not await world.kube.list(kinds.WALTZ_CLUSTER, world.namespace), "it is still there")

    plane.run(scenario)


def test_a_size_that_no_claim_may_have_can_be_lowered_again(plane: Plane) -> None:
    """A LimitRange refuses the claims of a new cluster, and with them the cluster."""

    async def refused(world: World) -> None:
        for _ in range(4):
            await world.operator.one_pass(world.namespace)
            await world.machinery.settle()
        valid = await condition(world, "Valid")
        require((valid["status"], valid["reason"]) == ("False", "RefusedChange"), f"Valid says: {valid}")
        require("maximum storage usage" in valid["message"], f"Valid says: {valid}")

    async def scenario(world: World) -> None:
        limit = {"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}}
        metadata = {"name": "volumes", "namespace": world.namespace}
        body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [limit]}}
        await post(world.kube, Kind("v1", "LimitRange", "limitranges"), body)
        await world.create(stories.spec(replicas=3, storage={"size": "10Gi"}, **PLAIN))
        await refused(world)
        await world.change({"storage": {"size": "4Gi"}})
        await world.settle()
        await stories.holds("1-0", "2-0", "3-0")(world)
        valid = await condition(world, "Valid")
        require(valid["status"] == "True", f"Valid says: {valid}")

    plane.run(scenario)


async def protect(world: World, pod: str) -> None:
    """Have an admission rule refuse the deletion of this pod, and wait until it does."""
    group = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    refused = f"request.namespace != '{world.namespace}' || request.name != '{pod}'"
    policy = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"guard-{world.namespace}"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": refused, "message": "this pod is protected"}],
        },
    }
    await post(world.kube, Kind(group, "", "validatingadmissionpolicies", namespaced=False), policy)
    binding = {
        **policy,
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]},  # type: ignore[index]
    }
    await post(world.kube, Kind(group, "", "validatingadmissionpolicybindings", namespaced=False), binding)
    for _ in range(400):
        try:
            await world.kube._call("DELETE", kinds.POD.path(world.namespace, pod), {"dryRun": "All"})
        except KubeError as error:
            require("this pod is protected" in str(error), str(error))
            return
        await asyncio.sleep(0.05)  # the API server reports by nothing else when a rule counts
    raise TimeoutError("the rule does not count")


def test_migrations_continue_while_a_restart_is_refused(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        groups = [{"name": name, "nodes": [{"name": "0"}]} for name in "123"]
        await stories.play(world, stories.install(storage={"groups": groups}, **PLAIN))
        await protect(world, stories.pods("2-0")[0])
        groups[0]["nodes"] = [{"name": "0"}, {"name": "1"}]
        await world.change({"storage": {"groups": groups}, "images": {"storage": "waltz-storage:2"}})
        await world.migrate("drain", drain={"node": "1-0"})
        for _ in range(200):
            await world.operator.one_pass(world.namespace)
            await world.machinery.settle()
            if (await world.migration("drain")).get("status", {}).get("phase") == "Completed":
                break
        await stories.replicas_are(world, *stories.pods("1-1", "2-0", "3-0"))
        await records.check(world)
        degraded = await condition(world, "Degraded")
        require(degraded["reason"] == "RefusedChange", f"Degraded says: {degraded}")
        require("this pod is protected" in degraded["message"], f"Degraded says: {degraded}")
        for _ in range(2):  # the first pass may report what the migration did last
            before = await world.cluster()
            result = await world.operator.one_pass(world.namespace)
        require("this pod is protected" in result.left_out, str(result))
        require(not result.error, result.error)
        require(await world.cluster() == before, "the status is written again")

    plane.run(scenario)


def test_a_migration_that_names_no_cluster_is_answered_until_that_comes(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await world.migrate("drain", drain={"node": "1-0"}, dryRun=True)
        for _ in range(2):
            written = (await world.migration("drain"))["metadata"]["resourceVersion"]
            await world.operator.parts.gone((world.namespace, NAME))
        body = await world.migration("drain")
        require(body["metadata"]["resourceVersion"] == written, "the status is written again")
        status = stored_migration(body).status
        require((status.phase, status.reason) == ("Pending", "NoTarget"), str(status))
        await stories.play(world, stories.install(replicas=3, **PLAIN))
        status = stored_migration(await world.migration("drain")).status
        require(status.phase == "Planned", str(status))

    plane.run(scenario)
