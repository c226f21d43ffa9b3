"""What a real API server refuses for good: said, and the rest goes on; under the shipped role."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.installed import post
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.world import NAME, World
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeConflictError
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
