"""Counters: blind additions under append locks, and seals that write down a sum under a lock that additions
must fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import AppendOp
from tests.sim.checkers.payload import Payload
from tests.sim.cluster.access import APPEND_LOCKS_SINCE, ClusterAccess, Main
from tests.sim.workloads import headers
from tests.sim.workloads.pace import meet, think
from tests.sim.workloads.tracked import TrackedClient
from tests.sim.workloads.view import LogView, work_on_view
from waltz_client import LockId

NAME = "counters"
COUNTERS = 2


class Sums:
    """All counters, from the additions applied."""

    def __init__(self) -> None:
        self.of = [0] * COUNTERS

    def apply(self, _: int, payload: Payload) -> None:
        """One committed transaction."""
        self.of[payload.body["counter"]] += payload.body.get("add", 0)


class Counters:
    """Adders and a sealer of one partition."""

    def __init__(self, partition: int, mean_seconds: float = 2.5) -> None:
        self.name = NAME
        self._partition = partition
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """One that adds, one that seals and adds."""

        def main(name: str, seals: float) -> Callable[[], Any]:
            rng = access.rng(name)
            return lambda: self._run(access, name, rng, seals)

        return [("counters-0", main("counters-0", 0.0)), ("counters-1", main("counters-1", 0.6))]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random, seals: float) -> None:
        sums = Sums()
        view = LogView(self._partition, headers.COUNTERS, sums.apply)

        async def work(client: TrackedClient) -> None:
            while await meet(access, rng, self._mean):
                if rng.random() < seals:
                    op = self._seal(access, name, rng, view, sums)
                    await think(rng)
                    await client.append(op, deadline_seconds=10.0)
                    if op.conflict is not None:
                        await view.wait_for(op.conflict, 5.0)
                else:
                    await self._add(access, name, rng, client)

        await work_on_view(
            access,
            name,
            view,
            work,
            least_version=APPEND_LOCKS_SINCE,
            max_concurrent_transactions=40,
        )

    async def _add(self, access: ClusterAccess, name: str, rng: random.Random, client: TrackedClient) -> None:
        ops = []
        pipeline = f"{client.name}/{access.history.tick()}"
        for _ in range(rng.choice((1, 1, 2, 10))):
            counter = rng.randrange(COUNTERS)
            ops.append(
                access.history.invoke(
                    name,
                    NAME,
                    self._partition,
                    {"counter": counter, "add": rng.randint(1, 9)},
                    header=headers.COUNTERS,
                    append_locks=[LockId("counter", counter)],
                    pipeline=pipeline,
                )
            )
        await client.append_many(ops, deadline_seconds=rng.choice((2.0, 20.0)))

    def _seal(
        self, access: ClusterAccess, name: str, rng: random.Random, view: LogView, sums: Sums
    ) -> AppendOp:
        counter = rng.randrange(COUNTERS)
        locks = [LockId("counter", counter)]
        by_write = rng.random() < 0.3
        return access.history.invoke(
            name,
            NAME,
            self._partition,
            {"counter": counter, "sum": sums.of[counter]},
            header=headers.COUNTERS,
            write_locks=locks if by_write else [],
            read_locks=[] if by_write else locks,
            as_of=view.applied,
        )
