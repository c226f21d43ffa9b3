"""What only servers that watch each other notice: links between them, one that freezes again and again, all
but one gone at once."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.sim.cluster.shape import peer_timeout_seconds
from tests.sim.faults.common import SkippedError, kept_down, role_of
from tests.sim.faults.network_faults import block
from tests.sim.faults.plan import Fault

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

BOTH_WAYS = 0.6
ALL_LINKS = 0.25
FROZEN_TIMEOUTS = 1.6
AWAKE_SECONDS = 3.0


async def peer_block(world: World, fault: Fault) -> None:
    """Two servers do not hear each other, or only one way; now and then no server hears another one."""
    one, other = fault.targets
    directions = [(one, other)]
    if fault.amount < BOTH_WAYS:
        directions.append((other, one))
    if fault.amount < ALL_LINKS:
        names = sorted(world.servers)
        directions = [(source, target) for source in names for target in names if source != target]
    await block(world, directions, fault.seconds)


async def server_flap(world: World, fault: Fault) -> None:
    """A server freezes for longer than the timeout, and runs for some seconds, in turn."""
    role = role_of(world, fault.targets[0])
    end = world.loop.time() + fault.seconds
    with world.doubt():
        while world.loop.time() < end:
            process = role.process
            if process is None or not process.alive:
                raise SkippedError(f"{role.name} does not run")
            process.pause()
            await asyncio.sleep(FROZEN_TIMEOUTS * peer_timeout_seconds(world.shape))
            process.resume()
            await asyncio.sleep(AWAKE_SECONDS * (0.5 + fault.amount))


async def servers_gone(world: World, fault: Fault) -> None:
    """All servers but one are killed in the same moment, and stay down for a while."""
    roles = [role for _, role in sorted(world.servers.items()) if role.alive]
    if len(roles) < 2:
        raise SkippedError("only one server runs")
    spared = roles[int(fault.amount * len(roles))]
    with ExitStack() as stack:
        for role in roles:
            if role is not spared:
                stack.enter_context(kept_down(role))
        await asyncio.sleep(fault.seconds)


HANDLERS = {"peer-block": peer_block, "server-flap": server_flap, "servers-gone": servers_gone}
