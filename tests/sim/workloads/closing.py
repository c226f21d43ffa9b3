"""Callers that do not wait for the end: cancelled appends, deadlines far too short, clients closed under
their appends, crashes.

And rivals that share a client, leave the view to it, and try again at once after a lock conflict; some let
the client try again after other failures, too, which must not make their view a newer one.
"""

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
RIVALS = 3
TRIES = 3


class Closing:
    """One process that opens a client, begins some appends, and goes away, again and again."""

    def __init__(self, mean_seconds: float = 4.0) -> None:
        self.name = NAME
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The processes."""
        rng, rivals_rng, patient_rng = (access.rng(name) for name in ("closing-0", "rivals-0", "rivals-1"))
        return [
            ("closing-0", lambda: self._run(access, rng)),
            ("rivals-0", lambda: self._run_rivals(access, rivals_rng, "rivals-0", 1)),
            ("rivals-1", lambda: self._run_rivals(access, patient_rng, "rivals-1", None)),
        ]

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
        locks = [LockId(NAME, 0)] if rng.random() < 0.5 else []
        op = self._invoke(access, "closing-0", partition, locks)
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

    async def _run_rivals(
        self, access: ClusterAccess, rng: random.Random, process: str, attempts: int | None
    ) -> None:
        async with open_client(access, process) as client:
            while await meet(access, rng, self._mean):
                partition = rng.randrange(access.partitions)
                async with asyncio.TaskGroup() as group:
                    for _ in range(RIVALS):
                        group.create_task(self._again(access, client, partition, attempts))

    async def _again(
        self, access: ClusterAccess, client: TrackedClient, partition: int, attempts: int | None
    ) -> None:
        """Append under the lock; after a conflict again at once: the client must have received by then what
        was in the way."""
        for _ in range(TRIES):
            op = self._invoke(access, client.process, partition, [LockId("rival", 0)])
            await client.append(op, deadline_seconds=5.0 if attempts else 20.0, max_attempts=attempts)
            if op.conflict is None:
                return

    def _invoke(self, access: ClusterAccess, process: str, partition: int, locks: list[LockId]) -> AppendOp:
        return access.history.invoke(process, NAME, partition, {}, header=headers.CLOSING, write_locks=locks)
