"""Files of a storage directory are gone when its node starts again: of one partition, or the witness of all
of them.

What a repair of the file system, a careless `rm` or half a restore leaves. A node that has lost nothing that
matters serves on; else it refuses until an administrator has done what it asks for. No excuse is made for it
meanwhile: what it serves with must be what it had (`node_kept`).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from tests.sim.cluster.state import LOST_FILES
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import SkippedError, permission
from tests.sim.faults.plan import Fault
from tests.sim.kernel.disk import DATA_DIRECTORY, SimDisk, partition_directory
from waltz_storage.engine.inspect import inspect_control_file
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY, dependence
from waltz_storage.engine.journal.layout import Create, JournalDamagedError, Name
from waltz_storage.engine.journal.log import read_journal
from waltz_storage.engine.layout import (
    CONTROL_FILE_NAME,
    DATA_SUFFIXES,
    HEADER_SIZE,
    SIDECAR_NAME,
    WITNESS_NAME,
)
from waltz_storage.engine.partition_info import PartitionInfo
from waltz_testkit.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

WITNESS_LOST = 0.15
ALL_LOST, DIRECTORY_LOST, NEWEST_LOST = 0.2, 0.1, 0.3
RETRY_SECONDS = 2.0
"""So long a node that does not start is looked at before it is reset."""


async def files_lost(world: World, fault: Fault) -> None:
    """The node ends, files vanish, and it starts again."""
    rng = world.loop.rng(f"fault {fault.number}")
    if fault.amount < WITNESS_LOST:
        await _lose_witness(world, fault, rng)
        return
    name = fault.targets[0]
    partitions = world.state.concerned(name)
    if not partitions:
        raise SkippedError("nothing is on it")
    partition = rng.choice(partitions)
    role = await permission(world, name, [partition])
    if world.state.changing[partition] or (name, partition) in world.state.rotten:
        raise SkippedError(f"partition {partition} is being changed, or damaged already")
    _end(role, rng)
    lost = lose_files(role.disk, partition, rng)
    if lost:
        world.loop.note(f"lost: {', '.join(lost)}")
        world.state.rotten[name, partition] = LOST_FILES
        world.state.destroyed(name, [partition])
    role.release()
    if not lost:
        raise SkippedError("there is nothing to lose")
    await asyncio.sleep(fault.seconds)
    await world.repairs.rebuild(name, partition)


def _end(role: StorageRole, rng: random.Random) -> None:
    role.hold()
    if rng.random() < 0.5:
        role.kill()
    else:
        role.power_off()
    role.disk.land_all()


def lose_files(disk: SimDisk, partition: int, rng: random.Random) -> list[str]:
    """Some files of a partition vanish, or its directory; which."""
    inside = partition_directory(partition)
    if not disk.is_dir(inside):
        return []
    names = sorted(disk.listdir(inside))
    drawn = rng.random()
    if drawn < DIRECTORY_LOST:
        disk.remove_dir(inside)
        return [inside]
    if drawn < DIRECTORY_LOST + ALL_LOST:
        lost = names
    elif drawn < DIRECTORY_LOST + ALL_LOST + NEWEST_LOST:
        newest = max((name for name in names if name.endswith(DATA_SUFFIXES)), default="")
        also = SIDECAR_NAME if rng.random() < 0.5 else ""
        lost = [name for name in names if name == also or (newest and name[:-4] == newest[:-4])]
    else:
        lost = [name for name in names if rng.random() < 0.5]
    for name in lost:
        disk.remove(f"{inside}/{name}")
    return [f"{inside}/{name}" for name in lost]


async def _lose_witness(world: World, fault: Fault, rng: random.Random) -> None:
    """The node does not start, and its directory is reset as one that was restored; or its journal, in which
    the witness was made, makes it again, and nothing is lost."""
    role = await permission(world, fault.targets[0])
    if not role.disk.exists(f"{DATA_DIRECTORY}/{WITNESS_NAME}"):
        raise SkippedError("it has no witness yet")
    if role.old:
        raise SkippedError("a node of 0.13.2 knows of no witness")
    if any(name == role.name for name, _ in world.state.rotten):
        raise SkippedError(
            "files of its partitions are lost: those that would miss the witness may be among them"
        )
    _end(role, rng)
    voting = _has_voters(role.disk)
    role.disk.remove(f"{DATA_DIRECTORY}/{WITNESS_NAME}")
    if journal_makes(role.disk, WITNESS_NAME):
        world.loop.note("the journal makes the witness again")
        role.release()
        return
    world.state.destroyed(role.name, world.state.concerned(role.name))
    role.release()
    disks = role.disk.wiped
    await asyncio.sleep(RETRY_SECONDS)
    if role.disk.wiped != disks:
        return  # as in `journal_lost`
    if voting and role.node is not None and role.node.manager.status():
        world.violation("witness", f"{role.name} serves though its witness is gone")
    role.hold()
    role.kill()
    role.memory.forget()
    role.restored = True
    role.release()
    await world.repairs.refill(role.name)


def _has_voters(disk: SimDisk) -> bool:
    """Whether a copy completed a session: the others have no vote before they are filled (rule A1), so
    nothing of them is missed."""
    _, entries = inspect_control_file(DATA_DIRECTORY, fs=disk)
    return any(isinstance(one, PartitionInfo) and one.assigned and one.session_id >= 0 for one in entries)


def journal_makes(disk: FaultyDisk, relative: str) -> bool:
    """Whether a directory depends on a journal that still holds that this file was made in it, and so all
    that was ever written to it."""
    needed = dependence(disk.content(f"{DATA_DIRECTORY}/{CONTROL_FILE_NAME}")[:HEADER_SIZE])
    if needed is None or needed.releasing:
        return False
    names: dict[int, str] = {}
    made = False
    try:
        for change in read_journal(
            disk, f"{DATA_DIRECTORY}/{JOURNAL_DIRECTORY}", needed.journal_id, needed.files
        ):
            if isinstance(change, Name):
                names[change.name] = change.path
            made = made or (isinstance(change, Create) and names[change.name] == relative)
    except JournalDamagedError:
        return False
    return made


HANDLERS = {"files-lost": files_lost}
