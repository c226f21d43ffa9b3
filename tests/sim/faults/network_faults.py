"""Links: reset, cut, blocked one way or both, late, slow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.sim.faults.common import SkippedError
from tests.sim.faults.plan import ZOOKEEPER, Fault

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

Direction = tuple[str, str]


async def connection_reset(world: World, fault: Fault) -> None:
    """All connections between two hosts are reset."""
    if not world.loop.network.reset(*fault.targets):
        raise SkippedError("there was no connection")
    await asyncio.sleep(0)


async def cut_in_frame(world: World, fault: Fault) -> None:
    """Of the next data a part arrives, then the connection is gone."""
    world.loop.network.cut_inside_next_frame(*fault.targets)
    await asyncio.sleep(0)


@contextmanager
def blocked(world: World, directions: list[Direction]) -> Iterator[None]:
    """Nothing gets through in these directions. Blocks may overlap: one is open again when the last block is
    over."""
    for direction in directions:
        world.blocked[direction] += 1
        world.loop.network.block(*direction)
    try:
        yield
    finally:
        for direction in directions:
            world.blocked[direction] -= 1
            if not world.blocked[direction]:
                world.loop.network.unblock(*direction)


async def block(world: World, directions: list[Direction], seconds: float) -> None:
    """For so long."""
    with blocked(world, directions):
        await asyncio.sleep(seconds)


async def one_way_block(world: World, fault: Fault) -> None:
    """What one says does not reach the other; the answers would."""
    one, other = fault.targets
    await block(world, [(one, other)], fault.seconds)


async def partition(world: World, fault: Fault) -> None:
    """Two hosts do not hear each other."""
    one, other = fault.targets
    await block(world, [(one, other), (other, one)], fault.seconds)


async def isolation(world: World, fault: Fault) -> None:
    """A host hears nobody and is heard by nobody; now and then it still reaches ZooKeeper."""
    name = fault.targets[0]
    others = [other for other in world.roles() if other != name]
    if fault.amount < 0.7:
        others.append(ZOOKEEPER)
    directions = [pair for other in others for pair in ((name, other), (other, name))]
    await block(world, directions, fault.seconds)


async def latency_spike(world: World, fault: Fault) -> None:
    """Packets take up to seconds."""
    network, (source, target) = world.loop.network, fault.targets
    network.set_latency(source, target, 0.02, 0.05 + 3 * fault.amount**2)
    await asyncio.sleep(fault.seconds)
    network.set_latency(source, target, *network.default_latency_seconds)


async def slow_link(world: World, fault: Fault) -> None:
    """A few hundred bytes per second, or some thousand."""
    network, (source, target) = world.loop.network, fault.targets
    network.set_bandwidth(source, target, 300 + 8000 * fault.amount)
    await asyncio.sleep(fault.seconds)
    network.set_bandwidth(source, target, None)


HANDLERS = {
    "connection-reset": connection_reset,
    "cut-in-frame": cut_in_frame,
    "one-way-block": one_way_block,
    "partition": partition,
    "isolation": isolation,
    "latency-spike": latency_spike,
    "slow-link": slow_link,
}
