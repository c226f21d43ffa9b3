"""ZooKeeper: sessions that end, answers that get lost, watches that come late, restarts, hosts that are cut
off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.faults.common import SkippedError, role_of
from tests.sim.faults.network_faults import block
from tests.sim.faults.plan import ZOOKEEPER, Fault
from tests.sim.faults.process_faults import kill
from tests.sim.kernel.disk import Seconds
from tests.sim.kernel.zookeeper_minority import SYNC_LIMIT_SECONDS
from waltz_cluster.memory_store import Fault as Loss
from waltz_cluster.serializers import Counter

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

SLOWEST_WATCH_SECONDS = 4.0
MOST_ROLLED_BACK = 3
WAS_LEADER = 0.4
LONGEST_ELECTION_SECONDS = 2.0


async def expiry(world: World, fault: Fault) -> None:
    """The server ends the sessions of a host."""
    if not world.zookeeper.expire(fault.targets[0]):
        raise SkippedError("there was no session")
    await asyncio.sleep(0)


async def lost_answer(world: World, fault: Fault) -> None:
    """For a while operations of a host break their connection: some were done, some were not, nobody says
    which."""
    name = fault.targets[0]
    role_of(world, name)
    rng = world.loop.rng(f"fault {fault.number}")
    world.losses[name] = _losses(rng, 0.1 + 0.6 * fault.amount)
    await asyncio.sleep(fault.seconds)
    world.losses.pop(name, None)


def _losses(rng: random.Random, probability: float) -> Callable[[], Loss | None]:
    def draw() -> Loss | None:
        return rng.choice((Loss.LOSE_REQUEST, Loss.LOSE_REPLY)) if rng.random() < probability else None

    return draw


async def late_watches(world: World, fault: Fault) -> None:
    """Watches, and all answers behind them, take up to seconds."""
    world.zookeeper.watch_delay = Seconds(0.0, SLOWEST_WATCH_SECONDS * fault.amount)
    await asyncio.sleep(fault.seconds)
    world.zookeeper.watch_delay = Seconds(0.0, 0.0)


async def lagging_follower(world: World, fault: Fault) -> None:
    """Reads are answered with what the tree was up to seconds ago; no session sees it go back."""
    world.zookeeper.follower_lag = Seconds(0.0, SLOWEST_WATCH_SECONDS * fault.amount)
    await asyncio.sleep(fault.seconds)
    world.zookeeper.follower_lag = Seconds(0.0, 0.0)


async def restart(world: World, fault: Fault) -> None:
    """All connections break; the tree stays."""
    world.zookeeper.restart(fault.seconds)
    await asyncio.sleep(fault.seconds)


async def cut(world: World, fault: Fault) -> None:
    """A host and ZooKeeper do not hear each other, or only one way."""
    name = fault.targets[0]
    both = [(name, ZOOKEEPER), (ZOOKEEPER, name)]
    await block(world, both if fault.amount < 0.6 else [both[int(fault.amount * 100) % 2]], fault.seconds)


async def client_ids_back(world: World, fault: Fault) -> None:
    """The counter of client ids is rolled back, as by a tree that somebody restored, and a client starts
    anew: it, and those that start after it, get ids that living ones have."""
    path = world.state.paths.client_ids
    known = world.zookeeper.find(path)
    given = 0 if known is None else Counter.from_bytes(known.data).value
    if given == 0:
        raise SkippedError("no client has an id yet")
    if world.counts["client ids rolled back"] >= MOST_ROLLED_BACK:
        raise SkippedError("a server refuses a fifth client of one id as long as four live")
    world.counts["client ids rolled back"] += 1
    world.zookeeper.set(path, Counter(int(given * fault.amount)).to_bytes(), -1)
    await kill(world, fault)


async def minority(world: World, fault: Fault) -> None:
    """A member of the ensemble is cut off with those who are connected to it; it may have been the leader,
    then the others are without one for a moment. Nothing acknowledged is lost."""
    rng = world.loop.rng(f"fault {fault.number}")
    share = rng.choice((0.2, 0.5))
    hosts = [name for name in (*world.servers, *world.clients) if rng.random() < share]
    if not world.zookeeper.cut_off_member([*hosts, fault.targets[0]]):
        raise SkippedError("no session, or a member is cut off already")
    with world.doubt():
        if fault.amount < WAS_LEADER:
            world.zookeeper.restart(LONGEST_ELECTION_SECONDS * rng.random())
        await asyncio.sleep(min(fault.seconds, SYNC_LIMIT_SECONDS))
        world.zookeeper.rejoin(with_writes=rng.random() < 0.5)


HANDLERS = {
    "zookeeper-minority": minority,
    "zookeeper-expiry": expiry,
    "zookeeper-lost-answer": lost_answer,
    "zookeeper-late-watches": late_watches,
    "zookeeper-lagging-follower": lagging_follower,
    "zookeeper-restart": restart,
    "zookeeper-cut": cut,
    "client-ids-back": client_ids_back,
}
