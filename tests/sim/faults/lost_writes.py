"""A disk that loses a write: a sync returned, and one sector still holds what it held before.

Programs read the old content at once (the page was dropped from memory), or from the next power cut on. The
copy counts as lost until it has been thrown away and filled afresh. What a node can find out about it, it
must: with its mark still in the side file it never comes back with a shorter log (docs/testing.md has what
stays undecidable).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import SkippedError, permission, wait_dead
from tests.sim.faults.plan import Fault
from waltz_storage.engine import layout
from waltz_testkit.faulty_disk import LostWrite

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

WITHIN_SECONDS = 15.0
POWER_CUT_WITHIN_SECONDS = 0.3
OF_ALL = (layout.CONTROL_FILE_NAME, layout.WITNESS_NAME)
"""Files of which one sector may hold something of every partition."""
PLACES = (".seg", ".seg", ".seg", ".seg", ".idx", layout.SIDECAR_NAME, *OF_ALL)
ENDS = ("read", "read", "kill", "kill", "power")


async def lost_write(world: World, fault: Fault) -> None:
    """Wait for a sync that can lose something; then the node continues, or starts again, or loses power right
    after it."""
    rng = world.loop.rng(f"fault {fault.number}")
    name, place, ending = fault.targets[0], rng.choice(PLACES), rng.choice(ENDS)
    concerned = world.state.concerned(name)
    if not concerned:
        raise SkippedError("nothing is on it")
    struck = concerned if place in OF_ALL else [rng.choice(concerned)]
    role = await permission(world, name, struck)
    if any(world.state.changing[p] or (name, p) in world.state.rotten for p in struck):
        raise SkippedError("a partition is being changed, or damaged already")
    for partition in struck:
        world.state.rotten[name, partition] = None  # nothing is read as good that is about to be damaged
    world.state.destroyed(name, struck)  # from now on, for nobody else may be struck meanwhile
    place_of_it = place if place in OF_ALL else f"/{struck[0]}/"
    if not await _happens(
        role, lambda path: place_of_it in path and path.endswith(place), ending, rng, world
    ):
        for partition in struck:
            world.state.rotten.pop((name, partition), None)
        raise SkippedError("nothing was synced that could be lost")
    world.counts[f"writes lost in {place}"] += 1
    await asyncio.sleep(fault.seconds)
    if ending == "kill":
        role.kill()
        await wait_dead(role, 1.0)
    for partition in struck:
        await world.repairs.rebuild(name, partition)


async def _happens(
    role: StorageRole,
    matches: Callable[[str], bool],
    ending: str,
    rng: random.Random,
    world: World,
) -> bool:
    """Order it; whether it came to that in time."""
    happened = asyncio.Event()

    def note(path: str, start: int) -> None:
        world.loop.note(f"a write to {path} at {start} is lost")
        happened.set()
        if role.node is None and role.journals is not None:  # it is starting
            role.memory.lost_in_replay()
        if ending == "power":
            world.loop.kernel_later(POWER_CUT_WITHIN_SECONDS * rng.random(), role.power_off)

    order = role.disk.lose_write = LostWrite(matches, rng, ending != "power", note)
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            await happened.wait()
    except TimeoutError:
        if role.disk.lose_write is order:
            role.disk.lose_write = None
        return False
    return True


HANDLERS = {"lost-write": lost_write}
