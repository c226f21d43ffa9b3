"""Several administrators who do not know of one another: the same repair, or two that contradict, at the same
moment.

They run the shipped functions, each in a process and with a ZooKeeper session of its own; some are cut short.
What one of them was refused is tried again by nobody but the last one, who finishes the work alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.cluster.admin import RefusedError
from tests.sim.cluster.guards import NodeMemory
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import POLL_SECONDS, SkippedError, permission, storage_of, until_done
from tests.sim.faults.plan import Fault
from tests.sim.faults.storage_faults import lose_disk
from tests.sim.kernel.disk import DATA_DIRECTORY, SimDisk
from waltz_admin.offline_copy import DEFAULT_BATCH_SIZE
from waltz_admin.replace import ReplaceOptions
from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.restore_reset import reset_for_restore

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

Errand = Callable[[], Awaitable[object]]

WHOLE_SECONDS = 20.0
LOSES_DISK = 0.5
CUT_SHORT_SECONDS = (0.05, 0.5, 5.0, 30.0)
MOST_APART_SECONDS = 0.3
REPLACE_SECONDS = 40.0
FINISH_SECONDS = 300.0


async def _together(world: World, rng: random.Random, errands: list[Errand]) -> None:
    """All of them, at nearly the same moment."""

    async def one(errand: Errand) -> None:
        await asyncio.sleep(rng.choice((0.0, 0.0, rng.random() * MOST_APART_SECONDS)))
        try:
            await errand()
        except RefusedError as error:
            world.counts["administrators refused"] += 1
            world.loop.note(f"refused: {error}")
        else:
            world.counts["administrators served"] += 1

    async with asyncio.TaskGroup() as tasks:
        for errand in errands:
            tasks.create_task(one(errand))


async def forget(world: World, fault: Fault) -> None:
    """A node is down, its disk may be lost: several give it up, some reset its directory. Allowed while the
    others have everything: what only the forgotten one has may be lost by the name of the command."""
    rng = world.loop.rng(f"fault {fault.number}")
    role = await permission(world, fault.targets[0])
    partitions = world.state.concerned(role.name)
    if not partitions or any(world.state.changing[partition] for partition in partitions):
        raise SkippedError("nothing is on it, or replicas are being changed")
    for partition in partitions:
        world.state.changing[partition] += 1  # nobody else may lose a copy meanwhile
    role.hold()
    try:
        role.kill()
        await _others_whole(world, role, partitions)
        if fault.amount < LOSES_DISK:
            lose_disk(world, role)
        else:
            world.state.destroyed(role.name, partitions)
        seconds = partial(rng.choice, CUT_SHORT_SECONDS)
        errands: list[Errand] = [
            partial(world.admin.forget, role.name, rng.sample(partitions, len(partitions)), seconds())
            for _ in range(rng.choice((2, 3)))
        ]
        errands += [partial(_reset, world, role)] * rng.choice((0, 1, 2))
        await _together(world, rng, errands)
        await asyncio.sleep(fault.seconds * rng.random())
    finally:
        role.release()
        for partition in partitions:
            world.state.changing[partition] -= 1
    await world.repairs.refill(role.name)


async def _others_whole(world: World, role: StorageRole, partitions: list[int]) -> None:
    """Until all other replicas have everything; SkippedError."""
    deadline = world.loop.time() + WHOLE_SECONDS
    while not all(
        world.state.whole(name, partition)
        for partition in partitions
        for name in world.state.assigned(partition)
        if name != role.name
    ):
        if world.loop.time() >= deadline:
            raise SkippedError(f"the others do not have everything that {role.name} has")
        await asyncio.sleep(POLL_SECONDS)


async def _reset(world: World, role: StorageRole) -> None:
    """`waltz storage restore-reset` on the host of the node, again when it was killed: refused when something
    runs on the directory."""
    ended = False

    async def main() -> None:
        nonlocal ended
        reset_for_restore(DATA_DIRECTORY, fs=role.disk.mount(process))
        ended = True

    while True:
        process = world.loop.spawn_process(f"reset-{role.name}", role.host, main)
        await process.wait_ended()
        if ended or process.exit_error is not None:
            break
    role.memory.forget()
    if isinstance(process.exit_error, StorageStartError):
        raise RefusedError(f"restore-reset: {process.exit_error}")
    if process.exit_error is not None:
        world.unexpected("restore-reset", repr(process.exit_error))


def _spare(world: World, fault: Fault, number: int) -> StorageRole:
    """A node that nobody knows yet."""
    name = f"storage-spare-{fault.number}-{number}"
    some = next(iter(world.storage.values()))
    disk = SimDisk(world.loop.rng(f"disk {name}"))
    memory = NodeMemory(name, world.violation, world.marks)
    role = StorageRole(world.loop, name, world.unexpected, world.shape, some.cluster_key, disk, memory)
    memory.damaged = partial(world.state.changed_partitions, name)
    memory.lost = partial(world.state.lost_partitions, name)
    role.heal_disk()
    world.storage[name] = role
    role.start()
    return role


async def replace(world: World, fault: Fault) -> None:
    """Several replace a node, by the same new one or by two; the node may be down. The last one finishes the
    work."""
    rng = world.loop.rng(f"fault {fault.number}")
    old = storage_of(world, fault.targets[0])
    partitions = [p for p in world.state.concerned(old.name) if old.name in world.state.assigned(p)]
    state = world.state
    if not partitions or any(
        state.changing[p] or any(rot == p for _, rot in state.rotten) for p in partitions
    ):
        raise SkippedError("nothing is on it, or its partitions are damaged, or being changed")
    if any(len(state.assigned(p)) == 1 for p in partitions):
        raise SkippedError(
            "it has the only replica of a partition: with the new one two decide, and one of two may not leave (A6)"
        )
    for partition in partitions:
        state.changing[partition] += 1
    spares = (
        [_spare(world, fault, 1)]
        if fault.amount < 0.6
        else [_spare(world, fault, 1), _spare(world, fault, 2)]
    )
    if rng.random() < 0.3:
        old.hold()
        old.kill()
    else:
        old.down += 1
    try:
        options = ReplaceOptions(
            at_once=rng.choice((1, 16)),
            copy=rng.random() < 0.6,
            batch_size=rng.choice((1, 20)),
            allow_pause=True,
            delete_files=rng.random() < 0.5,
            timeout_seconds=20.0,
        )
        errands: list[Errand] = [
            partial(
                world.admin.replace,
                old.name,
                spare.name,
                options,
                rng.choice((*CUT_SHORT_SECONDS, REPLACE_SECONDS)),
            )
            for spare in (*spares, rng.choice(spares))
        ]
        await _together(world, rng, errands)
        await asyncio.sleep(fault.seconds * rng.random())
    finally:
        old.release()
    try:
        await until_done(world, partial(_finish, world, old, spares, options))
    finally:
        for partition in partitions:
            state.changing[partition] -= 1


async def _finish(world: World, old: StorageRole, spares: list[StorageRole], options: ReplaceOptions) -> None:
    """Alone, by whichever new node knows of it: another one may have finished before this one was added.
    RefusedError. A copy record by record would not catch up with a crowd of writers."""
    options = options._replace(batch_size=DEFAULT_BATCH_SIZE)
    for spare in spares:
        try:
            await world.admin.replace(old.name, spare.name, options, FINISH_SECONDS)
        except RefusedError:
            if spare is spares[-1]:
                raise
        else:
            return


HANDLERS = {"several-forget": forget, "several-replace": replace}
