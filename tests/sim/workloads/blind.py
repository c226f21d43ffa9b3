"""Pipelined writers without locks: everything that was acknowledged must be there once, in the order it was
sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import AppendOp, Outcome
from tests.sim.cluster.access import ClusterAccess, Main
from tests.sim.workloads import headers
from tests.sim.workloads.pace import meet
from tests.sim.workloads.tracked import TrackedClient, open_client
from waltz_client import WaltzClientError

NAME = "blind"
BURST = 60


class Blind:
    """Writers to all partitions."""

    def __init__(self, writers: int = 1, mean_seconds: float = 4.0) -> None:
        self.name = NAME
        self._writers = writers
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The writers."""

        def main(name: str) -> Callable[[], Any]:
            rng = access.rng(name)
            return lambda: self._run(access, name, rng)

        return [(name, main(name)) for name in (f"blind-{number}" for number in range(self._writers))]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random) -> None:
        window = rng.choice((5, 20, 100))
        async with open_client(access, name, None, max_concurrent_transactions=window) as client:
            while await meet(access, rng, self._mean):
                partition = rng.randrange(access.partitions)
                count = BURST if rng.random() < 0.02 else rng.choice((1, 1, 2, 5, 15))
                if rng.random() < 0.5:
                    await self._without_waiting(access, rng, client, partition, count)
                else:
                    pipeline = f"{client.name}/{access.history.tick()}"
                    ops = [self._invoke(access, name, partition, rng, pipeline) for _ in range(count)]
                    await client.append_many(ops, deadline_seconds=rng.choice((0.5, 5.0, 30.0)))
            await _flush(client)

    async def _without_waiting(
        self, access: ClusterAccess, rng: random.Random, client: TrackedClient, partition: int, count: int
    ) -> None:
        if not await client.writable(partition):
            return
        for _ in range(count):
            op = self._invoke(access, client.process, partition, rng, client.name)
            if not client.append_nowait(op):
                return  # the window is full

    def _invoke(
        self, access: ClusterAccess, name: str, partition: int, rng: random.Random, pipeline: str
    ) -> AppendOp:
        filler = "x" * rng.choice((0, 0, 0, 100, 700))
        return access.history.invoke(
            name, NAME, partition, {"filler": filler}, header=headers.BLIND, pipeline=pipeline
        )


async def _flush(client: TrackedClient) -> None:
    """After a flush every append sent before has an outcome."""
    pending = [op for op in client.ops if op.outcome is Outcome.PENDING]
    try:
        await client.client.flush_transactions(deadline_seconds=60.0)
    except WaltzClientError as error:
        client.note_client_ahead(error)
        return
    await asyncio.sleep(0)
    client.check_ended(pending)
