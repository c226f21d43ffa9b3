"""Releases of a cluster on a real API server: up and back by `spec.version`, what is refused, what waits for
the window of restarts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.test_crashes_in_repairs import LIFETIMES, ROTATED_DAYS
from operator_tests.apiserver.test_refusals import condition
from operator_tests.apiserver.world import NAME, World
from waltz_operator.kube import kinds
from waltz_operator.run.preview import preview
from waltz_operator.tls.secrets import secret_data

HALF_A_DAY = 12 * 3600
STORAGE = {f"{NAME}-storage-{group}-0-0" for group in "123"}


def in_half_a_day() -> str:
    return time.strftime("%H:%M", time.gmtime(time.time() + HALF_A_DAY))


def install(**more: Any) -> stories.Step:
    return stories.install(replicas=3, images={}, tls={"mode": "Disabled"}, **more)


async def parts_started(world: World, version: str) -> list[str]:
    """Bring it to this release; which part's pods were started, in their order."""
    world.machinery.started.clear()
    await world.change({"version": version})
    await world.settle()
    status = (await world.cluster())["status"]
    require(status["version"] == version, f"it is at {status['version']}")
    require(status["runningVersions"] == version, f"pods run {status['runningVersions']}")
    return ["storage" if name in STORAGE else "server" for name in world.machinery.started]


async def planned(world: World, version: str) -> list[dict[str, str]]:
    """What `waltz k8s upgrade --plan` shows."""
    observation = await world.operator.parts.observer.observe(world.namespace, NAME)
    spec = {**(await world.cluster())["spec"], "version": version}
    found: list[dict[str, str]] = preview(observation, spec)["restarts"]
    return found


@pytest.mark.long
def test_a_cluster_goes_back_a_release_and_up_again(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install(version="0.1.0"))
        status = (await world.cluster())["status"]
        require(status["runningVersions"] == "0.1.0", f"it runs {status['runningVersions']}")
        running = {one["component"]: one for one in status["running"]}
        require(running["storage"]["image"] == "waltz-storage:0.1.0", f"{running}")
        require(set(running["storage"]["names"]) == STORAGE, f"{running}")
        before = list(world.journal.lines)
        back = await planned(world, "0.0.9")
        require([one["component"] for one in back] == ["server", *["storage"] * 3], f"planned: {back}")
        require(back[0]["from"] == "waltz-server:0.1.0", f"planned: {back}")
        require(back[0]["to"] == "waltz-server:0.0.9", f"planned: {back}")
        require(back[1]["waits"] == f"{back[0]['pod']} comes first", f"planned: {back}")
        require(world.journal.lines == before, "the plan wrote something")
        down = await parts_started(world, "0.0.9")
        require(down == ["server", *["storage"] * 3], f"started: {down}")
        up = await parts_started(world, "0.1.0")
        require(up == [*["storage"] * 3, "server"], f"started: {up}")

    plane.run(scenario)


def test_a_release_that_is_not_the_next_is_refused_and_the_rest_is_done(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install(version="0.0.9"))
        world.machinery.started.clear()
        await world.change({"version": "0.2.0", "servers": {"replicas": 2}})
        await world.settle()
        valid = await condition(world, "Valid")
        require((valid["status"], valid["reason"]) == ("False", "RefusedChange"), f"Valid says: {valid}")
        require("upgrade the operator first" in valid["message"], f"Valid says: {valid}")
        status = (await world.cluster())["status"]
        require((status["version"], status["runningVersions"]) == ("0.0.9", "0.0.9"), f"status: {status}")
        require(len(world.machinery.started) == 1, f"started: {world.machinery.started}")
        deployment = await world.kube.get(kinds.DEPLOYMENT, world.namespace, f"{NAME}-server")
        require(deployment["spec"]["replicas"] == 2, "the rest was not done")

    plane.run(scenario)


@pytest.mark.long
def test_restarts_wait_for_the_window(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install(version="0.0.9"))
        world.machinery.started.clear()
        later = in_half_a_day()
        window = {"start": later, "durationMinutes": 60}
        await world.change({"version": "0.1.0", "restarts": {"window": window}, "servers": {"replicas": 2}})
        await world.settle()
        waiting = await condition(world, "RestartRequired")
        require(
            (waiting["status"], waiting["reason"]) == ("True", "OutsideWindow"), f"RestartRequired: {waiting}"
        )
        require(f"every day {later} UTC" in waiting["message"], f"RestartRequired says: {waiting}")
        require(all(name in waiting["message"] for name in STORAGE), f"RestartRequired says: {waiting}")
        require(len(world.machinery.started) == 1, f"started: {world.machinery.started}")
        status = (await world.cluster())["status"]
        require(status["reason"] == "OutsideWindow", f"the reason is {status['reason']}")
        require(status["runningVersions"] == "0.0.9", f"it runs {status['runningVersions']}")
        world.clock_offset = HALF_A_DAY + 60
        world.machinery.started.clear()
        await world.settle()
        status = (await world.cluster())["status"]
        require(status["runningVersions"] == "0.1.0", f"it runs {status['runningVersions']}")
        require(
            (await condition(world, "RestartRequired"))["status"] == "False", "restarts are required still"
        )

    plane.run(scenario)


@pytest.mark.long
def test_no_round_of_a_new_authority_begins_while_the_restarts_of_the_last_one_wait(plane: Plane) -> None:
    """That no pod runs with the round before is what the next round counts on."""

    async def authority(world: World) -> set[str]:
        return set(secret_data(await world.kube.get(kinds.SECRET, world.namespace, f"{NAME}-tls-ca")))

    async def scenario(world: World) -> None:
        world.clock_offset = -ROTATED_DAYS * 86_400
        window = {"start": in_half_a_day(), "durationMinutes": 60}
        await stories.play(world, stories.install(replicas=3, tls=LIFETIMES, restarts={"window": window}))
        world.machinery.started.clear()
        world.clock_offset = 0.0
        await world.settle()
        require(await authority(world) == {"tls.crt", "tls.key", "next.crt", "next.key"}, "not announced")
        require(world.machinery.started == [], f"started: {world.machinery.started}")
        require((await condition(world, "RestartRequired"))["reason"] == "OutsideWindow", "not said")
        await world.change({"restarts": {"window": None}})
        await world.settle()
        require(await authority(world) == {"tls.crt", "tls.key"}, "the rotation has not come to its end")
        require(len(world.machinery.started) == 3 * 4, f"started: {world.machinery.started}")

    plane.run(scenario)
