"""The metadata of one partition, or of all, is restored from an older copy; then an administrator settles it
by the book.

Within the promise: nobody's disk is lost at the same time, and one replica at least is the same as in the
copy: if all were changed it cannot be distinguished (docs/adr/0008).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.cluster.admin import RefusedError
from tests.sim.faults.common import AGAIN_SECONDS, SkippedError
from tests.sim.faults.plan import Fault
from waltz_server.store.api import StoreState

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

ALL = 0.3
"""How often the metadata of all partitions is restored, and not of one."""
RESTART = 0.6
"""How often the servers are restarted with it; else they continue until their session ends."""
SERVED_SECONDS = 5.0
"""So long a partition has to be served for the administrator to be content."""


async def older_copy(world: World, fault: Fault) -> None:
    """See the module."""
    rng = world.loop.rng(f"fault {fault.number}")
    every = list(range(world.shape.partitions))
    partitions = every if rng.random() < ALL else [rng.choice(every)]
    copies = _copies(world, partitions)
    await asyncio.sleep(fault.seconds)
    now = _copies(world, partitions)
    partitions = [p for p in partitions if _may(world, p, copies.get(p), now.get(p))]
    if not partitions:
        raise SkippedError("nothing has changed, or a disk is lost, or replicas were changed")
    for partition in partitions:
        world.state.changing[partition] += 1
    restart = rng.random() < RESTART
    try:
        if restart:
            for server in world.servers.values():
                server.kill()
        for partition in partitions:
            world.zookeeper.set(world.state.paths.partition(partition), copies[partition], -1)
            world.counts["metadata put back"] += 1
        await _settle(world, {p: world.state.replicas_in(copies[p]) for p in partitions}, restart=restart)
    finally:
        for partition in partitions:
            world.state.changing[partition] -= 1


def _copies(world: World, partitions: list[int]) -> dict[int, bytes]:
    found = {}
    for partition in partitions:
        node = world.zookeeper.find(world.state.paths.partition(partition))
        if node is not None and node.data:
            found[partition] = node.data
    return found


def _may(world: World, partition: int, copy: bytes | None, now: bytes | None) -> bool:
    state = world.state
    if copy is None or now is None or copy == now or state.changing[partition]:
        return False
    before, after = state.replicas_in(copy), state.replicas_in(now)
    if not before or after != set(state.assigned(partition)):
        return False
    if not before & after:
        return False
    return not any(state.is_lost(name, partition) for name in after)


async def _settle(world: World, listed: dict[int, set[str]], *, restart: bool) -> None:
    """Until every partition is served: look, accept what the nodes hold, restart the servers that continue
    with what is forgotten. `listed`: partition -> the replicas that the copy names."""
    left = list(listed)
    served_since: dict[int, float] = {}
    while left:
        if not restart:  # a session that continues looks well, and its server does not see what was restored
            await asyncio.sleep(SERVED_SECONDS)
            for server in world.servers.values():
                server.kill()
            restart = True
        for partition in left:
            if not await _accept(world, partition):
                # A replica of the copy that has been replaced since never answers.
                await _accept(
                    world, partition, sorted(listed[partition] - {*world.state.assigned(partition)})
                )
        await asyncio.sleep(AGAIN_SECONDS)
        now = world.loop.time()
        for partition in left:
            if not _served(world, partition):
                served_since.pop(partition, None)
            else:
                served_since.setdefault(partition, now)
        left = [p for p in left if p not in served_since or now - served_since[p] < SERVED_SECONDS]


async def _accept(world: World, partition: int, removed: Sequence[str] = ()) -> bool:
    try:
        count = await world.admin.accept_restored(partition, removed)
    except RefusedError as error:
        world.loop.note(f"accept-restored: {error}")
        return False
    world.counts["metadata accepted"] += count
    return True


def _served(world: World, partition: int) -> bool:
    stores = [store for role in world.servers.values() if (store := role.store(partition)) is not None]
    return any(store.state is StoreState.OPEN for store in stores)


HANDLERS = {"zookeeper-older-copy": older_copy}
