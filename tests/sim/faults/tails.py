"""A tail that nobody committed, and the node that has it ends while it is deleted.

While appends are on their way a server hears of one node only; the partition continues without that node;
when it is back, what it alone has is cut, and in the middle of that its process or its power ends.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.common import SkippedError, storage_of
from tests.sim.faults.network_faults import blocked
from tests.sim.faults.plan import Fault
from tests.sim.kernel.disk import partition_directory
from tests.sim.workloads.tracked import open_client
from waltz_cluster.errors import ClusterError
from waltz_server.store.api import StoreState
from waltz_storage.engine import layout

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

NAME = "tail"
MOST_RECORDS = 40
FILLERS = (0, 100, 700)
OPEN_SECONDS = 10.0
WRITE_SECONDS = 3.0
TAIL_SECONDS = 1.6
"""Less than a server waits for an answer: then it would give up its session, and nothing more would be
written."""
TAKE_OVER_SECONDS = 20.0
CUT_SECONDS = 20.0
POLL_SECONDS = 0.1
CALLS_PER_CUT = 2
"""A segment is two files: deleted, or cut short."""


async def end_in_deletion(world: World, fault: Fault) -> None:
    """See the module."""
    rng = world.loop.rng(f"fault {fault.number}")
    role = storage_of(world, fault.targets[0])
    server, partition = _served(world, role, rng)
    others = [name for name in world.state.assigned(partition) if name != role.name]
    alone = [pair for name in others for pair in ((server, name), (name, server))]
    away = [pair for name in world.servers for pair in ((name, role.name), (role.name, name))]
    session = _session(world, partition)
    writer = _Writer(world, f"{NAME}-{fault.number}", partition, rng)
    try:
        await writer.wait_ready()
        with ExitStack() as cut_off:
            with blocked(world, alone):
                writer.go.set()
                await asyncio.sleep(TAIL_SECONDS)
                mark = world.state.committed_mark(partition)
                if _last(role, partition) <= mark:
                    raise SkippedError("no tail came to be")
                cut_off.enter_context(blocked(world, away))
                world.servers[server].kill()
                for name in others:  # what was on its way to them must not arrive when the way is open again
                    world.loop.network.reset(server, name)
            await _taken_over(world, partition, session)
            ended = _order_end(role, partition, mark, fault.amount)
        try:
            async with asyncio.timeout(CUT_SECONDS):
                await ended.wait()
        except TimeoutError:
            role.disk.cancel_crash()
            raise SkippedError("nothing was deleted") from None
    finally:
        writer.end()
    await asyncio.sleep(fault.seconds)
    role.release()


class _Writer:
    """A process that appends much at once when it is asked to; nobody waits for what becomes of it."""

    def __init__(self, world: World, name: str, partition: int, rng: random.Random) -> None:
        self.go = asyncio.Event()
        self._world, self._name, self._partition, self._rng = world, name, partition, rng
        self._ready = asyncio.Event()
        self._process = world.loop.spawn_process(name, world.loop.host(name), self._main)

    async def wait_ready(self) -> None:
        """Until it can append; SkippedError."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            raise SkippedError("nobody can append") from None

    def end(self) -> None:
        """It is not needed any longer."""
        self._process.kill()
        error = self._process.exit_error
        if error is not None and not isinstance(error, ClusterError):
            self._world.unexpected(self._name, f"ended with {type(error).__name__}: {error}")

    async def _main(self) -> None:
        rng, history = self._rng, self._world.history
        async with open_client(
            self._world.access, self._name, None, max_concurrent_transactions=MOST_RECORDS
        ) as client:
            if not await client.writable(self._partition, OPEN_SECONDS):
                return
            self._ready.set()
            await self.go.wait()
            filler = rng.choice(FILLERS)
            count = rng.randint(1, MOST_RECORDS)
            ops = [
                history.invoke(self._name, NAME, self._partition, {"filler": "x" * filler})
                for _ in range(count)
            ]
            await client.append_many(ops, deadline_seconds=WRITE_SECONDS)


def _served(world: World, role: StorageRole, rng: random.Random) -> tuple[str, int]:
    """A server, and a partition of its own that the node has a copy of, one of three at least."""
    found = [
        (name, partition)
        for partition in world.state.concerned(role.name)
        if role.name in (held := world.state.assigned(partition)) and len(held) > 2
        for name, server in world.servers.items()
        if (store := server.store(partition)) is not None and store.state is StoreState.OPEN
    ]
    if not found:
        raise SkippedError(f"{role.name} has no copy that is written to")
    return rng.choice(found)


def _session(world: World, partition: int) -> int:
    state = world.state.metadata(partition)
    return -1 if state is None else state.session_id


def _last(role: StorageRole, partition: int) -> int:
    held = role.node.manager.partitions.get(partition) if role.node is not None else None
    return -1 if held is None else held.max_txid


async def _taken_over(world: World, partition: int, session: int) -> None:
    """Until another session is open; SkippedError."""
    deadline = world.loop.time() + TAKE_OVER_SECONDS
    while world.loop.time() < deadline:
        stores = [store for role in world.servers.values() if (store := role.store(partition)) is not None]
        if _session(world, partition) > session and any(s.state is StoreState.OPEN for s in stores):
            return
        await asyncio.sleep(POLL_SECONDS)
    raise SkippedError("no other session was opened")


def _order_end(role: StorageRole, partition: int, mark: int, amount: float) -> asyncio.Event:
    """End the node inside the cutting of what lies above `mark`; the event is set when that has
    happened."""
    directory = partition_directory(partition)
    if not role.disk.is_dir(directory):
        raise SkippedError(f"{role.name} has no copy any longer")
    firsts = [int(name[:-4]) for name in role.disk.listdir(directory) if name.endswith(layout.DATA_SUFFIXES)]
    deleted = sum(first > mark + 1 for first in firsts)
    end = StorageRole.kill if int(amount * 100) % 2 else StorageRole.power_off
    happened = asyncio.Event()

    def crash() -> None:
        role.hold()
        happened.set()
        end(role)

    calls = int(amount * CALLS_PER_CUT * max(1, deleted))
    role.disk.crash_after_calls(calls, crash, ("unlink",) if deleted else ("truncate",))
    return happened


HANDLERS = {"storage-end-in-deletion": end_in_deletion}
