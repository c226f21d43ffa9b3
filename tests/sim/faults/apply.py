"""Doing what a plan says. Each kind has a function in one of the modules of this folder; here they are found
and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from tests.sim.faults import (
    administrators,
    detector_faults,
    disasters,
    file_faults,
    journal_faults,
    lost_writes,
    network_faults,
    old_peers,
    older_copy,
    operations,
    process_faults,
    rot_faults,
    storage_faults,
    suspend_faults,
    tails,
    twin_faults,
    zookeeper_faults,
)
from tests.sim.faults.common import SkippedError
from tests.sim.faults.plan import Fault

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

Handler = Callable[["World", Fault], Coroutine[Any, Any, None]]

HANDLERS: Mapping[str, Handler] = {
    **process_faults.HANDLERS,
    **storage_faults.HANDLERS,
    **tails.HANDLERS,
    **rot_faults.HANDLERS,
    **file_faults.HANDLERS,
    **journal_faults.HANDLERS,
    **network_faults.HANDLERS,
    **zookeeper_faults.HANDLERS,
    **operations.HANDLERS,
    **disasters.HANDLERS,
    **suspend_faults.HANDLERS,
    **detector_faults.HANDLERS,
    **administrators.HANDLERS,
    **old_peers.HANDLERS,
    **lost_writes.HANDLERS,
    **twin_faults.HANDLERS,
    **older_copy.HANDLERS,
}


class Applier:
    """Owner of the faults of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way = 0

    @property
    def busy(self) -> bool:
        """A fault is under way."""
        return self._under_way > 0

    async def apply(self, fault: Fault) -> None:
        """Wait until it is due, do it, undo it when its time is over."""
        world = self._world
        await asyncio.sleep(fault.at - world.loop.time())
        world.loop.note(f"fault {fault}")
        self._under_way += 1
        world.under_way[fault.kind] += 1
        try:
            await HANDLERS[fault.kind](world, fault)
        except SkippedError as error:
            world.loop.note(f"fault {fault.number} skipped: {error}")
            world.result.skipped[fault.kind] += 1
        else:
            world.result.applied[fault.kind] += 1
        self._under_way -= 1
        world.under_way[fault.kind] -= 1
        world.loop.note(f"fault {fault.number} over")
