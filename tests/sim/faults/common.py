"""What the functions of all kinds of faults use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.sim.cluster.admin import RefusedError
from tests.sim.cluster.role import Role
from tests.sim.cluster.storage_role import StorageRole

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

POLL_SECONDS = 0.5
AGAIN_SECONDS = 1.0
PERMISSION_SECONDS = 20.0
"""How long a destructive fault waits until the others have everything."""
UNDER_LOAD_SECONDS = 300.0
"""How long a change is tried under load. Where a session ends after a few appends and the network is slow, it
is over before a late replica is listed, and a change that needs that replica waits: then the load ends
first."""


class SkippedError(Exception):
    """The fault finds nothing to strike, or would go beyond what is promised."""


def role_of(world: World, name: str) -> Role:
    """The role of this name, which must be running."""
    role = world.roles()[name]
    if not role.alive:
        raise SkippedError(f"{name} does not run")
    return role


def storage_of(world: World, name: str) -> StorageRole:
    """The storage node of this name, which must be serving."""
    role = world.storage[name]
    if not role.alive or role.node is None:
        raise SkippedError(f"{name} does not serve")
    return role


async def until_done(world: World, action: Callable[[], Awaitable[None]]) -> None:
    """What a fault has begun is always undone before the run ends."""
    deadline = world.loop.time() + UNDER_LOAD_SECONDS
    while True:
        try:
            await action()
        except RefusedError as error:
            world.loop.note(f"to be tried again: {error}")
            if world.loop.time() >= deadline:
                world.access.stopping.set()
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return


async def wait_dead(role: Role, seconds: float) -> bool:
    """Whether its process ended within this time."""
    deadline = role.loop.time() + seconds
    while role.alive:
        if role.loop.time() >= deadline:
            return False
        await asyncio.sleep(POLL_SECONDS / 5)
    return True


async def permission(world: World, name: str, partitions: list[int] | None = None) -> StorageRole:
    """Wait until the node's copies may be destroyed. SkippedError when that does not come."""
    deadline = world.loop.time() + PERMISSION_SECONDS
    while True:
        role = storage_of(world, name)
        if world.state.can_lose(name, partitions):
            return role
        if world.loop.time() >= deadline:
            raise SkippedError(f"the others do not have everything that {name} has")
        await asyncio.sleep(POLL_SECONDS)


@contextmanager
def changing(world: World, partition: int) -> Iterator[None]:
    """No destructive fault strikes a partition whose replicas are being changed, and no damaged one is
    changed."""
    if any(rotten == partition for _, rotten in world.state.rotten) or world.state.changing[partition]:
        raise SkippedError(f"partition {partition} is damaged, or being changed")
    world.state.changing[partition] += 1
    try:
        yield
    finally:
        world.state.changing[partition] -= 1


@contextmanager
def kept_down(role: Role) -> Iterator[None]:
    """Killed, and started again in the end."""
    role.hold()
    role.kill()
    try:
        yield
    finally:
        role.release()
