"""The metadata of one partition, or of all, is restored from an older copy, at any moment or at the worst
one; then an administrator settles it by the book.

Within the promise: nobody's disk is lost at the same time, and one replica at least is the same as in the
copy: if all were changed it cannot be distinguished (docs/adr/0008).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.sim.cluster.admin import RefusedError
from tests.sim.faults.common import AGAIN_SECONDS, POLL_SECONDS, SkippedError, changing, kept_down
from tests.sim.faults.plan import Fault

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

ALL = 0.3
"""How often the metadata of all partitions is restored, and not of one."""
RESTART = 0.6
"""How often the servers are restarted with it; else they continue until their session ends."""
SERVED_SECONDS = 5.0
"""So long a partition has to be served for the administrator to be content."""
STAGE_SECONDS = 30.0
"""How long each step of the worst moment may take."""
STEP_SECONDS = 0.001
"""Less than a write of ZooKeeper takes."""
NUMBER_TAKEN = 0.5
"""How often the copy is made between the number of a session and the listing of its replicas."""
AWAY_SECONDS = 25.0
"""So long the replica that has everything is down afterwards: enough for the others to be taken over."""


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


async def listing_forgotten(world: World, fault: Fault) -> None:
    """The copy is made while one of three replicas is out of the session, and restored after it has come back
    and another one has dropped out instead. Then the third, which has everything, is down: of the two that
    are left the copy takes the one without the last records for the one that counts.

    The copy is of the session in which the first one is out, or of the next one, whose number is taken and
    whose replicas are not listed yet: it waits for the first one, for the second one is away already. Then no
    session is given out twice.
    """
    rng = world.loop.rng(f"fault {fault.number}")
    state = world.state
    partition = rng.randrange(world.shape.partitions)
    names = state.assigned(partition)
    if len(names) != 3 or any(state.is_lost(name, partition) for name in names):
        raise SkippedError(f"partition {partition} does not have three replicas, or one is lost")
    back, gone, whole = (world.storage[name] for name in rng.sample(names, 3))
    with changing(world, partition):
        with ExitStack() as gone_down:
            with kept_down(back):
                await _next_session(world, partition)
                copy = _copies(world, [partition])[partition]
                if fault.amount < NUMBER_TAKEN:
                    copy = await _copy_before_listing(world, partition)
                    gone_down.enter_context(kept_down(gone))
            await _until(world, lambda: state.whole(back.name, partition))
            if fault.amount >= NUMBER_TAKEN:
                gone_down.enter_context(kept_down(gone))
                await _next_session(world, partition)
            await asyncio.sleep(fault.seconds)
            if state.replicas_in(copy) != set(state.assigned(partition)):
                raise SkippedError("its replicas were changed")
            for server in world.servers.values():
                server.kill()
            world.zookeeper.set(state.paths.partition(partition), copy, -1)
            world.counts["metadata put back"] += 1
            with kept_down(whole):
                gone_down.close()
                await asyncio.sleep(AWAY_SECONDS)
        await _settle(world, {partition: state.replicas_in(copy)}, restart=True)


async def _next_session(world: World, partition: int) -> None:
    """The owner is killed; until the session of its successor is open. SkippedError."""
    session = _end_session(world, partition)
    await _until(world, lambda: _session(world, partition) > session and world.state.served(partition))


async def _copy_before_listing(world: World, partition: int) -> bytes:
    """The owner is killed; the metadata as they are when its successor has taken a number and has listed
    nobody. SkippedError."""
    session = _end_session(world, partition)
    await _until(world, lambda: _session(world, partition) > session, STEP_SECONDS)
    return _copies(world, [partition])[partition]


def _end_session(world: World, partition: int) -> int:
    """The owner is killed; the session that it had."""
    for server in world.servers.values():
        if server.store(partition) is not None:
            server.kill()
    return _session(world, partition)


def _session(world: World, partition: int) -> int:
    state = world.state.metadata(partition)
    return -1 if state is None else state.session_id


async def _until(world: World, holds: Callable[[], bool], poll_seconds: float = POLL_SECONDS) -> None:
    """SkippedError when it does not come to be."""
    deadline = world.loop.time() + STAGE_SECONDS
    while not holds():
        if world.loop.time() >= deadline:
            raise SkippedError("the stage could not be set")
        await asyncio.sleep(poll_seconds)


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
            if not world.state.served(partition):
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


HANDLERS = {"zookeeper-older-copy": older_copy, "listing-forgotten": listing_forgotten}
