"""Bank transfers under write locks.

A teller decides on balances derived from the log as of some transaction, and writes down the balances it saw.
If what it saw is not what the log says at that place, a lock did not hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import AppendOp
from tests.sim.checkers.payload import Payload
from tests.sim.cluster.access import ClusterAccess, Main
from tests.sim.workloads import headers
from tests.sim.workloads.pace import meet, think
from tests.sim.workloads.tracked import TrackedClient
from tests.sim.workloads.view import LogView, work_on_view
from waltz_client import LockId

NAME = "bank"
ACCOUNTS = 4
START_BALANCE = 100


class Balances:
    """All accounts, from the transfers applied."""

    def __init__(self) -> None:
        self.of = [START_BALANCE] * ACCOUNTS

    def apply(self, _: int, payload: Payload) -> None:
        """One committed transfer."""
        body = payload.body
        self.of[body["from"]] -= body["amount"]
        self.of[body["to"]] += body["amount"]


def decide(rng: random.Random, balances: list[int]) -> tuple[dict[str, Any], tuple[LockId, LockId]] | None:
    """A transfer that the balances allow, and its locks; None when the account drawn is empty."""
    source, target = rng.sample(range(ACCOUNTS), 2)
    if balances[source] <= 0:
        return None
    body = {
        "from": source,
        "to": target,
        "amount": rng.randint(1, balances[source]),
        "from_had": balances[source],
        "to_had": balances[target],
    }
    return body, (LockId("account", source), LockId("account", target))


class Bank:
    """Tellers of one partition."""

    def __init__(self, partition: int, tellers: int = 2, mean_seconds: float = 1.5) -> None:
        self.name = NAME
        self._partition = partition
        self._tellers = tellers
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The tellers."""

        def main(name: str) -> Callable[[], Any]:
            rng = access.rng(name)
            return lambda: self._run(access, name, rng)

        return [(name, main(name)) for name in (f"bank-{number}" for number in range(self._tellers))]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random) -> None:
        balances = Balances()
        view = LogView(self._partition, headers.BANK, balances.apply, fetch_all=rng.random() < 0.3)

        async def work(client: TrackedClient) -> None:
            while await meet(access, rng, self._mean):
                op = self._transfer(access, name, rng, view, balances)
                if op is None:
                    continue
                await think(rng)
                await client.append(op, deadline_seconds=rng.choice((2.0, 10.0, 30.0)))
                if op.conflict is not None:
                    await view.wait_for(op.conflict, 5.0)

        await work_on_view(access, name, view, work)

    def _transfer(
        self, access: ClusterAccess, name: str, rng: random.Random, view: LogView, balances: Balances
    ) -> AppendOp | None:
        decision = decide(rng, balances.of)
        if decision is None:
            return None
        body, locks = decision
        return access.history.invoke(
            name, NAME, self._partition, body, header=headers.BANK, write_locks=locks, as_of=view.applied
        )
