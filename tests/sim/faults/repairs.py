"""What an administrator does about nodes that lost something: fill empty ones, rebuild damaged ones, restart
troubled ones.

Repairs obey the same rule as faults: a damaged copy is thrown away only while the others have everything.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.cluster.admin import RefusedError

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

POLL_SECONDS = 1.0
ATTEMPTS = 30
SYNC_SECONDS = 20.0
LOOK_SECONDS = 3.0


class Repairs:
    """Owner: the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def refill(self, name: str) -> None:
        """A node has an empty or an older directory: assign its partitions to it."""
        world = self._world
        for _ in range(ATTEMPTS):
            node = world.storage[name].node
            held = [] if node is None else list(node.manager.partitions)
            missing = [
                partition
                for partition in range(world.shape.partitions)
                if name in world.state.assigned(partition) and partition not in held
            ]
            if all((name, partition) in world.state.rotten for partition in missing):
                return
            try:
                await world.admin.sync_partitions(SYNC_SECONDS)
            except RefusedError as error:
                world.loop.note(f"refill of {name}: {error}")
            await asyncio.sleep(POLL_SECONDS)

    async def rebuild(self, name: str, partition: int) -> None:
        """Throw a damaged copy away and have it filled again, when that is allowed; one on which nobody
        counts is only thrown away."""
        world = self._world
        for _ in range(ATTEMPTS):
            if (name, partition) not in world.state.rotten:
                return
            role = world.storage[name]
            counts = partition in world.state.concerned(name)
            allowed = not counts or world.state.can_lose(name, [partition])
            if role.alive and role.node is not None and allowed:
                try:
                    await world.admin.rebuild(partition, name, fill=counts)
                except RefusedError as error:
                    world.loop.note(f"rebuild: {error}")
                else:
                    world.state.rotten.pop((name, partition), None)
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def repair_all(self) -> None:
        """After the faults: nodes out of service get a fresh look at their disks, what is still damaged is
        rebuilt."""
        world = self._world
        for role in world.storage.values():
            if role.node is not None and role.in_trouble():
                world.loop.note(f"{role.name} has problems: {role.node.health()[1]}")
                role.kill()
        await asyncio.sleep(LOOK_SECONDS)
        for name in world.storage:
            await self.refill(name)
        for name, partition in list(world.state.rotten):
            await self.rebuild(name, partition)
        for name, role in world.storage.items():
            if role.node is None:
                continue
            for partition, problem in role.node.manager.problems().items():
                world.violation(
                    "out_of_service", f"{name}, though nothing damaged it: partition {partition}: {problem}"
                )
