"""How long planned operations take on a cluster of eight small partitions that nobody disturbs, next to what
is wanted of each.

The cluster is one of its own, in a namespace of its own, with a load of its own: the figures are those of a
fresh install and not of what other scenarios left behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tests.e2e.load import Load
from tests.e2e.scenarios.command import waltz
from tests.e2e.scenarios.growth import NEW, groups, set_groups
from tests.e2e.scenarios.tenants import delete_owned
from tests.e2e.world import CLUSTER, SERVERS, STORAGE, WAIT_SECONDS, World

OWN_NAMESPACE = "waltz-times"
PARTITIONS = 8
INTERVAL_SECONDS = 0.02
AVAILABLE_SECONDS = 45.0
ROLL_SECONDS = 60.0
PAUSE_SECONDS = 0.3
GROWTH_SECONDS = 60.0
COPY_SECONDS = 3.0
ALONE, TOGETHER = (0, 1), (2, 3, 4, 5, 6, 7)
"""Partitions that are moved by a migration each, and by one."""


def measure(world: World) -> None:
    """Install, roll, deleted objects, moves of one partition, three groups to five."""
    here = World(world.kubectl, world.first_node, journal=world.journal)
    here.notes = world.notes
    here.kubectl = world.kubectl.in_namespace(OWN_NAMESPACE)
    here.load = Load(here.kubectl, here.first_node)
    here.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}})
    try:
        here.notes.append(f"load average {os.getloadavg()[0]:.1f} at first")
        _take(here, "install", AVAILABLE_SECONDS, lambda: _install(here))
        here.settle()
        here.load.start(here.cluster()["status"]["endpoints"])
        here.load.begin_round(INTERVAL_SECONDS)
        _take(here, "a roll of 3 + 2 pods", ROLL_SECONDS, lambda: _roll(here), paused=True)
        delete_owned(here)
        _take(here, "3 -> 5 groups", GROWTH_SECONDS, lambda: _grow(here), paused=True)
        _move(here)
        here.load.wait_flowing()
        verdict = here.load.verdict("start")
        if not verdict["passed"]:
            raise AssertionError(f"the log is not what was acknowledged: {verdict}")
        here.notes.append(f"load average {os.getloadavg()[0]:.1f} at last")
    finally:
        here.kubectl("delete", "waltzcluster", CLUSTER, "--ignore-not-found", timeout_seconds=WAIT_SECONDS)
        here.kubectl("delete", "namespace", OWN_NAMESPACE, "--wait=false")


def _take(
    world: World, what: str, target: float, operation: Callable[[], None], *, paused: bool = False
) -> None:
    """Time it, and note the longest pause of the writes meanwhile where there are any."""
    if paused:
        world.load.lap()
    start = time.monotonic()
    operation()
    seconds = time.monotonic() - start
    text = f"{what} {seconds:.1f} s (target {target:g}{_over(seconds, target)})"
    if paused:
        gap = world.load.lap()
        text += f", longest pause {gap:.2f} s (target {PAUSE_SECONDS:g}{_over(gap, PAUSE_SECONDS)})"
    world.notes.append(text)


def _over(seconds: float, target: float) -> str:
    return ", OVER" if seconds > target else ""


def _install(world: World) -> None:
    body = world.specification()
    body["spec"]["partitions"] = PARTITIONS
    world.kubectl.apply(body)
    world.wait_for("Available", "True", WAIT_SECONDS)


def _roll(world: World) -> None:
    storage, servers = world.pods(STORAGE), world.pods(SERVERS)
    waltz(world, "restart", CLUSTER, "storage")
    waltz(world, "restart", CLUSTER, "server")
    world.wait_replaced(STORAGE, storage, WAIT_SECONDS)
    world.wait_replaced(SERVERS, servers, WAIT_SECONDS)
    world.settle()


def _grow(world: World) -> None:
    set_groups(world, [*groups(world), *({"name": name, "count": 1} for name in NEW)])
    world.settle()


def _move(world: World) -> None:
    """To a second node of a group: partitions by a migration each, which is seen to end by asking over and
    over with kubectl, and several by one: what a small copy takes."""
    changed = [{**group, "count": 2} if group["name"] == "1" else group for group in groups(world)]
    set_groups(world, changed)
    world.settle()
    alone = " ".join(f"{_moved(world, (number,)):.1f}" for number in ALONE)
    each = _moved(world, TOGETHER) / len(TOGETHER)
    world.notes.append(
        f"{len(TOGETHER)} small copies {each:.1f} s each (target {COPY_SECONDS:g}{_over(each, COPY_SECONDS)}), "
        f"a migration for each {alone} s with kubectl"
    )


def _moved(world: World, partitions: tuple[int, ...]) -> float:
    """Seconds of one migration."""
    start = time.monotonic()
    move = {"from": "1-0", "to": "1-1", "partitions": list(partitions)}
    world.migrate(f"move-{partitions[0]}", move=move)
    taken = time.monotonic() - start
    world.settle()
    return taken
