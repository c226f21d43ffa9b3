"""A cluster moves from its managed ZooKeeper to an ensemble of one's own and back, as
docs/operator-zookeeper.md has it, on a real API server: nothing is lost, and no session id is given out
twice."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.apiserver import records, stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.guarded import GuardedZooKeeper
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.world import NAME, World
from waltz_admin.tree_copy import read_tree, write_tree
from waltz_admin.tree_file import ClusterTree
from waltz_admin.view import ClusterView, probe
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import ConnectError
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeNotFoundError

IMAGES = {"server": "waltz-server:1", "storage": "waltz-storage:1", "zookeeper": "waltz-zookeeper:1"}
THERE = "there:2181"
NODES = ("1-0", "2-0", "3-0")


class NotThere(GuardedZooKeeper):
    """An ensemble that does not answer."""

    async def login(self, settings: ZooKeeperSettings, timeout_seconds: float, who: str) -> ZooKeeperStore:
        raise ConnectError(f"{who}: nobody answers")


def spec(zookeeper: dict[str, Any]) -> dict[str, Any]:
    return stories.spec(replicas=3, images=IMAGES, tls={"mode": "Disabled"}) | {"zookeeper": zookeeper}


def root(world: World) -> str:
    return f"/waltz/{world.namespace}/{NAME}"


async def session_id(zookeeper: GuardedZooKeeper, world: World) -> int:
    """Of the last store session of the partition."""
    store = zookeeper.session(10.0)
    try:
        view = await probe(store, root(world))
    finally:
        await store.close()
    assert isinstance(view, ClusterView)
    (metadata,) = view.metadata.values()
    assert isinstance(metadata, PartitionMetadata)
    return metadata.session_id


async def exported(zookeeper: GuardedZooKeeper, world: World) -> ClusterTree:
    store = zookeeper.session(10.0)
    try:
        return await read_tree(store, root(world), "now")
    finally:
        await store.close()


async def imported(zookeeper: GuardedZooKeeper, world: World, tree: ClusterTree) -> None:
    store = zookeeper.session(10.0)
    try:
        require(await write_tree(store, root(world), tree), "there was nothing")
    finally:
        await store.close()


async def put_away(world: World) -> tuple[ClusterTree, str]:
    """Steps 1 to 4 of the page: the servers stop, the tree is exported, the object goes, volumes stay."""
    await world.change({"servers": {"replicas": 0}})
    await world.settle()
    tree, key = await exported(world.zookeeper, world), (await world.cluster())["status"]["clusterKey"]
    await world.delete()
    await world.settle()
    await world.machinery.settle()
    return tree, key


async def drop_zookeepers_claims(world: World) -> None:
    for claim in await world.machinery.list(kinds.PVC):
        name = claim["metadata"]["name"]
        if name.startswith(f"data-{NAME}-zookeeper-"):
            await world.kube.delete(kinds.PVC, world.namespace, name, uid=claim["metadata"]["uid"])
    await world.machinery.settle()


async def is_whole(world: World, before: int) -> None:
    await stories.holds(*NODES)(world)
    await records.check(world)
    await records.write(world, 3, 1)
    await records.check(world)
    now = await session_id(world.zookeeper, world)
    require(now > before, f"session {now} after session {before}")


@pytest.mark.long
@pytest.mark.timeout(180)
def test_to_an_ensemble_of_ones_own_and_back(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        managed = world.zookeeper
        await world.create(spec({"managed": {"replicas": 1, "authentication": "None"}}))
        await world.settle()
        await records.write(world, 3, 1)

        before = await session_id(managed, world)
        tree, key = await put_away(world)
        own = GuardedZooKeeper()
        managed.elsewhere[THERE] = own
        await imported(own, world, tree)
        await world.create(spec({"connectString": THERE, "adoptKey": key}))
        world.zookeeper = own
        await world.settle()
        await is_whole(world, before)
        await drop_zookeepers_claims(world)

        before = await session_id(own, world)
        tree, again = await put_away(world)
        require(again == key, "the key changed")
        empty = GuardedZooKeeper()
        where = f"{NAME}-zookeeper-0.{NAME}-zookeeper-headless.{world.namespace}.svc:2181"
        managed.elsewhere[where] = NotThere()
        await world.create(spec({"managed": {"replicas": 1, "authentication": "Digest"}, "adoptKey": key}))
        world.zookeeper = empty
        for number in range(8):  # ZooKeeper is started; it holds nothing yet, and nothing is made in it
            await world.operator.one_pass(world.namespace)
            await world.machinery.settle()
            if number == 4:
                managed.elsewhere[where] = empty
        pods = {pod["metadata"]["name"] for pod in await world.machinery.list(kinds.POD)}
        require(pods == {f"{NAME}-zookeeper-0"}, f"before the import: {pods}")
        await imported(empty, world, tree)
        await world.settle()
        await is_whole(world, before)
        require(root(world) in empty.closed(), "what was imported is closed to others too")

    plane.run(scenario)


@pytest.mark.long
def test_a_tree_that_is_not_imported_is_never_made_anew(plane: Plane) -> None:
    """Forgetting the import makes no empty cluster on volumes that hold a log."""

    async def scenario(world: World) -> None:
        await world.create(spec({"managed": {"replicas": 1, "authentication": "None"}}))
        await world.settle()
        _, key = await put_away(world)
        world.zookeeper.elsewhere[THERE] = GuardedZooKeeper()
        for adopted in ({"adoptKey": key}, {}):
            await world.create(spec({"connectString": THERE, **adopted}))
            for _ in range(4):
                await world.operator.one_pass(world.namespace)
            valid = next(c for c in (await world.cluster())["status"]["conditions"] if c["type"] == "Valid")
            wanted = "ForeignTree" if adopted else "LeftoverVolumes"
            require((valid["status"], valid["reason"]) == ("False", wanted), f"Valid: {valid}")
            body = await world.cluster()
            await world.kube.delete(kinds.WALTZ_CLUSTER, world.namespace, NAME, uid=body["metadata"]["uid"])
            for _ in range(4):
                try:
                    await world.operator.one_pass(world.namespace)
                except KubeNotFoundError:
                    break

    plane.run(scenario)
