"""A cluster that exists already is adopted as docs/operator-changes.md has it, on a real API server: while
it is paused nothing starts and ZooKeeper stays as it is, and one that does not fit can be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.apiserver import records
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.test_another_ensemble import (
    exported,
    is_whole,
    put_away,
    session_id,
    spec,
)
from operator_tests.apiserver.world import World
from operator_tests.resources.clusters import UID
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeNotFoundError

WORKLOADS = (kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.POD)


def adopting(key: str) -> dict[str, Any]:
    return spec({"connectString": "zk:2181", "adoptKey": key}) | {"paused": True}


async def passes(world: World, number: int = 4) -> None:
    for _ in range(number):
        await world.operator.one_pass(world.namespace)
        await world.machinery.settle()


async def conditions(world: World) -> dict[str, tuple[str, str]]:
    found = (await world.cluster())["status"]["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in found}


@pytest.mark.long
@pytest.mark.timeout(180)
def test_nothing_starts_before_the_pause_ends(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await world.create(spec({"connectString": "zk:2181"}))
        await world.settle()
        await records.write(world, 3, 1)
        before = await session_id(world.zookeeper, world)
        tree, key = await put_away(world)

        for wrong in (True, False):
            await world.create(adopting(UID if wrong else key))
            await passes(world)
            made = {one["metadata"]["name"] for kind in WORKLOADS for one in await world.machinery.list(kind)}
            require(made == set(), f"while it is paused: {made}")
            require(await exported(world.zookeeper, world) == tree, "the tree has changed")
            valid = (await conditions(world))["Valid"]
            require(valid == (("False", "ForeignTree") if wrong else ("True", "AsWanted")), f"Valid: {valid}")
            nodes = (await world.cluster())["status"]["nodes"]
            require(all(one["registered"] for one in nodes) and len(nodes) == 3, f"nodes: {nodes}")
            if wrong:
                await world.delete()
                with pytest.raises(KubeNotFoundError):
                    await passes(world)
                require(await exported(world.zookeeper, world) == tree, "the deletion has changed the tree")

        await world.change({"paused": False})
        await world.settle()
        await is_whole(world, before)

    plane.run(scenario)
