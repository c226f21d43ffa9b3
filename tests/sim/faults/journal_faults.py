"""The files of the node journal: gone, exchanged or damaged behind a node that ended, syncs of them that
fail, and power lost during a replay.

A node whose directory depends on its journal must not start when that is not the right one or not complete:
then its files may lack what it acknowledged. Violation: `journal`.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING
from uuid import UUID

from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import SkippedError, permission, storage_of
from tests.sim.faults.file_faults import RETRY_SECONDS
from tests.sim.faults.plan import Fault
from tests.sim.kernel.disk import DATA_DIRECTORY
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY, dependence
from waltz_storage.engine.journal.layout import JOURNAL_SUFFIX, SECTOR_SIZE, FileHeader, read_frame, salt
from waltz_storage.engine.layout import CONTROL_FILE_NAME, HEADER_SIZE
from waltz_testkit.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

PLACE = f"{DATA_DIRECTORY}/{JOURNAL_DIRECTORY}"
WAYS = ("one file", "all files", "directory", "another node's", "header", "frame", "frame")
HEADER_BYTES = 40
"""Of a header, with its checksum: what follows in its sector means nothing."""
REPLAY_CALLS = 40
REPLAY_SECONDS = 3.0


async def journal_lost(world: World, fault: Fault) -> None:
    """The node ends, its journal is damaged, and it must refuse to start; then its directory is reset as one
    that was restored."""
    rng = world.loop.rng(f"fault {fault.number}")
    role = await permission(world, fault.targets[0])
    if role.node is None or not role.node.manager.journaling:
        raise SkippedError("it has no journal in this life")
    if any(name == role.name for name, _ in world.state.rotten):
        raise SkippedError("it is damaged already")
    _end(role, rng)
    role.disk.land_all()
    where = damage_journal(role.disk, rng.choice(WAYS), rng)
    if where is None:
        role.release()
        raise SkippedError("there is nothing to damage that could be missed")
    world.loop.note(f"journal damaged: {where}")
    concerned = world.state.concerned(role.name)
    world.state.destroyed(role.name, concerned)
    # Of a copy that was taken away the journal alone may have known that.
    damaged = [*concerned, *(p for p in directories(role.disk) if p not in concerned)]
    world.state.rotten.update(dict.fromkeys((role.name, partition) for partition in damaged))
    role.release()
    disks = role.disk.wiped
    await asyncio.sleep(RETRY_SECONDS)
    if role.disk.wiped != disks:
        return  # it was replaced meanwhile, and whoever did so fills it
    if role.node is not None:
        world.violation("journal", f"{role.name} serves though its journal is damaged: {where}")
    role.hold()
    role.kill()
    role.memory.forget()
    role.restored = True
    role.release()
    await world.repairs.refill(role.name)
    for partition in damaged:  # what the journal held may be missing in the middle of a file
        await world.repairs.rebuild(role.name, partition)


def directories(disk: FaultyDisk) -> list[int]:
    """Partitions that the node has a directory of."""
    return sorted(int(name) for name in disk.listdir(DATA_DIRECTORY) if name.isdigit())


def damage_journal(disk: FaultyDisk, way: str, rng: random.Random) -> str | None:
    """Damage the journal on which a directory depends; what was done, `None` when there is nothing to do."""
    control = f"{DATA_DIRECTORY}/{CONTROL_FILE_NAME}"
    needed = dependence(disk.content(control)[:HEADER_SIZE]) if disk.exists(control) else None
    if needed is None or needed.releasing:
        return None
    paths = sorted(f"{PLACE}/{name}" for name in disk.listdir(PLACE) if name.endswith(JOURNAL_SUFFIX))
    one = rng.choice(paths)
    match way:
        case "one file":
            disk.remove(one)
        case "all files":
            for path in paths:
                disk.remove(path)
        case "directory":
            disk.remove_dir(PLACE)
        case "another node's":
            other = UUID(int=rng.getrandbits(128))
            for path in paths:
                header = FileHeader.from_bytes(disk.content(path)[:SECTOR_SIZE])
                if header is not None:
                    disk.overwrite(path, 0, header._replace(journal_id=other).to_bytes())
        case "header":
            disk.flip_bit(one, rng.randrange(HEADER_BYTES), rng.randrange(8))
        case _:
            return _damage_frame(disk, paths, rng)
    return way if way in ("all files", "directory", "another node's") else f"{way}: {one}"


def _damage_frame(disk: FaultyDisk, paths: list[str], rng: random.Random) -> str | None:
    """One bit of any frame but those of the last commit: whether that was torn, nobody can know."""
    frames: list[tuple[str, int, int, int]] = []
    for path in paths:
        raw = disk.content(path)
        header = FileHeader.from_bytes(raw[:SECTOR_SIZE])
        if header is None or header.epoch <= 0:
            continue
        offset = SECTOR_SIZE
        while (found := read_frame(raw, offset, salt(header.journal_id, header.epoch))) is not None:
            frames.append((path, offset, found.end, found.commit))
            offset = found.end
    last = max((commit for *_, commit in frames), default=0)
    before = [frame for frame in frames if frame[3] < last]
    if not before:
        return None
    path, start, end, _ = rng.choice(before)
    offset = rng.randrange(start, end)
    disk.flip_bit(path, offset, rng.randrange(8))
    return f"frame: {path} byte {offset}"


def _end(role: StorageRole, rng: random.Random) -> None:
    role.hold()
    if rng.random() < 0.5:
        role.kill()
    else:
        role.power_off()


async def sync_failure(world: World, fault: Fault) -> None:
    """One sync of the journal fails, or all of them for a while: the node takes nothing more."""
    role = storage_of(world, fault.targets[0])
    if role.node is None or not role.node.manager.journaling:
        raise SkippedError("it has no journal in this life")
    if fault.amount < 0.7:
        role.disk.fail_sync_once = JOURNAL_SUFFIX
    else:
        role.disk.fail_sync = JOURNAL_SUFFIX
    await asyncio.sleep(fault.seconds)
    role.disk.fail_sync = role.disk.fail_sync_once = None
    if role.in_trouble():
        role.kill()


async def power_in_replay(world: World, fault: Fault) -> None:
    """The node ends, and power is lost while it replays; again and again, then it starts."""
    rng = world.loop.rng(f"fault {fault.number}")
    role = storage_of(world, fault.targets[0])
    if role.node is None or not role.node.manager.journaling:
        raise SkippedError("it has no journal in this life")
    _end(role, rng)
    for _ in range(rng.randint(1, 3)):
        happened = asyncio.Event()

        def crash(happened: asyncio.Event = happened) -> None:
            role.hold()
            happened.set()
            role.power_off()

        role.disk.crash_after_calls(rng.randrange(REPLAY_CALLS), crash)
        role.release()
        try:
            async with asyncio.timeout(REPLAY_SECONDS):
                await happened.wait()
        except TimeoutError:
            role.disk.cancel_crash()
            return
    await asyncio.sleep(fault.seconds)
    role.release()


HANDLERS = {
    "journal-lost": journal_lost,
    "journal-sync-failure": sync_failure,
    "journal-power-in-replay": power_in_replay,
}
