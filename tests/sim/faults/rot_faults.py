"""One bit changes behind a node's back: anywhere in a partition, in the last record of a node that stops, or
in a record that is read."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import SkippedError, permission, wait_dead
from tests.sim.faults.plan import Fault
from tests.sim.kernel.disk import DATA_DIRECTORY
from tests.sim.kernel.rot import Rot, flip
from tests.sim.workloads.tracked import open_client
from waltz_client import FeedTransaction, WaltzClientError
from waltz_cluster.errors import ClusterError

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

READ_RECORD = "record that is read"
PLACES = ("anywhere", "last record", READ_RECORD, READ_RECORD)
LAST_RECORD_BYTES = 60
AUDITOR = "auditor"
READ_SECONDS = 15.0
READINGS = 2


async def bit_rot(world: World, fault: Fault) -> None:
    """The copy is counted as lost until it has been thrown away and filled afresh; sometimes the node looks
    at it first."""
    rng = world.loop.rng(f"fault {fault.number}")
    name = fault.targets[0]
    partitions = world.state.concerned(name)
    if not partitions:
        raise SkippedError("nothing is on it")
    partition = rng.choice(partitions)
    role = await permission(world, name, [partition])
    if world.state.changing[partition] or (name, partition) in world.state.rotten:
        raise SkippedError(f"partition {partition} is being changed, or damaged already")
    place = rng.choice(PLACES)
    world.state.rotten[name, partition] = None  # nothing is read as good that is about to be damaged
    if not _damage(world, role, partition, place, rng):
        del world.state.rotten[name, partition]
        raise SkippedError("there is nothing to damage")
    world.state.destroyed(name, [partition])
    if place == READ_RECORD:
        await _read_everything(world, f"{AUDITOR}-{fault.number}", partition)
    await asyncio.sleep(fault.seconds)
    if fault.amount < 0.5:
        role.kill()
        await wait_dead(role, 1.0)
    await world.repairs.rebuild(name, partition)


def _damage(world: World, role: StorageRole, partition: int, place: str, rng: random.Random) -> bool:
    """Flip the bit; whether there was one."""
    if place == READ_RECORD:
        kind = rng.choice((Rot.RECORD_HEADER, Rot.RECORD_HEADER, Rot.RECORD_DATA))
        where = flip(role.disk, kind, partition, rng)
        world.loop.note(f"rot: {where}")
        return where is not None
    inside = f"{DATA_DIRECTORY}/{partition}/"
    files = {path: data for path, data in role.disk.files().items() if path.startswith(inside) and data}
    segments = [path for path in files if path.endswith(".seg")]
    if not segments:
        return False
    path = rng.choice(sorted(files))
    first = 0
    if place == "last record":
        path = max(segments)
        first = max(0, len(files[path]) - LAST_RECORD_BYTES)
        role.kill()  # before another record makes it one in the middle
    world.loop.note(f"rot in {path}")
    role.disk.flip_bit(path, rng.randrange(first, len(files[path])), rng.randrange(8))
    return True


async def _read_everything(world: World, name: str, partition: int) -> None:
    """Somebody reads the partition from its beginning, from servers that have nothing of it in memory."""
    for _ in range(READINGS):
        for server in world.servers.values():
            server.kill()
        process = world.loop.spawn_process(name, world.loop.host(name), lambda: _read(world, name, partition))
        try:
            async with asyncio.timeout(READ_SECONDS):
                await process.wait_ended()
        except TimeoutError:
            process.kill()
        error = process.exit_error
        if error is not None and not isinstance(error, (ClusterError, WaltzClientError)):
            world.unexpected(name, f"ended with {type(error).__name__}: {error}")


async def _read(world: World, name: str, partition: int) -> None:
    def take(_: FeedTransaction) -> None:
        return None

    async with open_client(world.access, name) as client:
        mark = world.state.committed_mark(partition)
        await client.follow({partition: -1}, take, until={partition: mark})


HANDLERS = {"bit-rot": bit_rot}
