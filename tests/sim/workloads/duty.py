"""Read locks against write skew: of each pair one must be on duty.

Who goes off duty looks at the other under a read lock and writes its own state. Two of these at the same time
touch different things, so write locks alone would let both go.
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

NAME = "duty"
PAIRS = 2


class Roster:
    """Who is on duty: pair -> (first, second). Everybody at the beginning."""

    def __init__(self) -> None:
        self.of = [[True, True] for _ in range(PAIRS)]

    def apply(self, _: int, payload: Payload) -> None:
        """One committed change."""
        body = payload.body
        self.of[body["pair"]][body["who"]] = body["on"]


class Duty:
    """Two processes, each for one side of every pair."""

    def __init__(self, partition: int, mean_seconds: float = 1.5) -> None:
        self.name = NAME
        self._partition = partition
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """One for each side."""

        def main(name: str, side: int) -> Callable[[], Any]:
            rng = access.rng(name)
            return lambda: self._run(access, name, rng, side)

        return [(f"duty-{side}", main(f"duty-{side}", side)) for side in (0, 1)]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random, side: int) -> None:
        roster = Roster()
        view = LogView(self._partition, headers.DUTY, roster.apply)

        async def work(client: TrackedClient) -> None:
            while await meet(access, rng, self._mean):
                op = self._change(access, name, rng.randrange(PAIRS), side, view, roster)
                if op is not None:
                    await think(rng)
                    await client.append(op, deadline_seconds=rng.choice((3.0, 30.0)))
                    if op.conflict is not None:
                        await view.wait_for(op.conflict, 5.0)

        await work_on_view(access, name, view, work, least_version=READ_LOCKS_SINCE)

    def _change(
        self, access: ClusterAccess, name: str, pair: int, side: int, view: LogView, roster: Roster
    ) -> AppendOp | None:
        on, other_on = roster.of[pair][side], roster.of[pair][1 - side]
        if on and not other_on:
            return None  # the other is off duty
        mine, others = LockId("duty", 2 * pair + side), LockId("duty", 2 * pair + 1 - side)
        return access.history.invoke(
            name,
            NAME,
            self._partition,
            {"pair": pair, "who": side, "on": not on, "other_was": other_on},
            header=headers.DUTY,
            write_locks=[mine],
            read_locks=[others],
            as_of=view.applied,
        )
