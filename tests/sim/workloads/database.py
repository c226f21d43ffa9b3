"""An application's database: survives the kills of its process; each commit is atomic and can fail in every
way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.sim.checkers.history import AppliedState
from tests.sim.workloads.crash import crash

Row = tuple[int, int | None]

ROUND_TRIP_SECONDS = 0.002


class DatabaseError(Exception):
    """The database said no, or its answer got lost (then the commit may have happened)."""


class SimDatabase:
    """Rows and a high-water mark, and whatever `commit` is given to change with them."""

    def __init__(
        self, state: AppliedState, rng: random.Random, failure_rate: float = 0.01, crash_rate: float = 0.003
    ) -> None:
        """`failure_rate`: share of the commits that raise, half of them after the commit. `crash_rate`:
        of the process."""
        self.state = state
        self._rng = rng
        self._failure_rate = failure_rate
        self._crash_rate = crash_rate

    async def mark(self) -> int:
        """Id of the last transaction applied."""
        await self._travel()
        return self.state.mark

    async def commit(self, rows: list[Row], mark: int, change: Callable[[], None] | None = None) -> None:
        """Add rows, set the mark, and call `change`, all at one moment. DatabaseError; a kill can come on
        either side."""
        await self._travel()
        await self._perhaps_crash()
        fails = self._rng.random() < self._failure_rate
        if fails and self._rng.random() < 0.5:
            raise DatabaseError("refused")
        self.state.apply(rows, mark)
        if change is not None:
            change()
        await self._perhaps_crash()
        await self._travel()
        if fails:
            raise DatabaseError("the answer was lost")

    async def _perhaps_crash(self) -> None:
        """Before the commit, or after it with nobody informed."""
        if self._rng.random() < self._crash_rate:
            await crash()

    async def _travel(self) -> None:
        await asyncio.sleep(self._rng.random() * 2 * ROUND_TRIP_SECONDS)
