"""Compare-and-set registers: write locks on what is set, read locks on what is looked at.

A set writes its own uid into a register and says what stood there; a look appends what it saw under a read
lock only, which is the way to read serializably.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import AppendOp
from tests.sim.checkers.payload import Payload
from tests.sim.cluster.access import READ_LOCKS_SINCE, ClusterAccess, Main
from tests.sim.workloads import headers
from tests.sim.workloads.pace import meet, think
from tests.sim.workloads.tracked import TrackedClient
from tests.sim.workloads.view import LogView, work_on_view
from waltz_client import LockId

NAME = "registers"
REGISTERS = 3
EMPTY = -1


class Values:
    """All registers, from the sets applied."""

    def __init__(self) -> None:
        self.of = [EMPTY] * REGISTERS

    def apply(self, _: int, payload: Payload) -> None:
        """One committed transaction."""
        if "old" in payload.body:
            self.of[payload.body["register"]] = payload.uid


class Registers:
    """Users of the registers of one partition."""

    def __init__(self, partition: int, users: int = 2, mean_seconds: float = 1.5) -> None:
        self.name = NAME
        self._partition = partition
        self._users = users
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The users."""

        def main(name: str) -> Callable[[], Any]:
            rng = access.rng(name)
            return lambda: self._run(access, name, rng)

        return [(name, main(name)) for name in (f"registers-{number}" for number in range(self._users))]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random) -> None:
        values = Values()
        view = LogView(self._partition, headers.REGISTERS, values.apply)

        async def work(client: TrackedClient) -> None:
            while await meet(access, rng, self._mean):
                op = self._invoke(access, name, rng, view, values)
                await think(rng)
                await client.append(
                    op,
                    deadline_seconds=rng.choice((1.0, 5.0, 30.0)),
                    max_attempts=rng.choice((None, None, 1)),
                )
                if op.conflict is not None:
                    await view.wait_for(op.conflict, 5.0)

        await work_on_view(access, name, view, work, least_version=READ_LOCKS_SINCE)

    def _invoke(
        self, access: ClusterAccess, name: str, rng: random.Random, view: LogView, values: Values
    ) -> AppendOp:
        register, other = rng.sample(range(REGISTERS), 2)
        look = rng.random() < 0.3
        body = {"register": register, "saw" if look else "old": values.of[register]}
        reads = [LockId("register", register)] if look else []
        if rng.random() < 0.5:
            body |= {"other": other, "other_saw": values.of[other]}
            reads.append(LockId("register", other))
        return access.history.invoke(
            name,
            NAME,
            self._partition,
            body,
            header=headers.REGISTERS,
            write_locks=[] if look else [LockId("register", register)],
            read_locks=reads,
            as_of=view.applied,
        )
