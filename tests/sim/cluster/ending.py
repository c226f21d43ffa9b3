"""The end of a run: heal, see that everything continues, wait until it is quiet, and find out what is
true."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.checkers.history import Truth
from tests.sim.kernel.disk import DATA_DIRECTORY
from waltz_client import WaltzClient
from waltz_client.errors import WaltzClientError
from waltz_protocol.records import unpack_record
from waltz_protocol.types import Record
from waltz_storage.engine.inspect import inspect_directory
from waltz_testkit.stored_records import iterate_records

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

PROGRESS_SECONDS = 60.0
"""After the last fault a partition takes an append within this time."""
FINISH_SECONDS = 600.0
"""Within this time after being asked to end a workload has ended."""
SETTLE_SECONDS = 90.0
"""Within this time after the last progress all replicas are equal."""
LONGEST_SETTLE_SECONDS = 900.0
LEAVE_SECONDS = 20.0
POLL_SECONDS = 0.5
PROBE = "probe"


class Ending:
    """Owner: the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop

    async def run(self) -> None:
        """All of it; violations go to the world."""
        world = self._world
        await self._heal()
        truth = Truth({}, healed_at=self._loop.time())
        if not await self._progress():
            return
        await self._finish_workloads()
        truth.ended_at = self._loop.time()
        if not await self._settle():
            return
        await self._read_all(truth)
        await self._leave()
        self._read_disks(truth)
        world.check(truth)

    async def _heal(self) -> None:
        world = self._world
        self._loop.note("heal")
        self._loop.network.heal_all()
        world.losses.clear()
        for storage in world.storage.values():
            storage.heal_disk()
        for role in world.roles().values():
            role.down = 0
            role.resume()
            role.start()
        await asyncio.sleep(1.0)
        await world.repairs.repair_all()

    async def _progress(self) -> bool:
        """Every partition takes an append in time."""
        world = self._world
        start = self._loop.time()

        async def one(client: WaltzClient, partition: int) -> None:
            op = world.history.invoke(PROBE, PROBE, partition, {})
            try:
                done = await client.append(
                    partition=partition,
                    data=op.data,
                    deadline_seconds=PROGRESS_SECONDS - (self._loop.time() - start),
                )
            except WaltzClientError as error:
                world.history.unknown(op, type(error).__name__)
                world.violation(
                    "progress", f"partition {partition}: no append for {PROGRESS_SECONDS:g} s: {error}"
                )
            else:
                world.history.committed(op, done.transaction_id)

        async def main() -> None:
            async with world.access.new_client(PROBE) as client, asyncio.TaskGroup() as tasks:
                for partition in range(world.shape.partitions):
                    tasks.create_task(one(client, partition))

        before = len(world.result.violations)
        process = self._loop.spawn_process(PROBE, self._loop.host(PROBE), main)
        await process.wait_ended()
        if process.exit_error is not None:
            world.violation("progress", f"the probe ended: {process.exit_error!r}")
        return len(world.result.violations) == before

    async def _finish_workloads(self) -> None:
        world = self._world
        world.access.stopping.set()
        deadline = self._loop.time() + FINISH_SECONDS
        while self._loop.time() < deadline:
            if all(client.finished for client in world.clients.values()):
                return
            await asyncio.sleep(POLL_SECONDS)
        for name, client in world.clients.items():
            if not client.finished:
                world.violation("progress", f"{name} has not ended {FINISH_SECONDS:g} s after being asked to")

    async def _settle(self) -> bool:
        world = self._world
        last_deadline = self._loop.time() + LONGEST_SETTLE_SECONDS
        deadline, before = self._loop.time() + SETTLE_SECONDS, world.state.unsettled()
        while not world.state.settled():
            now = self._loop.time()
            if (lines := world.state.unsettled()) != before:  # a copy of many records makes progress
                deadline, before = min(now + SETTLE_SECONDS, last_deadline), lines
            if now > deadline:
                for line in lines:
                    world.violation("replicas_settle", f"after {SETTLE_SECONDS:g} s: {line}")
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def _read_all(self, truth: Truth) -> None:
        """What a fresh client reads of everything."""
        world = self._world

        async def main() -> None:
            async with world.access.new_client("reader") as client:
                for partition in range(world.shape.partitions):
                    mark = await client.high_water_mark(partition, deadline_seconds=PROGRESS_SECONDS)
                    truth.high_water_marks[partition] = mark
                    records = truth.log.setdefault(partition, [])
                    if mark < 0:
                        continue
                    async with asyncio.timeout(PROGRESS_SECONDS) as limit:
                        async for got in client.feed(partition, until=mark):
                            limit.reschedule(self._loop.time() + PROGRESS_SECONDS)
                            records.append(
                                Record(got.transaction_id, got.req_id, got.header, got.data or b"", 0)
                            )

        process = self._loop.spawn_process("reader", self._loop.host(PROBE), main)
        await process.wait_ended()
        if process.exit_error is not None:
            world.violation("progress", f"the last reader ended: {process.exit_error!r}")

    async def _leave(self) -> None:
        """Everybody leaves in order, servers first."""
        world = self._world
        for roles in (world.servers.values(), world.storage.values()):
            for role in roles:
                role.down += 1
                role.terminate()
            deadline = self._loop.time() + LEAVE_SECONDS
            while any(role.alive for role in roles) and self._loop.time() < deadline:
                await asyncio.sleep(POLL_SECONDS)
            for role in roles:
                if role.alive:
                    world.violation("leave", f"{role.name} did not leave in order")

    def _read_disks(self, truth: Truth) -> None:
        """What the disks hold, read by the inspecting code of the engine, which shares nothing with the
        serving one."""
        world = self._world
        for name, role in world.storage.items():
            report = inspect_directory(DATA_DIRECTORY, fs=role.disk)
            held = [
                partition
                for partition in range(world.shape.partitions)
                if name in world.state.assigned(partition)
            ]
            # What was taken away with its files kept is repaired when it is assigned again: its index need
            # not have been synced.
            for one in report.partitions:
                for problem in (one.problem, *(segment.problem for segment in one.segments)):
                    if problem is not None and one.partition_id in held:
                        world.violation("disk", f"{name}: {problem}")
            for partition in held:
                raw = iterate_records(DATA_DIRECTORY, partition, fs=role.disk)
                truth.replicas.setdefault(partition, {})[name] = [unpack_record(one)[0] for one in raw]
