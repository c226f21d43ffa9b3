"""Copies of the records in ZooKeeper, made at intervals on a real API server, and brought back from one."""

from __future__ import annotations

import gzip

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.crash_points import Story, Tell, check_killed_everywhere
from operator_tests.apiserver.stories import Step, require
from operator_tests.apiserver.world import NAME, World
from waltz_admin.tree_copy import read_tree, write_tree
from waltz_admin.tree_file import decode
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_operator.kube import kinds
from waltz_operator.tls.secrets import secret_data

SECRET = f"{NAME}-zookeeper-export"
ZOOKEEPER = {"connectString": "zk:2181", "export": {"intervalHours": 1, "keep": 2}}
PLAIN = {"replicas": 3, "tls": {"mode": "Disabled"}, "zookeeper": ZOOKEEPER}
HOUR = 3600.0


async def copies(world: World) -> dict[str, bytes]:
    return secret_data(await world.kube.get(kinds.SECRET, world.namespace, SECRET))


async def newest_is_what_there_is(world: World) -> None:
    """It is put back where nothing is, and is the same then."""
    found = await copies(world)
    tree = decode(gzip.decompress(found[max(found)]))
    root = f"/waltz/{world.namespace}/{NAME}"
    elsewhere, here = MemoryZooKeeper().session(), world.zookeeper.session(10.0)
    try:
        require(await write_tree(elsewhere, root, tree), "it was put back")
        require((await read_tree(elsewhere, root, "")).same_as(tree), "it is what was exported")
        now = await read_tree(here, root, "")
        require(now.params == tree.params, "it is of this cluster")
    finally:
        await elsewhere.close()
        await here.close()


def install() -> Step:
    async def act(world: World) -> None:
        await world.create(stories.spec(**PLAIN))

    async def check(world: World) -> None:
        require(len(await copies(world)) == 1, "the first one is made at once")
        await newest_is_what_there_is(world)
        status = (await world.cluster())["status"]["zookeeper"]
        require(bool(status.get("exportedAt")), f"the status says {status}")

    return Step("install", act, check)


def an_hour_later(kept: int) -> Step:
    async def act(world: World) -> None:
        world.clock_offset += HOUR

    async def check(world: World) -> None:
        found = await copies(world)
        require(len(found) == kept, f"kept: {sorted(found)}")
        await newest_is_what_there_is(world)

    return Step(f"an hour later {kept}", act, check)


def test_copies_are_made_every_hour_and_two_are_kept(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install(), an_hour_later(2), an_hour_later(2))
        before = len(world.journal.lines)
        await world.settle()
        require(world.journal.lines[before:] == [], "nothing is written when nothing is due")

    assert plane.run(scenario).errors == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_operator_s_successor_goes_on(plane: Plane, record_property: Tell) -> None:
    story = Story((an_hour_later(2),), before=(install(),))
    check_killed_everywhere(plane, story, record_property)
