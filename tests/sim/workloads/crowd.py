"""Many at once: writers that send hundreds of appends in a burst, some under locks that they contend for.

For the dense profile: a batch, a frame or a queue holds many records of many callers when a fault strikes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import AppendOp
from tests.sim.cluster.access import APPEND_LOCKS_SINCE, ClusterAccess, Main
from tests.sim.workloads import headers
from tests.sim.workloads.pace import meet
from tests.sim.workloads.tracked import TrackedClient, open_client
from waltz_client import LockId

NAME = "crowd"
WRITERS = 2
WINDOW = 400
BURSTS = (40, 80, 200)
HOT_LOCKS, COOL_LOCKS = 8, 60
FILLERS = (0, 0, 0, 0, 60, 300)


class Crowd:
    """Writers to all partitions."""

    def __init__(self, writers: int = WRITERS, mean_seconds: float = 4.0) -> None:
        self.name = NAME
        self._writers = writers
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The writers."""

        def main(name: str) -> Callable[[], Any]:
            rng = access.rng(name)
            return lambda: self._run(access, name, rng)

        return [(name, main(name)) for name in (f"crowd-{number}" for number in range(self._writers))]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random) -> None:
        async with open_client(
            access, name, None, least_version=APPEND_LOCKS_SINCE, max_concurrent_transactions=WINDOW
        ) as client:
            while await meet(access, rng, self._mean):
                await self._burst(access, rng, client, rng.randrange(access.partitions))

    async def _burst(
        self, access: ClusterAccess, rng: random.Random, client: TrackedClient, partition: int
    ) -> None:
        if not await client.writable(partition):
            return
        ops = [self._invoke(access, rng, client, partition) for _ in range(rng.choice(BURSTS))]
        await client.append_many(ops, deadline_seconds=rng.choice((2.0, 10.0, 30.0)))

    def _invoke(
        self, access: ClusterAccess, rng: random.Random, client: TrackedClient, partition: int
    ) -> AppendOp:
        chance = rng.random()
        locks: dict[str, Any] = {}
        if chance < 0.2:
            locks["append_locks"] = [LockId(NAME, rng.randrange(HOT_LOCKS))]
        elif chance < 0.3:
            locks["write_locks"] = [LockId(NAME, HOT_LOCKS + rng.randrange(COOL_LOCKS))]
        elif chance < 0.33:
            locks["write_locks"] = [LockId(NAME, HOT_LOCKS + rng.randrange(COOL_LOCKS))]
            locks["read_locks"] = [LockId(NAME, rng.randrange(HOT_LOCKS))]
        as_of = client.seen(partition) if locks and rng.random() < 0.5 else None
        return access.history.invoke(
            client.process,
            NAME,
            partition,
            {"filler": "x" * rng.choice(FILLERS)},
            header=headers.CROWD,
            as_of=as_of,
            **locks,
        )
