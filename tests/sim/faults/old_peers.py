"""A storage node that runs release 0.13.2 for a while, on the same directory, and then ours again.

It is played by our node, which knows nothing of the files that 0.13.2 does not know: the fence is in its
memory only (7.12 in docs/weaknesses-of-0.13.2.md) and goes with a partition that is taken away (B2);
there is no synced mark and no witness, and those that ours had written stay as they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.sim.cluster.role import TERMINATE_SECONDS
from tests.sim.cluster.state import LOST_FILES
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import SkippedError, permission, storage_of, wait_dead
from tests.sim.faults.plan import Fault

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

MOST_RESTARTS = 3
LOOK_SECONDS = 1.0


async def old_node(world: World, fault: Fault) -> None:
    """The binary is exchanged, the old one may start several times, and the binary is exchanged again."""
    rng = world.loop.rng(f"fault {fault.number}")
    role = storage_of(world, fault.targets[0])
    if role.old or role.restored:
        raise SkippedError(f"{role.name} is old already, or being restored")
    ends = (StorageRole.terminate, StorageRole.kill, StorageRole.power_off)
    await _exchange(role, rng.choice(ends), old=True)
    for _ in range(rng.randint(0, MOST_RESTARTS)):
        await asyncio.sleep(fault.seconds * rng.random())
        role.kill()
    await asyncio.sleep(fault.seconds)
    with suppress(SkippedError):  # it has to be exchanged in the end
        await permission(world, role.name)
    await _exchange(role, rng.choice(ends), old=False)
    await _repair(world, role)


async def _repair(world: World, role: StorageRole) -> None:
    """What 0.13.2 cut, and did not live to write down, looks like lost files to ours: the copy is refused and
    refilled."""
    await asyncio.sleep(LOOK_SECONDS)
    refused = [] if role.node is None else list(role.node.manager.damaged)
    for partition in refused:
        if (role.name, partition) not in world.state.rotten:
            world.counts["copies refused after 0.13.2"] += 1
            world.state.rotten[role.name, partition] = LOST_FILES
            world.state.destroyed(role.name, [partition])
            await world.repairs.rebuild(role.name, partition)


async def _exchange(role: StorageRole, end: Callable[[StorageRole], None], *, old: bool) -> None:
    role.hold()
    end(role)
    await wait_dead(role, TERMINATE_SECONDS + 1)
    role.old = old
    role.release()


HANDLERS = {"node-of-0-13-2": old_node}
