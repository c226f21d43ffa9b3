"""Disks, and storage nodes that end inside a system call. Changed bits are in `rot_faults`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import SkippedError, permission, storage_of, until_done
from tests.sim.faults.plan import Fault
from tests.sim.kernel.disk import FAST_READ, Seconds
from tests.sim.kernel.executor import Moment

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

CRASH_WITHIN_SECONDS = 20.0
MOST_CALLS = 60
MOST_RARE_CALLS = 15
SYNC_FAILURES = ("", "", "/0/", ".seg", ".idx", "waltz-storage.ctl", "waltz-fence", "waltz-witness")
READ_FAILURES = ("", "/0/", ".seg", ".idx")
SLOWEST_SYNC_SECONDS = 3.0
SLOWEST_READ_SECONDS = 1.0
MOST_ROOM_BYTES = 3000
RARE_CALLS = ("unlink", "truncate", "sync_dir", "create")
"""Cuts, deletions and new files: a crash between two of them is rare unless it is looked for."""


def _restart_if_troubled(role: StorageRole) -> None:
    """An administrator who sees that a node is not healthy starts it again."""
    if role.in_trouble():
        role.kill()


async def _end_inside(world: World, fault: Fault, end: Callable[[StorageRole], None]) -> None:
    role = storage_of(world, fault.targets[0])
    executor = role.executor
    happened = asyncio.Event()

    def crash() -> None:
        role.hold()
        happened.set()
        end(role)

    if executor is not None and fault.amount < 0.2:
        executor.crash_next_job(Moment.UNDELIVERED, crash)
    elif fault.amount < 0.4:
        role.disk.crash_after_calls(int((fault.amount - 0.2) * MOST_CALLS), crash, ("sync",))
    elif fault.amount < 0.6:
        role.disk.crash_after_calls(int((fault.amount - 0.4) * MOST_CALLS), crash)
    else:
        role.disk.crash_after_calls(int((fault.amount - 0.6) * MOST_RARE_CALLS), crash, RARE_CALLS)
    try:
        async with asyncio.timeout(CRASH_WITHIN_SECONDS):
            await happened.wait()
    except TimeoutError:
        role.disk.cancel_crash()
        if executor is not None:
            executor.cancel_crash()
        raise SkippedError("no system call came") from None
    await asyncio.sleep(fault.seconds)
    role.release()


async def kill_in_call(world: World, fault: Fault) -> None:
    """Killed before a system call of a job, or after all of them and before anybody is informed."""
    await _end_inside(world, fault, StorageRole.kill)


async def power_in_call(world: World, fault: Fault) -> None:
    """The same without power."""
    await _end_inside(world, fault, StorageRole.power_off)


async def all_power_off(world: World, fault: Fault) -> None:
    """The whole room goes dark and comes back, one after the other."""
    roles = list(world.storage.values())
    for role in roles:
        role.hold()
        role.power_off()
    rng = world.loop.rng(f"fault {fault.number}")
    rng.shuffle(roles)
    for role in roles:
        await asyncio.sleep(fault.seconds / len(roles))
        role.release()


def lose_disk(world: World, role: StorageRole) -> None:
    """The disk of a node that is down is replaced by an empty one."""
    world.state.destroyed(role.name, world.state.concerned(role.name))
    role.disk.wipe()
    role.restored = False  # there is nothing left that could be reset
    role.memory.forget()
    world.state.forget_rot(role.name)


async def wipe(world: World, fault: Fault) -> None:
    """The disk is replaced by an empty one."""
    role = await permission(world, fault.targets[0])
    role.hold()
    role.kill()
    lose_disk(world, role)
    await asyncio.sleep(fault.seconds)
    role.release()
    await world.repairs.refill(role.name)


async def restore(world: World, fault: Fault) -> None:
    """The directory is replaced by an older copy of itself, by the book: reset before the start."""
    snapshot = storage_of(world, fault.targets[0]).disk.snapshot()
    rotten_then = world.state.rotten_partitions(fault.targets[0])
    off_then = world.state.switched_off_partitions(fault.targets[0])
    await asyncio.sleep(fault.seconds)
    role = await permission(world, fault.targets[0])
    role.hold()
    role.kill()
    world.state.destroyed(role.name, world.state.concerned(role.name))
    role.disk.restore(snapshot)
    role.memory.forget()
    role.restored = True
    world.state.forget_rot(role.name)
    world.state.rotten.update(dict.fromkeys((role.name, partition) for partition in rotten_then))
    role.release()
    await world.repairs.refill(role.name)
    for partition in off_then:  # the copy says so still
        await until_done(world, partial(world.admin.set_available, partition, role.name, True))


async def sync_failure(world: World, fault: Fault) -> None:
    """One sync fails, or all of them for a while."""
    role = storage_of(world, fault.targets[0])
    where = SYNC_FAILURES[int(fault.amount * 1000) % len(SYNC_FAILURES)]
    if fault.amount < 0.6:
        role.disk.fail_sync_once = where
    else:
        role.disk.fail_sync = where
    await asyncio.sleep(fault.seconds)
    role.disk.fail_sync = role.disk.fail_sync_once = None
    _restart_if_troubled(role)


async def disk_full(world: World, fault: Fault) -> None:
    """Some bytes more, and no room is left; later there is."""
    role = storage_of(world, fault.targets[0])
    role.disk.fill(int(fault.amount * MOST_ROOM_BYTES))
    await asyncio.sleep(fault.seconds)
    role.disk.capacity_bytes = None
    _restart_if_troubled(role)


async def short_writes(world: World, fault: Fault) -> None:
    """The disk takes a few bytes at a time."""
    role = storage_of(world, fault.targets[0])
    role.disk.short_writes = True
    await asyncio.sleep(fault.seconds)
    role.disk.short_writes = False


async def slow_sync(world: World, fault: Fault) -> None:
    """Syncs take up to seconds: longer than servers wait for an answer."""
    role = storage_of(world, fault.targets[0])
    usual = role.disk.sync_seconds
    role.disk.sync_seconds = Seconds(0.01, SLOWEST_SYNC_SECONDS * fault.amount**2)
    await asyncio.sleep(fault.seconds)
    role.disk.sync_seconds = usual


async def read_failure(world: World, fault: Fault) -> None:
    """Reads fail for a while, of all files or of some."""
    role = storage_of(world, fault.targets[0])
    role.disk.fail_read = READ_FAILURES[int(fault.amount * 1000) % len(READ_FAILURES)]
    await asyncio.sleep(fault.seconds)
    role.disk.fail_read = None
    _restart_if_troubled(role)


async def slow_reads(world: World, fault: Fault) -> None:
    """Reads take up to a second."""
    role = storage_of(world, fault.targets[0])
    role.disk.read_seconds = Seconds(0.0, SLOWEST_READ_SECONDS * fault.amount**2)
    await asyncio.sleep(fault.seconds)
    role.disk.read_seconds = FAST_READ


HANDLERS = {
    "storage-kill-in-call": kill_in_call,
    "storage-power-in-call": power_in_call,
    "all-storage-power-off": all_power_off,
    "storage-wipe": wipe,
    "storage-restore": restore,
    "sync-failure": sync_failure,
    "disk-full": disk_full,
    "short-writes": short_writes,
    "slow-sync": slow_sync,
    "read-failure": read_failure,
    "slow-reads": slow_reads,
}
