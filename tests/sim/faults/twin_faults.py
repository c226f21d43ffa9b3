"""A volume that is mounted twice: a second storage node is started on the directory of another one.

The lock on the control file keeps it out while the first one serves, and the first one out when it was away
for a moment and the second one was quicker. The volume is one that passes locks on (a local one, NFS with
locks); see docs/testing.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.cluster.role import TERMINATE_SECONDS
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import storage_of, wait_dead
from tests.sim.faults.plan import Fault
from waltz_storage.engine.errors import DirectoryLockedError, StorageStartError

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

OVERTAKES = 0.5
"""How often the first one is killed, so that the second one may have the directory."""
GIVES_UP_IN_ORDER = 0.5


class Twin(StorageRole):
    """The second node: another host, the same disk. Nobody knows its address."""

    def __init__(self, world: World, original: StorageRole, number: int) -> None:
        super().__init__(
            world.loop,
            f"{original.name}-twin-{number}",
            world.unexpected,
            world.shape,
            original.cluster_key,
            original.disk,
            original.memory,
        )
        self.refused = self.opened = 0
        self._original = original

    async def main(self, stop: asyncio.Event) -> None:
        """A node that counts how often it was let in. Whoever restored the directory resets it before any
        start."""
        if self._original.restored:
            raise StorageStartError("the directory was restored and is not reset yet")
        await super().main(stop)

    def died(self) -> None:
        """Count."""
        error = self.process.exit_error if self.process is not None else None
        self.refused += isinstance(error, DirectoryLockedError)
        self.opened += self.node is not None
        super().died()


async def mounted_twice(world: World, fault: Fault) -> None:
    """A second node tries for a while, as an orchestrator would have it try; then it is taken away."""
    original = storage_of(world, fault.targets[0])
    twin = Twin(world, original, fault.number)
    twin.start()
    await asyncio.sleep(fault.seconds / 2)
    if fault.amount < OVERTAKES:
        original.kill()
    await asyncio.sleep(fault.seconds / 2)
    twin.hold()
    if fault.amount < OVERTAKES * GIVES_UP_IN_ORDER:
        twin.terminate()
    else:
        twin.kill()
    await wait_dead(twin, TERMINATE_SECONDS + 1)
    world.counts["second nodes refused"] += twin.refused
    world.counts["second nodes let in"] += twin.opened


HANDLERS = {"volume-mounted-twice": mounted_twice}
