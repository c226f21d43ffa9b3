"""Which volumes outlive a cluster on a real API server. Garbage collection deletes what the cluster owns, and
in a foreground deletion it does so before the operator's turn: so nothing that holds data is owned."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import Step, require
from operator_tests.apiserver.world import NAME, World
from waltz_operator.api.parse import stored_cluster
from waltz_operator.kube import kinds
from waltz_operator.kube.kinds import Kind
from waltz_operator.resources.common import owner

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
        world.clock_offset += 3600.0  # one more copy is written into its Secret
        await world.settle()
        require(await names(world, kinds.SECRET) >= SECRETS, f"{await names(world, kinds.SECRET)}")
        require(await owned(world) == set(), f"owned: {await owned(world)}")

    return Step("install", act, check)


async def owned(world: World) -> set[str]:
    """What holds data and would go by garbage collection."""
    data = [
        one
        for kind in (kinds.PVC, kinds.SECRET)
        for one in await world.kube.list(kind, world.namespace)
        if kind is kinds.PVC or one["metadata"]["name"] in SECRETS
    ]
    return {one["metadata"]["name"] for one in data if one["metadata"].get("ownerReferences")}


async def own_all(world: World) -> None:
    """As an earlier release had it with Delete."""
    reference = owner(stored_cluster(await world.cluster()))
    for kind in (kinds.PVC, kinds.SECRET):
        for one in await world.kube.list(kind, world.namespace):
            name = one["metadata"]["name"]
            if kind is kinds.PVC or name in SECRETS:
                patch = {"metadata": {"ownerReferences": [reference]}}
                await world.kube.merge_patch(kind, world.namespace, name, patch)


@pytest.mark.parametrize("change", [{}, {"paused": True}, {"storage": {"config": {"storage.nonsense": 1}}}])
def test_what_an_earlier_release_made_its_own_is_let_go_while_the_cluster_lives(
    plane: Plane, change: dict[str, Any]
) -> None:
    """A cluster that is paused, or whose specification is wrong, too: its policy may be edited, and then it
    may be deleted in the foreground."""

    async def scenario(world: World) -> None:
        await stories.play(world, install())
        await world.change(change)
        await world.settle()
        await own_all(world)
        await world.settle()
        require(await owned(world) == set(), f"owned: {await owned(world)}")

    plane.run(scenario)


def test_what_nobody_owns_goes_with_the_cluster(plane: Plane) -> None:
    """As garbage collection leaves it when the cluster is deleted with `--cascade=orphan`."""

    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=3))
        of_it = (
            kinds.CONFIG_MAP,
            kinds.ENDPOINT_SLICE,
            kinds.POD_DISRUPTION_BUDGET,
            kinds.SECRET,
            kinds.SERVICE,
        )
        for kind in of_it:
            for one in await world.kube.list(kind, world.namespace):
                patch: dict[str, Any] = {"metadata": {"ownerReferences": []}}
                await world.kube.merge_patch(kind, world.namespace, one["metadata"]["name"], patch)
        await world.delete()
        await world.settle()
        await world.machinery.settle()
        for kind in of_it:
            require(await names(world, kind) == set(), f"left: {await names(world, kind)}")

    plane.run(scenario)


def test_with_delete_volumes_and_secrets_go(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install())
        await world.delete()
        await world.settle()
        await world.machinery.settle()
        require(await names(world, kinds.PVC) == set(), f"left: {await names(world, kinds.PVC)}")
        require(not await names(world, kinds.SECRET) & SECRETS, f"left: {await names(world, kinds.SECRET)}")

    plane.run(scenario)


@pytest.mark.parametrize("paused", [False, True])
def test_retain_that_no_pass_applied_before_the_deletion_keeps_everything(plane: Plane, paused: bool) -> None:
    """Volumes and Secrets are still owned by the cluster, as an earlier release had it: it was deleted right
    after the edit, or the edit was never applied because the cluster was paused."""

    async def scenario(world: World) -> None:
        await stories.play(world, install())
        await own_all(world)
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
