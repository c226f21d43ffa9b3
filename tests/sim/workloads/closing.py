"""Callers that do not wait for the end: cancelled appends, deadlines far too short, clients closed under their appends, crashes."""

from __future__ import annotations

import asyncio
import random

from tests.sim.checkers.history import AppendOp
from tests.sim.cluster.access import ClusterAccess, Main
from tests.sim.workloads import headers
from tests.sim.workloads.crash import crash
from tests.sim.workloads.pace import meet
from tests.sim.workloads.tracked import TrackedClient, open_client
from waltz_client import LockId

NAME = "closing"


class Closing:
    """One process that opens a client, begins some appends, and goes away, again and again."""

    def __init__(self, mean_seconds: float = 4.0) -> None:
        self.name = NAME
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The process."""
        rng = access.rng("closing-0")
        return [("closing-0", lambda: self._run(access, rng))]

    async def _run(self, access: ClusterAccess, rng: random.Random) -> None:
        while await meet(access, rng, self._mean):
            # Leaving closes the client: what is still on its way ends as unknown, at once.
            async with asyncio.TaskGroup() as group, open_client(access, "closing-0") as client:
                for _ in range(rng.randint(1, 3)):
                    await self._one(access, rng, client, group)

    async def _one(
        self, access: ClusterAccess, rng: random.Random, client: TrackedClient, group: asyncio.TaskGroup
    ) -> None:
        partition = rng.randrange(access.partitions)
        kind = rng.choice(("deadline", "cancel", "leave", "without waiting", "crash"))
        if kind == "without waiting" and not await client.writable(partition):
            return
        op = self._invoke(access, rng, partition)
        if kind == "deadline":
            await client.append(op, deadline_seconds=rng.choice((0.0, 0.001, 0.01, 0.1)))
            return
        if kind == "without waiting":
            client.append_nowait(op)
            return
        task = group.create_task(client.append(op, deadline_seconds=20.0))
        await asyncio.sleep(rng.choice((0.0, 0.001, 0.01, 0.5)))
        if kind == "crash":
            await crash()
        if kind == "cancel":
            task.cancel()

    def _invoke(self, access: ClusterAccess, rng: random.Random, partition: int) -> AppendOp:
        locks = [LockId("closing", 0)] if rng.random() < 0.5 else []
        return access.history.invoke(
            "closing-0", NAME, partition, {}, header=headers.CLOSING, write_locks=locks
        )
