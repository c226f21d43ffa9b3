"""Processes and hosts: killed, stopped, asked to end, without power; clocks that jump."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.cluster.role import TERMINATE_SECONDS
from tests.sim.faults.common import role_of, wait_dead
from tests.sim.faults.plan import Fault

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

LARGE_STEP_SECONDS = 200_000.0


async def kill(world: World, fault: Fault) -> None:
    """SIGKILL, and a start after a while."""
    role = role_of(world, fault.targets[0])
    role.hold()
    role.kill()
    await asyncio.sleep(fault.seconds)
    role.release()


async def power_off(world: World, fault: Fault) -> None:
    """The host goes dark: peers hear nothing, unsynced bytes are lost, torn or reordered."""
    role = role_of(world, fault.targets[0])
    role.hold()
    role.power_off()
    await asyncio.sleep(fault.seconds)
    role.release()


async def pause(world: World, fault: Fault) -> None:
    """SIGSTOP, SIGCONT."""
    process = role_of(world, fault.targets[0]).process
    if process is not None:
        with world.doubt():
            process.pause()
            await asyncio.sleep(fault.seconds)
            process.resume()


async def terminate(world: World, fault: Fault) -> None:
    """SIGTERM, and a start after a while."""
    role = role_of(world, fault.targets[0])
    role.hold()
    role.terminate()
    await wait_dead(role, TERMINATE_SECONDS + 1)
    await asyncio.sleep(fault.seconds)
    role.release()


async def clock_step(world: World, fault: Fault) -> None:
    """The wall clock of a host jumps, by much or by little, forward or back."""
    host = world.loop.host(fault.targets[0])
    scale = LARGE_STEP_SECONDS if int(fault.amount * 100) % 2 else 10.0
    host.clock_skew_seconds += (fault.amount - 0.5) * scale
    await asyncio.sleep(0)


HANDLERS = {
    "storage-kill": kill,
    "storage-power-off": power_off,
    "storage-pause": pause,
    "storage-terminate": terminate,
    "server-kill": kill,
    "server-power-off": power_off,
    "server-pause": pause,
    "server-terminate": terminate,
    "client-kill": kill,
    "client-pause": pause,
    "clock-step": clock_step,
}
