"""The SQL helper for programs without an event loop.

The helper itself runs on the loop of the blocking client. With an asynchronous engine so do its connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from waltz_client.blocking import BlockingWaltzClient
from waltz_client.client import WaltzClient
from waltz_client.errors import ClientClosedError, StopApplyingError
from waltz_client.sql.applier import SqlApplier
from waltz_client.sql.tables import SqlTables
from waltz_client.transaction import FeedTransaction

T = TypeVar("T")


class BlockingSqlApplier:
    """`with BlockingSqlApplier(client, SqlApplier(engine, apply)) as applier: applier.run()`; the same
    methods as `SqlApplier`, blocking, from any thread.

    For a client with `SqlCallbacks` those are the applier:
    `BlockingSqlApplier(client, callbacks).applied(partition, transaction_id)`. Their tables are made before
    the client is entered: `callbacks.tables.create(engine)`.
    """

    def __init__(self, client: BlockingWaltzClient, applier: SqlApplier) -> None:
        self._client = client
        self._applier = applier
        self._running: set[asyncio.Task[Any]] = set()
        self._closing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def tables(self) -> SqlTables:
        """See `SqlApplier.tables`."""
        return self._applier.tables

    @property
    def stopped(self) -> dict[int, StopApplyingError]:
        """See `SqlApplier.stopped`."""
        return self._applier.stopped

    def wants_data(self, header: int) -> bool:
        """See `SqlApplier.wants_data`."""
        return self._applier.wants_data(header)

    def close(self) -> None:
        """End `run` where it is under way, with ClientClosedError; then as `SqlApplier.close`. A client that
        is closed has ended it all."""
        try:
            self._client._call(self._close())
        except ClientClosedError:
            return

    async def _close(self) -> None:
        self._closing = True
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running))
        await self._applier.close()

    def create_tables(self) -> None:
        """See `SqlApplier.create_tables`."""
        self._client._call(self._applier.create_tables())

    def high_water_mark(self, partition: int) -> int:
        """See `SqlApplier.high_water_mark`."""
        return self._client._call(self._applier.high_water_mark(partition))

    def applied(self, partition: int, transaction_id: int, *, timeout_seconds: float = 30.0) -> None:
        """See `SqlApplier.applied`."""
        self._client._call(self._applier.applied(partition, transaction_id, timeout_seconds=timeout_seconds))

    def lag(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """See `SqlApplier.lag`."""
        return self._client._call(self._applier.lag(self._inner, partitions))

    def apply(self, transactions: Sequence[FeedTransaction]) -> int:
        """See `SqlApplier.apply`."""
        return self._client._call(self._applier.apply(transactions))

    def run(
        self,
        partitions: int | Iterable[int] | None = None,
        *,
        until: int | Mapping[int, int] | None = None,
    ) -> None:
        """See `SqlApplier.run`. Returns at `until`; without one it is for a thread of its own, and ends when
        the applier or the client is closed, with ClientClosedError."""
        self._client._call(self._run(self._applier.run(self._inner, partitions, until=until)))

    async def _run(self, running: Coroutine[Any, Any, None]) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a coroutine outside a task")
        self._running.add(task)
        try:
            await running
        except asyncio.CancelledError:
            if self._closing:
                raise ClientClosedError("the applier is closed") from None
            raise
        finally:
            self._running.discard(task)

    @property
    def _inner(self) -> WaltzClient:
        return self._client._open_client
