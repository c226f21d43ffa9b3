"""What a writer knows of the log: per partition, how far it has read and where each aircraft's flights are.

Fed by the headers of the feed alone (the header of a flight is the number of its aircraft). Reading `applied`
and `previous` without an await in between gives a view that the server can check: a write lock on the
aircraft with `as_of=applied` only passes if nobody has flown the aircraft since.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right


class Chains:
    """One partition as a writer sees it. Owner: the writer's feed task; waiters only wait.

    Invariants: `applied` is the id up to which every transaction was taken into account, in order; the list
    of an aircraft is ascending.
    """

    def __init__(self) -> None:
        self.applied = -1
        self._flights: dict[int, list[int]] = {}
        self._changed: asyncio.Future[None] | None = None

    def apply(self, transaction_id: int, header: int) -> None:
        """The next transaction of the partition; ValueError when it is not the next one."""
        if transaction_id != self.applied + 1:
            raise ValueError(f"the feed goes from {self.applied} to {transaction_id}")
        self.applied = transaction_id
        self._flights.setdefault(header, []).append(transaction_id)

    def applied_some(self) -> None:
        """A batch was applied: let waiters look."""
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    def previous(self, header: int) -> int | None:
        """Transaction id of the latest flight with this header, None if there is none."""
        flights = self._flights.get(header)
        return flights[-1] if flights else None

    def after(self, header: int, transaction_id: int) -> list[int]:
        """Flights with this header behind `transaction_id`."""
        flights = self._flights.get(header, [])
        return flights[bisect_right(flights, transaction_id) :]

    async def wait_applied(self, transaction_id: int) -> None:
        """Until everything up to `transaction_id` was taken into account."""
        while self.applied < transaction_id:
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)
