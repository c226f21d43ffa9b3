"""How long writes wait when something planned is done: the median of several times, next to a time when
nothing is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle, islice
from statistics import median

from tests.e2e.world import SERVERS, STORAGE, WAIT_SECONDS, World

TIMES = 3
QUIET_SECONDS = 2.0
STORAGE_TARGET_SECONDS = 1.0
MOVE_TARGET_SECONDS = 1.0
SERVER_TARGET_SECONDS = 2.0
_PARTITION = 2


def measure(world: World) -> None:
    """Storage nodes and servers are stopped as a planned restart stops them, a replica goes from node to
    node: `TIMES` times each."""
    quiet = _laps(world, lambda number: time.sleep(QUIET_SECONDS))
    world.notes.append(f"medians of {TIMES}: nothing {quiet:.2f} s")
    _note(
        world,
        "storage restart",
        _laps(world, lambda number: _restart(world, STORAGE, number)),
        STORAGE_TARGET_SECONDS,
    )
    _note(
        world,
        "server restart",
        _laps(world, lambda number: _restart(world, SERVERS, number)),
        SERVER_TARGET_SECONDS,
    )
    nodes = list(islice(cycle(["1-0", "1-1"]), TIMES + 1))
    _note(
        world, "replica move", _laps(world, lambda number: _move(world, nodes, number)), MOVE_TARGET_SECONDS
    )


def _laps(world: World, operation: Callable[[int], None]) -> float:
    """Median of the longest gaps."""
    found = []
    for number in range(TIMES):
        world.load.lap()
        operation(number)
        found.append(world.load.lap())
    return median(found)


def _restart(world: World, selector: str, number: int) -> None:
    """What the operator and a Deployment do to a pod: deleted with its time of grace, made again by its
    owner."""
    before = world.pods(selector)
    victim = sorted(before)[number % len(before)]
    world.kubectl("delete", "pod", victim, "--wait=false")
    world.wait_replaced(selector, {victim: before[victim]}, WAIT_SECONDS, count=len(before))
    world.settle()


def _move(world: World, nodes: list[str], number: int) -> None:
    what = {"from": nodes[number], "to": nodes[number + 1], "partitions": [_PARTITION]}
    world.migrate(f"gap-{number}", move=what)


def _note(world: World, what: str, seconds: float, target: float) -> None:
    over = ", OVER" if seconds > target else ""
    world.notes.append(f"{what} {seconds:.2f} s (target {target:g}{over})")
