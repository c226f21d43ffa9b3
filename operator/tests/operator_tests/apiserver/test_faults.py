"""Old answers, conflicts, lost answers, forbidden verbs, silent admin ports: nothing is destroyed, what is
the matter is said, and the fixed point is reached when the fault is over. The operator of these tests gets no
events at all: every pass is a resync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.faulty import FaultyKube
from operator_tests.apiserver.loop import cluster_loop
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.world import NAME, World
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube

PLAIN: dict[str, Any] = {"tls": {"mode": "Disabled"}, "reclaimPolicy": "Delete"}
DESTRUCTIVE = (
    "unassign",
    "remove partition",
    "unregister",
    "delete Persistent",
    "delete StatefulSet",
    "restart",
)


class Between:
    """Keeps the client that was put in between."""

    def __init__(self) -> None:
        self.kube: FaultyKube | None = None

    def __call__(self, real: Kube) -> Kube:
        self.kube = FaultyKube(real)
        return self.kube


def destroyed(world: World, since: int) -> list[str]:
    return [line for line in world.journal.lines[since:] if line.startswith(DESTRUCTIVE)]


def every_third_pass_is_old(world: World, kube: FaultyKube) -> None:
    """Of three passes the third sees what the second one saw."""
    really, passes = world.operator.one_pass, 0

    async def one_pass(namespace: str) -> Any:
        nonlocal passes
        passes += 1
        kube.old = passes % 3 == 0
        try:
            return await really(namespace)
        finally:
            kube.old = False

    world.operator.one_pass = one_pass  # type: ignore[method-assign]


def _old(world: World, kube: FaultyKube) -> None:
    every_third_pass_is_old(world, kube)


def _conflicts(world: World, kube: FaultyKube) -> None:
    kube.conflicts = True


def _lost_answers(world: World, kube: FaultyKube) -> None:
    kube.lost_answers = True


@pytest.mark.long
@pytest.mark.parametrize("fault", [_old, _conflicts, _lost_answers])
def test_a_life_with_a_bad_api_server(plane: Plane, fault: Callable[[World, FaultyKube], None]) -> None:
    between = Between()

    async def scenario(world: World) -> None:
        assert between.kube is not None
        fault(world, between.kube)
        await stories.play(
            world,
            stories.install(replicas=3, **PLAIN),
            stories.change("grow to 4", {"replicas": 4}, "1-0", "2-0", "3-0", "4-0"),
            stories.change("shrink to 3", {"replicas": 3}, "1-0", "2-0", "3-0"),
            stories.delete("Delete"),
        )
        if fault is _old:
            require(between.kube.old_answers > 50, "there were no old answers")

    plane.run(scenario, through=between)


def test_a_silent_admin_port_lets_nothing_be_destroyed(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=4, **PLAIN))
        loop, host = cluster_loop(), f"{NAME}-storage-1-0-0.{NAME}-storage.{world.namespace}.svc"
        admin = next(key for key in loop.names if key[0] == host and key[1] != 55280)
        loop.cut.add(admin)
        before = len(world.journal.lines)
        await world.change({"replicas": 2, "images": {"storage": "waltz-storage:2"}})
        for _ in range(8):
            await world.operator.one_pass(world.namespace)
            await world.machinery.settle()
        # the silent node itself may be restarted: the others are proven to be a quorum
        wrong = [
            line for line in destroyed(world, before) if not line.startswith(f"restart {NAME}-storage-1-0-0")
        ]
        require(not wrong, f"destroyed: {wrong}")
        await _told(world, "Progressing", f"{NAME}-storage-1-0-0")
        loop.cut.clear()
        await world.settle()
        await stories.holds("1-0", "2-0")(world)

    plane.run(scenario)


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        ("delete", kinds.POD),
        pytest.param("patch", kinds.STATEFUL_SET, marks=pytest.mark.long),
        pytest.param("list", kinds.PVC, marks=pytest.mark.long),
        pytest.param("update", kinds.WALTZ_CLUSTER, marks=pytest.mark.long),
    ],
)
def test_a_forbidden_verb_is_said_and_waited_for(plane: Plane, verb: str, kind: kinds.Kind) -> None:
    between = Between()

    async def scenario(world: World) -> None:
        kube = between.kube
        assert kube is not None
        await stories.play(world, stories.install(replicas=3, **PLAIN))
        kube.forbidden = {(verb, kind)}
        before = len(world.journal.lines)
        await world.change({"images": {"storage": "waltz-storage:2"}})
        errors = set()
        for _ in range(4):
            result = await world.operator.one_pass(world.namespace)
            errors.add(f"{result.error}{result.left_out}")
            await world.machinery.settle()
        said = "; ".join(errors)
        if (verb, kind) in (("delete", kinds.POD), ("patch", kinds.STATEFUL_SET)):
            await _told(world, "Degraded", "forbidden")
        if verb == "list":
            await _told(world, "Progressing", "forbidden")
        else:
            require("forbidden" in said, f"nobody is told: {errors}")
        lost = [line for line in destroyed(world, before) if not line.startswith("restart")]
        require(not lost, f"destroyed: {lost}")
        kube.forbidden = set()
        await world.settle()
        await stories.holds("1-0", "2-0", "3-0")(world)

    plane.run(scenario, through=between)


def test_kinds_of_others_that_are_forbidden_are_said_once_and_the_rest_goes_on(plane: Plane) -> None:
    """404 and 403 are the same: there is nothing that could be made. The shipped role permits them, and here
    they are not installed."""
    between = Between()

    async def scenario(world: World) -> None:
        kube = between.kube
        assert kube is not None
        kube.forbidden = {("list", kind) for kind in kinds.EXTENSIONS}
        await stories.play(
            world, stories.install(replicas=3, **PLAIN, monitoring={"monitor": "ServiceMonitor"})
        )
        await _told(world, "Valid", "ServiceMonitor: its definition is not installed")
        kube.forbidden = set()
        before = len(world.journal.lines)
        await world.settle()
        require(world.journal.lines[before:] == [], f"still writing: {world.journal.lines[before:]}")

    plane.run(scenario, through=between)


async def _told(world: World, kind: str, text: str) -> None:
    body = await world.cluster()
    found = next(one for one in body["status"]["conditions"] if one["type"] == kind)
    require(text in found["message"], f"{kind} says: {found['message']}")
