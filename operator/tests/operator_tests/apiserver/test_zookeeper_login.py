"""A managed ZooKeeper with credentials, on a real API server: a new cluster, one that exists and is closed
and opened while it is written to, credentials that are lost, and an operator that dies at every write of
this."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.crash_points import Story, Tell, check_killed_everywhere
from operator_tests.apiserver.stories import Step, require
from operator_tests.apiserver.world import NAME, World
from waltz_operator.kube import kinds
from waltz_operator.tls.secrets import secret_data

SECRET = f"{NAME}-zookeeper-auth"
NODES = ("1-0", "2-0", "3-0")


def managed(authentication: str | None) -> dict[str, Any]:
    said = {} if authentication is None else {"authentication": authentication}
    return {
        "images": {
            "server": "waltz-server:1",
            "storage": "waltz-storage:1",
            "zookeeper": "waltz-zookeeper:1",
        },
        "zookeeper": {"managed": {"replicas": 1} | said},
        "tls": {"mode": "Disabled"},
        "replicas": 3,
    }


async def is_as(world: World, authentication: str) -> None:
    """Every role works, nobody of them was ever refused, and strangers can read what they are to."""
    await stories.holds(*NODES)(world)
    require(not world.zookeeper.refused, f"refused: {world.zookeeper.refused}")
    status = (await world.cluster())["status"]
    shown = status["zookeeper"]
    login = {"None": "None", "Optional": "Shared", "Digest": "Own"}[authentication]
    require((shown["authentication"], shown["login"]) == (authentication, login), f"the status says {shown}")
    root = f"/waltz/{world.namespace}/{NAME}"
    tree = {root, f"{root}/store", f"{root}/store/assignment", f"{root}/ids/client", "/"}
    if authentication == "Digest":
        require(shown["closed"] is True, f"the status says {shown}")
        require(tree <= world.zookeeper.closed(), f"open to strangers: {tree - world.zookeeper.closed()}")
        require(status["endpoints"]["zookeeperSecret"] == SECRET, f"endpoints: {status['endpoints']}")
    else:
        require(not world.zookeeper.closed(), f"closed to strangers: {world.zookeeper.closed()}")


def install(authentication: str | None, shown: str) -> Step:
    async def act(world: World) -> None:
        await world.create(stories.spec(**managed(authentication)))

    async def check(world: World) -> None:
        await is_as(world, shown)

    return Step("install", act, check)


def want(authentication: str) -> Step:
    async def act(world: World) -> None:
        await world.change({"zookeeper": {"managed": {"authentication": authentication}}})

    async def check(world: World) -> None:
        await is_as(world, authentication)

    return Step(f"authentication {authentication}", act, check)


async def credentials(world: World) -> bytes:
    return secret_data(await world.kube.get(kinds.SECRET, world.namespace, SECRET))["zookeeper.auth"]


def test_a_new_cluster_is_closed_from_the_beginning(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install(None, "Digest"))
        begun = world.journal.lines
        made = next(n for n, line in enumerate(begun) if line.startswith("create cluster"))
        shut = next(n for n, line in enumerate(begun) if line.startswith("let who has the credentials"))
        require(shut < made, "the tree was made before strangers were kept out")
        before = len(begun)
        await world.settle()
        require(world.journal.lines[before:] == [], "nothing is written when nothing changed")
        await world.delete()
        await world.settle()
        require(bool(await credentials(world)), "they stay with the volumes, which need them")

    assert plane.run(scenario).errors == []


@pytest.mark.long
def test_the_credentials_stay_as_long_as_the_volumes(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install(None, "Digest"))
        value = await credentials(world)
        for policy in ("Delete", "Retain"):
            await world.change({"reclaimPolicy": policy})
            await world.settle()
            body = await world.kube.get(kinds.SECRET, world.namespace, SECRET)
            found = body["metadata"].get("ownerReferences") or []
            require(found == [], f"with {policy}: {found}")
            require(await credentials(world) == value, "they are the same")

    assert plane.run(scenario).errors == []


@pytest.mark.long
def test_an_open_cluster_is_closed_and_opened_again(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(
            world, install("None", "None"), want("Optional"), want("Digest"), want("Optional"), want("None")
        )

    assert plane.run(scenario).errors == []


def test_lost_credentials_are_never_replaced(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install("Digest", "Digest"))
        body = await world.kube.get(kinds.SECRET, world.namespace, SECRET)
        uid, value = body["metadata"]["uid"], await credentials(world)
        await world.kube.delete(kinds.SECRET, world.namespace, SECRET, uid=uid)
        before = len(world.journal.lines)
        await world.change({"images": {"server": "waltz-server:2"}})
        for _ in range(4):
            await world.operator.one_pass(world.namespace)
        written = [line for line in world.journal.lines[before:] if not line.startswith("write the status")]
        require(written == [], f"without the credentials: {written}")
        status = (await world.cluster())["status"]
        degraded = next(c for c in status["conditions"] if c["type"] == "Degraded")
        require(degraded["reason"] == "CredentialsLost", f"Degraded: {degraded}")
        metadata = {key: body["metadata"][key] for key in ("name", "namespace", "labels")}
        await world.kube.create({**body, "metadata": metadata})
        require(await credentials(world) == value, "they are there again")
        world.zookeeper.refused.clear()  # the operator alone
        await world.settle()
        await is_as(world, "Digest")

    plane.run(scenario)


@pytest.mark.long
def test_a_container_that_starts_again_before_its_pod_has_credentials(plane: Plane) -> None:
    """The ConfigMap changes below a pod that was made without them: its own file is there still."""

    async def scenario(world: World) -> None:
        await stories.play(world, install("None", "None"))
        await world.change({"zookeeper": {"managed": {"authentication": "Digest"}}})
        while not any("apply ConfigMap" in line for line in world.journal.lines[-8:]):
            await world.operator.one_pass(world.namespace)
        pod = stories.pods("3-0")[0]
        await world.machinery.crash(pod)
        await world.machinery.settle()
        require(pod in world.machinery.pods, "the container does not start again")
        await world.settle()
        await is_as(world, "Digest")

    plane.run(scenario)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "story",
    [
        pytest.param(Story((install(None, "Digest"), stories.delete_managed())), id="install, delete"),
        pytest.param(
            Story((want("Digest"), want("None")), before=(install("None", "None"),)), id="close, open"
        ),
    ],
)
def test_a_killed_operator_s_successor_goes_on(plane: Plane, story: Story, record_property: Tell) -> None:
    check_killed_everywhere(plane, story, record_property)
