"""A state in memory that follows one partition: what a writer decides on, as of the last transaction
applied."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.sim.checkers.history import Violation
from tests.sim.checkers.payload import Payload, decode
from tests.sim.cluster.access import ClusterAccess
from tests.sim.workloads.tracked import TrackedClient, open_client
from waltz_client import FeedTransaction

CATCH_UP_SECONDS = 60.0


class LogView:
    """Follows a partition with one client. `applied`: id of the last transaction the state has taken into
    account."""

    def __init__(
        self, partition: int, header: int, apply: Callable[[int, Payload], None], *, fetch_all: bool = False
    ) -> None:
        """`apply` gets what was written with this header. `fetch_all`: let the feed fetch every payload,
        also of others."""
        self.partition = partition
        self.applied = -1
        self._header = header
        self._apply = apply
        self._fetch_all = fetch_all
        self._waiters: list[tuple[int, asyncio.Event]] = []

    async def run(self, client: TrackedClient) -> None:
        """Follow until cancelled."""

        async def take(transaction: FeedTransaction) -> None:
            if transaction.header == self._header:
                await self._take(client, transaction)
            self.applied = transaction.transaction_id
            due = [event for mark, event in self._waiters if mark <= self.applied]
            self._waiters = [entry for entry in self._waiters if entry[0] > self.applied]
            for event in due:
                event.set()

        await client.follow({self.partition: self.applied}, take, with_data=self._fetch_all)

    async def _take(self, client: TrackedClient, transaction: FeedTransaction) -> None:
        data = transaction.data
        while data is None:
            data = await client.get_data(self.partition, transaction.transaction_id)
        payload = decode(data)
        if payload is None:
            client.history.report(
                Violation(
                    "payload", f"{client.name}: transaction {transaction.transaction_id} holds {data!r}"
                )
            )
        else:
            self._apply(transaction.transaction_id, payload)

    async def wait_for(self, mark: int, timeout_seconds: float) -> bool:
        """Wait until everything up to `mark` is applied; False after the timeout."""
        if self.applied >= mark:
            return True
        event = asyncio.Event()
        self._waiters.append((mark, event))
        try:
            async with asyncio.timeout(timeout_seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True


async def catch_up(client: TrackedClient, view: LogView) -> None:
    """The faults are over: everything committed must reach the view. Violation: `progress`."""
    history, partition = client.history, view.partition
    mark = await client.high_water_mark(partition, CATCH_UP_SECONDS)
    if mark is None:
        history.report(Violation("progress", f"{client.name}: no high-water mark of partition {partition}"))
    else:
        seen = -2
        while seen < view.applied < mark:  # it may read one payload at a time, far from its server
            seen = view.applied
            await view.wait_for(mark, CATCH_UP_SECONDS)
    if mark is not None and view.applied < mark:
        history.report(
            Violation("progress", f"{client.name}: is at {view.applied} of {mark} in partition {partition}")
        )


async def work_on_view(
    access: ClusterAccess,
    process: str,
    view: LogView,
    work: Callable[[TrackedClient], Awaitable[None]],
    *,
    least_version: int = 0,
    **settings: object,
) -> None:
    """Open a client, follow the log with it, do the work, catch up, close."""
    opened = open_client(access, process, None, least_version=least_version, **settings)
    async with opened as client, asyncio.TaskGroup() as group:
        following = group.create_task(view.run(client))
        await work(client)
        await catch_up(client, view)
        following.cancel()
