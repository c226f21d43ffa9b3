"""What administrators do while everything else goes wrong: replicas moved, taken away and given back, rolling
restarts.

The rules of safe changes (A6) are the product's: an operation it refuses is an operation tried.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from tests.sim.cluster.admin import RefusedError
from tests.sim.cluster.role import TERMINATE_SECONDS, Role
from tests.sim.faults.common import SkippedError, changing, wait_dead
from tests.sim.faults.plan import Fault

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

SYNC_SECONDS = 10.0
ATTEMPTS = 8
PAUSE_SECONDS = 2.0
SETTLE_SECONDS = 20.0
POLL_SECONDS = 0.5


async def _until_allowed(world: World, action: Callable[[], Awaitable[None]]) -> bool:
    """Try an operation until it is allowed; False when it never was."""
    for _ in range(ATTEMPTS):
        try:
            await action()
        except RefusedError as error:
            world.counts["operations refused"] += 1
            world.loop.note(f"refused: {error}")
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            world.counts["operations done"] += 1
            return True
    return False


async def _sync(world: World) -> None:
    try:
        await world.admin.sync_partitions(SYNC_SECONDS)
    except RefusedError as error:
        world.loop.note(f"sync-partitions: {error}")


def _draw(world: World, fault: Fault) -> tuple[random.Random, int]:
    rng = world.loop.rng(f"fault {fault.number}")
    return rng, rng.randrange(world.shape.partitions)


async def move(world: World, fault: Fault) -> None:
    """A new replica, and when it has caught up an old one less."""
    rng, partition = _draw(world, fault)
    held = world.state.assigned(partition)
    free = [name for name in world.storage if name not in held]
    if not free or not held:
        raise SkippedError("there is no node to move to")
    target, source = rng.choice(free), rng.choice(held)
    with changing(world, partition):
        if await _until_allowed(world, lambda: world.admin.assign(partition, target)):
            await _sync(world)
            await asyncio.sleep(fault.seconds)
            if await _until_allowed(world, lambda: world.admin.unassign(partition, source)):
                await _sync(world)


async def remove_add(world: World, fault: Fault) -> None:
    """A replica less, and after a while it comes back, as it was when it left."""
    rng, partition = _draw(world, fault)
    held = world.state.assigned(partition)
    if len(held) < 2:
        raise SkippedError("the last replica stays")
    node = rng.choice(held)
    with changing(world, partition):
        if await _until_allowed(world, lambda: world.admin.unassign(partition, node)):
            if fault.amount < 0.5:
                await _sync(world)
            await asyncio.sleep(fault.seconds)
            if await _until_allowed(world, lambda: world.admin.assign(partition, node)):
                await _sync(world)


async def _one_by_one(world: World, roles: Sequence[Role], fault: Fault) -> None:
    for role in roles:
        role.hold()
        role.terminate()
        await wait_dead(role, TERMINATE_SECONDS + 1)
        await asyncio.sleep(fault.seconds)
        role.release()
        deadline = world.loop.time() + SETTLE_SECONDS
        while not world.state.settled() and world.loop.time() < deadline:
            await asyncio.sleep(POLL_SECONDS)


async def rolling_restart(world: World, fault: Fault) -> None:
    """Every storage node once, each after the one before has caught up."""
    await _one_by_one(world, list(world.storage.values()), fault)


async def rolling_restart_servers(world: World, fault: Fault) -> None:
    """Every server once."""
    await _one_by_one(world, list(world.servers.values()), fault)


HANDLERS = {
    "replica-move": move,
    "replica-remove-add": remove_add,
    "rolling-restart": rolling_restart,
    "rolling-restart-servers": rolling_restart_servers,
}
