"""Killed at every write: another release and back, restarts that wait for their window, a migration that is
given up and begun again, with copy jobs of a template of one's own."""

from __future__ import annotations

import time

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.crash_points import Story, Tell, check_killed_everywhere
from operator_tests.apiserver.stories import Step, require
from operator_tests.apiserver.world import World
from waltz_operator.api.metadata import RETRY
from waltz_operator.kube import kinds

PLAIN = {"tls": {"mode": "Disabled"}}
GROUPS = [{"name": "1", "count": 1}, {"name": "2"}, {"name": "3"}]
TWO_NODES = [{"name": "1", "count": 2}, *GROUPS[1:]]
COPY_JOBS = {"podTemplate": {"metadata": {"labels": {"team": "ledger"}}}}
HALF_A_DAY = 12 * 3600
DEADLINE_SECONDS = 2


def release(version: str) -> Step:
    """The cluster is brought to this release: all pods run it."""

    async def act(world: World) -> None:
        await world.change({"version": version})

    async def check(world: World) -> None:
        await _runs(world, version)

    return Step(f"to {version}", act, check)


def in_a_window(version: str) -> Step:
    """Asked for now, and the window opens in half a day."""

    async def act(world: World) -> None:
        start = time.strftime("%H:%M", time.gmtime(time.time() + HALF_A_DAY))
        window = {"start": start, "durationMinutes": 60}
        await world.change({"version": version, "restarts": {"window": window}})

    async def check(world: World) -> None:
        conditions = {one["type"]: one for one in (await world.cluster())["status"]["conditions"]}
        found = conditions["RestartRequired"]
        require(found["reason"] == "OutsideWindow", f"RestartRequired says: {found}")

    return Step("wait for the window", act, check)


def window_opens(version: str) -> Step:
    async def act(world: World) -> None:
        world.clock_offset = HALF_A_DAY + 60

    async def check(world: World) -> None:
        await _runs(world, version)

    return Step("the window opens", act, check)


def give_up() -> Step:
    """There is nowhere to go: it fails when its time is over."""

    async def act(world: World) -> None:
        await world.migrate("away", drain={"node": "1-0"}, progressDeadlineSeconds=DEADLINE_SECONDS)

    async def check(world: World) -> None:
        status = (await world.migration("away"))["status"]
        require(status["phase"] == "Failed", f"the migration: {status}")
        await stories.holds("1-0", "2-0", "3-0")(world)

    return Step("give up", act, check)


def begin_again() -> Step:
    """The group has a second node now, and a person has it begun again."""

    async def act(world: World) -> None:
        await world.change({"storage": {"groups": TWO_NODES}})
        mark = {"metadata": {"annotations": {RETRY: "1"}}}
        await world.kube.merge_patch(kinds.WALTZ_MIGRATION, world.namespace, "away", mark)

    async def check(world: World) -> None:
        status = (await world.migration("away"))["status"]
        require(status["phase"] == "Completed", f"the migration: {status}")
        await stories.replicas_are(world, *stories.pods("1-1", "2-0", "3-0"))

    return Step("begin again", act, check)


async def _runs(world: World, version: str) -> None:
    status = (await world.cluster())["status"]
    found = (status["version"], status["runningVersions"])
    require(found == (version, version), f"version, and what runs: {found}")
    await stories.holds("1-0", "2-0", "3-0")(world)


STORIES = {
    "up and back": Story(
        (release("0.1.0"), release("0.0.9")),
        before=(stories.install(replicas=3, images={}, version="0.0.9", **PLAIN),),
    ),
    "in a window": Story(
        (in_a_window("0.1.0"), window_opens("0.1.0")),
        before=(stories.install(replicas=3, images={}, version="0.0.9", **PLAIN),),
    ),
    "a migration is given up and begun again": Story(
        (give_up(), begin_again()),
        before=(stories.install(storage={"groups": GROUPS}, copyJobs=COPY_JOBS, **PLAIN),),
    ),
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORIES)
def test_a_killed_operator_s_successor_goes_on(plane: Plane, name: str, record_property: Tell) -> None:
    check_killed_everywhere(plane, STORIES[name], record_property)
