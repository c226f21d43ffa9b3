"""A virtual machine that is suspended and runs on: its monotonic clock stood still while the rest of the
world continued.

Whatever it works out from its own clock is wrong by that time then: a server takes its ZooKeeper session for
alive (D8), a client its deadlines for far away. What must hold all the same is confirmed by storage (D4) or
refused by it (B1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.sim.cluster.role import Role
from tests.sim.faults.common import role_of
from tests.sim.faults.network_faults import block, blocked
from tests.sim.faults.plan import ADMIN, ZOOKEEPER, Fault
from tests.sim.kernel.disk import Seconds

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

WALL_CLOCK_TOO = 0.5
"""How often nobody sets the wall clock right afterwards either."""
STILL_CUT_OFF = 0.5
"""How often it hears of ZooKeeper only when its session must be over by its own clock as well."""


@contextmanager
def suspended(world: World, role: Role) -> Iterator[None]:
    """The machine of a role stops and answers nobody."""
    others = [name for name in (*world.roles(), ZOOKEEPER, ADMIN) if name != role.name]
    role.hold()  # nothing is started on it meanwhile
    try:
        with (
            world.doubt(),
            blocked(world, [pair for other in others for pair in ((role.name, other), (other, role.name))]),
        ):
            world.loop.suspend(role.host)
            yield
    finally:
        world.loop.wake(role.host)
        role.release()


async def suspend(world: World, fault: Fault) -> None:
    """Suspend and wake. A server may hear nothing of ZooKeeper when it is awake, while clients read old
    assignments."""
    role = role_of(world, fault.targets[0])
    rng = world.loop.rng(f"fault {fault.number} {fault.kind}")
    with suspended(world, role):
        await asyncio.sleep(fault.seconds)
        late = role.name in world.servers and rng.random() < STILL_CUT_OFF
        if rng.random() < WALL_CLOCK_TOO:
            role.host.clock_skew_seconds -= fault.seconds
    if not late:
        return
    seconds = world.shape.session_timeout_seconds * (0.5 + rng.random())
    world.zookeeper.follower_lag = Seconds(fault.seconds, fault.seconds)
    for client in world.clients.values():
        if rng.random() < 0.4:
            client.kill()
    try:
        await block(world, [(role.name, ZOOKEEPER), (ZOOKEEPER, role.name)], seconds)
    finally:
        world.zookeeper.follower_lag = Seconds(0.0, 0.0)


HANDLERS = {"vm-suspend": suspend}
