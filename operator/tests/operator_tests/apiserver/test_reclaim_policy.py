"""Which volumes outlive a cluster on a real API server, whose garbage collection deletes what the cluster
owns."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import Step, require
from operator_tests.apiserver.world import NAME, World
from waltz_operator.kube import kinds
from waltz_operator.kube.kinds import Kind

SECRETS = {f"{NAME}-zookeeper-auth", f"{NAME}-zookeeper-export"}
OWNED: dict[str, Any] = {
    "images": {"server": "waltz-server:1", "storage": "waltz-storage:1", "zookeeper": "waltz-zookeeper:1"},
    "zookeeper": {"managed": {"replicas": 1, "authentication": "Digest"}, "export": {"intervalHours": 1}},
    "tls": {"mode": "Disabled"},
    "replicas": 3,
    "reclaimPolicy": "Delete",
}


async def names(world: World, kind: Kind) -> set[str]:
    return {one["metadata"]["name"] for one in await world.kube.list(kind, world.namespace)}


def install() -> Step:
    async def act(world: World) -> None:
        await world.create(stories.spec(**OWNED))

    async def check(world: World) -> None:
        world.clock_offset += 3600.0  # the next copy is made with its owner
        await world.settle()
        for kind in (kinds.PVC, kinds.SECRET):
            found = await world.kube.list(kind, world.namespace)
            owned = {one["metadata"]["name"] for one in found if one["metadata"].get("ownerReferences")}
            require(
                owned >= (SECRETS if kind is kinds.SECRET else await names(world, kind)), f"owned: {owned}"
            )

    return Step("install", act, check)


@pytest.mark.parametrize("paused", [False, True])
def test_retain_that_no_pass_applied_before_the_deletion_keeps_everything(plane: Plane, paused: bool) -> None:
    """Volumes and Secrets are still owned by the cluster: it was deleted right after the edit, or the edit
    was never applied because the cluster was paused."""

    async def scenario(world: World) -> None:
        await stories.play(world, install())
        claims, data = await names(world, kinds.PVC), world.directory / "claims"
        volumes = sorted(one.name for one in data.glob("*"))
        await world.change({"reclaimPolicy": "Retain", "paused": paused})
        if paused:
            await world.settle()
        await world.delete()
        await world.settle()
        await world.machinery.settle()
        require(await names(world, kinds.STATEFUL_SET) == set(), "the cluster is gone")
        require(await names(world, kinds.PVC) == claims, f"left of {claims}: {await names(world, kinds.PVC)}")
        require(sorted(one.name for one in data.glob("*")) == volumes, "their data is gone")
        require(await names(world, kinds.SECRET) >= SECRETS, f"Secrets: {await names(world, kinds.SECRET)}")

    plane.run(scenario)


def test_a_cluster_that_was_refused_takes_no_volume_of_an_earlier_one_along(plane: Plane) -> None:
    """Deleted under Retain, applied again with Delete and without `adoptKey`, and taken away again."""

    async def scenario(world: World) -> None:
        plain: dict[str, Any] = {"replicas": 3, "tls": {"mode": "Disabled"}}
        await stories.play(world, stories.install(**plain), stories.delete("Retain"))
        claims = await names(world, kinds.PVC)
        await world.create(stories.spec(**plain, reclaimPolicy="Delete"))
        for _ in range(6):
            await world.operator.one_pass(world.namespace)
            await world.machinery.settle()
        status = (await world.cluster())["status"]
        valid = next(one for one in status["conditions"] if one["type"] == "Valid")
        require((valid["status"], valid["reason"]) == ("False", "ForeignTree"), f"{valid}")
        await world.delete()
        await world.settle()
        await world.machinery.settle()
        require(await names(world, kinds.PVC) == claims, f"left of {claims}: {await names(world, kinds.PVC)}")
        said = [one["note"] for one in await world.kube.list(kinds.EVENT, world.namespace)]
        require(any(min(claims) in note for note in said), f"Events: {said}")

    plane.run(scenario)
