"""Consumers that apply a partition to a database, together with their high-water mark, and are killed.

After each start they continue after the mark that the database has. One reads payloads, the other headers in
batches.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import Violation
from tests.sim.checkers.payload import uid_of
from tests.sim.cluster.access import ClusterAccess, Main
from tests.sim.workloads.database import DatabaseError, Row, SimDatabase
from tests.sim.workloads.tracked import TrackedClient, open_client
from tests.sim.workloads.view import CATCH_UP_SECONDS
from waltz_client import FeedTransaction

NAME = "databases"
STEP_SECONDS = 0.5


class Databases:
    """Consumers of one partition."""

    def __init__(self, partition: int, consumers: int = 1) -> None:
        self.name = NAME
        self._partition = partition
        self._consumers = consumers

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The consumers, each with its database."""

        def main(name: str) -> Callable[[], Any]:
            rng = access.rng(name)
            state = access.history.database(name, self._partition)
            database = SimDatabase(state, access.rng(f"{name}/database"))
            return lambda: self._run(access, name, rng, database)

        return [(name, main(name)) for name in (f"database-{number}" for number in range(self._consumers))]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random, database: SimDatabase) -> None:
        small = {
            "prefetch_transactions": rng.choice((1, 4, 512)),
            "prefetch_bytes": rng.choice((64, 8_000_000)),
        }
        async with open_client(access, name, None, **small) as client:
            while not access.stopping.is_set():
                with_data = rng.random() < 0.7
                rows = rng.choice((1, 1, 5, 50))
                try:
                    async with asyncio.TaskGroup() as group:
                        applying = group.create_task(self._apply(client, database, with_data, rows))
                        while not access.stopping.is_set() and not applying.done():
                            await asyncio.sleep(STEP_SECONDS)
                        if not applying.done():
                            await self._finish(client, database)
                        applying.cancel()
                except* DatabaseError:
                    access.history.counts["database errors"] += 1

    async def _apply(
        self, client: TrackedClient, database: SimDatabase, with_data: bool, rows_per_commit: int
    ) -> None:
        rows: list[Row] = []
        mark = await database.mark()

        async def take(transaction: FeedTransaction) -> None:
            data = transaction.data
            rows.append((transaction.transaction_id, None if data is None else uid_of(data)))
            newest = client.history.book.mark(self._partition)
            if len(rows) >= rows_per_commit or transaction.transaction_id >= newest:
                await database.commit(rows, transaction.transaction_id)
                rows.clear()

        await client.follow({self._partition: mark}, take, with_data=with_data)

    async def _finish(self, client: TrackedClient, database: SimDatabase) -> None:
        """The faults are over: everything committed must reach the database. One that asks for a transaction
        at a time over a slow network has a long way, so time is given for each step. Violation: `progress`.
        """
        mark = await client.high_water_mark(self._partition, CATCH_UP_SECONDS)
        loop = asyncio.get_running_loop()
        seen, deadline = database.state.mark, loop.time() + CATCH_UP_SECONDS
        while mark is None or database.state.mark < mark:
            if database.state.mark > seen:
                seen, deadline = database.state.mark, loop.time() + CATCH_UP_SECONDS
            if loop.time() >= deadline:
                text = f"{client.name}: the database is at {database.state.mark} of {mark}"
                client.history.report(Violation("progress", text))
                return
            await asyncio.sleep(STEP_SECONDS)
