"""Bad days of several parts: a dark room with a lost disk, a network in two halves, lost replica states,
copies taken out of service manually."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.cluster.admin import RefusedError
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import SkippedError, storage_of, until_done
from tests.sim.faults.network_faults import block
from tests.sim.faults.plan import ZOOKEEPER, Fault
from tests.sim.faults.storage_faults import lose_disk
from tests.sim.kernel.disk import Seconds

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

LAG_SECONDS = 2.0
LAGGING_SYNC = Seconds(0.2, 0.8)
CUT_SECONDS = 4.0
COPIED, DARKENED = 0.6, 0.4
"""How often a copy out of service is filled past the servers, and its source goes dark afterwards."""
TAKE_OVER_SECONDS = 0.8
"""About so long it takes until another server has taken over."""


async def blackout(world: World, fault: Fault) -> None:
    """One node lags when all go dark; one comes back without its disk, if that is allowed, and one comes back
    late.

    Whatever only these two had is undecided until the late one is there (safety A1).
    """
    rng = world.loop.rng(f"fault {fault.number}")
    roles = list(world.storage.values())
    rng.shuffle(roles)
    lagging, loser, late = roles[0], roles[1], roles[-1]
    usual = lagging.disk.sync_seconds
    lagging.disk.sync_seconds = LAGGING_SYNC
    await asyncio.sleep(LAG_SECONDS * rng.random())
    for role in roles:
        role.hold()
        role.power_off()
    lagging.disk.sync_seconds = usual
    lost = fault.amount < 0.6 and world.state.can_lose(loser.name)
    if lost:
        lose_disk(world, loser)
    await asyncio.sleep(0.5)
    if rng.random() < 0.4:
        await _short_return(lagging, rng.random())
    for role in roles:
        if role is not late:
            role.release()
    if lost:
        await world.repairs.refill(loser.name)
    await asyncio.sleep(fault.seconds)
    late.release()


async def _short_return(role: StorageRole, seconds: float) -> None:
    """One is back before the others, answers what it is asked, and goes dark again."""
    role.release()
    await asyncio.sleep(1.0 + 2.0 * seconds)
    role.hold()
    role.power_off()


async def stale_owner(world: World, fault: Fault) -> None:
    """A server hears nothing of ZooKeeper, which ends its session too early: others take over, and it serves
    on.

    It may be cut off from the nodes as well, so that nobody informs it. Clients that come new may read an old
    assignment.
    """
    rng = world.loop.rng(f"fault {fault.number}")
    name = fault.targets[0]
    far = [ZOOKEEPER, *(world.storage if rng.random() < 0.3 else ())]
    pairs = [pair for other in far for pair in ((name, other), (other, name))]
    if not world.zookeeper.expire(name):
        raise SkippedError("there was no session")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(block(world, pairs, fault.seconds))
        await asyncio.sleep(TAKE_OVER_SECONDS * (0.5 + rng.random()))
        lag = fault.seconds * rng.random()
        world.zookeeper.follower_lag = Seconds(lag, lag)
        for client in world.clients.values():
            choice = rng.random()
            if choice < 0.4:
                world.zookeeper.expire(client.name)
            elif choice < 0.7:
                client.kill()
    world.zookeeper.follower_lag = Seconds(0.0, 0.0)


async def states_lost(world: World, fault: Fault) -> None:
    """The replica states of a partition vanish from ZooKeeper, all servers start again, and somebody puts
    them back."""
    partition = world.loop.rng(f"fault {fault.number}").randrange(world.shape.partitions)
    if world.state.changing[partition]:
        raise SkippedError(f"the replicas of partition {partition} are being changed")
    world.state.changing[partition] += 1
    try:
        saved, version = await world.admin.clear_states(partition)
    except RefusedError as error:
        raise SkippedError(str(error)) from None
    else:
        for role in world.servers.values():
            role.kill()
        await asyncio.sleep(fault.seconds)
        await until_done(world, lambda: world.admin.restore_states(partition, saved, version))
    finally:
        world.state.changing[partition] -= 1


async def unavailable(world: World, fault: Fault) -> None:
    """An administrator takes a copy out of service, may fill it past the servers, and puts it back."""
    role = storage_of(world, fault.targets[0])
    concerned = world.state.concerned(role.name)
    if not concerned:
        raise SkippedError("nothing is on it")
    partition = world.loop.rng(f"fault {fault.number}").choice(concerned)
    held = role.node.manager.partitions.get(partition) if role.node is not None else None
    before = None if held is None else held.info
    try:
        await world.admin.set_available(partition, role.name, False)
    except RefusedError as error:
        # A write that failed may be on disk all the same: the administrator looks after it.
        await until_done(world, lambda: _put_back(world, role, partition))
        raise SkippedError(str(error)) from None
    off = (role.name, partition)
    world.state.switched_off[off] = world.state.switched_off.get(off, 0) + 1
    await asyncio.sleep(fault.seconds)
    source = await _copy(world, fault, role, partition) if fault.amount < COPIED else None
    await until_done(world, lambda: world.admin.set_available(partition, role.name, True))
    world.state.switched_off[off] -= 1
    if source is not None and fault.amount < DARKENED:  # those that are left must know what was acknowledged
        source.hold()
        source.power_off()
        await asyncio.sleep(fault.seconds)
        source.release()
    after = None if held is None else held.info
    if before is not None and after is not None and after.session_id < before.session_id:
        world.violation(
            "node_kept", f"{role.name}: partition {partition}: {after} after a flag was changed in {before}"
        )


async def _copy(world: World, fault: Fault, role: StorageRole, partition: int) -> StorageRole | None:
    """Fill it from another copy: that one, or None when it was refused."""
    others = [name for name in world.state.assigned(partition) if name != role.name]
    if not others:
        return None
    source = world.storage[world.loop.rng(f"fault {fault.number} copy").choice(others)]
    try:
        copied = await world.admin.copy(partition, source.name, role.name)
    except RefusedError as error:
        world.loop.note(f"refused: {error}")
        world.counts["copies refused"] += 1
        return None
    world.loop.note(f"copied {copied} records of partition {partition} from {source.name} to {role.name}")
    world.counts["copies past the servers"] += 1
    return source


async def _put_back(world: World, role: StorageRole, partition: int) -> None:
    """Into service again, while the node has a copy at all. RefusedError."""
    if partition in world.state.concerned(role.name):
        await world.admin.set_available(partition, role.name, True)


async def split(world: World, fault: Fault) -> None:
    """The hosts fall apart into two groups that do not hear each other; ZooKeeper is in one of them.

    A server with a minority of the nodes is what matters most, so servers and nodes are never all on one
    side.
    """
    rng = world.loop.rng(f"fault {fault.number}")
    servers, nodes = list(world.servers), list(world.storage)
    here = set(rng.sample(servers, rng.randint(1, max(1, len(servers) - 1))))
    here.update(rng.sample(nodes, rng.randint(1, max(1, len(nodes) - 1))))
    here.update(name for name in world.clients if rng.random() < 0.5)
    if rng.random() < 0.3:
        here.add(ZOOKEEPER)
    everybody = [*world.roles(), ZOOKEEPER]
    one = [name for name in everybody if name in here]
    other = [name for name in everybody if name not in here]
    pairs = [pair for a in one for b in other for pair in ((a, b), (b, a))]
    await block(world, pairs, fault.seconds)
    if rng.random() < 0.4:  # while what only one side had is being cut
        role = world.storage[rng.choice([name for name in one if name in world.storage])]
        await asyncio.sleep(CUT_SECONDS * rng.random())
        role.hold()
        role.power_off()
        await asyncio.sleep(0.5)
        role.release()


HANDLERS = {
    "blackout": blackout,
    "states-lost": states_lost,
    "partition-unavailable": unavailable,
    "split": split,
    "stale-owner": stale_owner,
}
