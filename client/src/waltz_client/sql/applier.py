"""SqlApplier: committed transactions into a database, exactly once.

Owner of the jobs (`engines`). It decides by no mark of its own: the one in the database is the truth, and
each database transaction compares with it. Any number of appliers, in any number of processes, may work on
the same tables: each transaction is applied by one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import sqlalchemy as sa

from waltz_client._internal.arguments import for_partition, partition_numbers
from waltz_client.client import WaltzClient
from waltz_client.errors import RequestDeadlineError, StopApplyingError, UsageError
from waltz_client.feed import HeaderTest
from waltz_client.sql.database import ApplyFailed, Database
from waltz_client.sql.engines import ApplyFunction, AsyncApplyFunction, use_engine
from waltz_client.sql.errors import DatabaseUnavailableError, HighWaterMarkMovedError, SqlApplyError
from waltz_client.sql.tables import SqlTables
from waltz_client.sql.transient import is_transient
from waltz_client.transaction import FeedTransaction
from waltz_protocol.backoff import Backoff

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_INITIAL_SECONDS = 0.01
RETRY_MAX_SECONDS = 10.0

OnApplicationError = Literal["stop", "dead-letter"]
MARK_POLL_SECONDS = 0.2
"""How often `applied` reads a mark that another process may be moving."""


class SqlApplier:
    """`async with SqlApplier(engine, apply) as applier: await applier.run(client, partitions)`.

    `apply(connection, transaction)` is a plain function, called in a thread, or with an asynchronous engine a
    coroutine function on the client's loop; see `ApplyFunction`.
    """

    def __init__(
        self,
        engine: sa.Engine | AsyncEngine,
        apply: ApplyFunction | AsyncApplyFunction,
        *,
        tables: SqlTables | None = None,
        on_application_error: OnApplicationError = "stop",
        on_stopped: Callable[[StopApplyingError], object] | None = None,
        with_data: bool = True,
        where: HeaderTest | None = None,
        batch_transactions: int = 64,
        retry_seconds: float | None = 300.0,
        isolation_level: str | None = "SERIALIZABLE",
        threads: int = 1,
    ) -> None:
        """`engine`: of `create_engine`, or of `create_async_engine` (asyncpg, aiosqlite); with the latter a
        plain `apply` gets a connection as in `AsyncConnection.run_sync`.

        `on_application_error`: an error of `apply` that is not the database's stops its partition, or
        the transaction is put into the table of dead letters and skipped. `on_stopped` is called once about
        each partition that stops.

        `where(header)` says whose transactions are given to `apply` (default: everybody's); the mark moves
        past the others, and their payload is not read: `where=HeaderNamespace("ledger").owns`.
        `with_data=False` leaves payloads out. `batch_transactions`: how many `run` applies in one
        database transaction at most. `retry_seconds`: how long errors of the database are tried again, None
        = forever. `isolation_level` of the database transactions, None = the engine's; a connection in
        autocommit is refused, as the mark would be committed before the effects. `threads`: how
        many partitions may use the database at the same time (an asynchronous engine needs no threads for
        it); the engine's pool should have as many connections.
        """
        if batch_transactions < 1 or threads < 1:
            raise UsageError("batch_transactions and threads are at least 1")
        if isolation_level is not None and isolation_level.strip().upper() == "AUTOCOMMIT":
            raise UsageError(
                "isolation_level is AUTOCOMMIT, but the mark and the effects are committed together"
            )
        if on_application_error not in ("stop", "dead-letter"):
            raise UsageError(f"on_application_error is 'stop' or 'dead-letter', not {on_application_error!r}")
        self.tables = SqlTables() if tables is None else tables
        self.stopped: dict[int, StopApplyingError] = {}
        """Partitions that have stopped, and why."""
        self._with_data = with_data
        self._where = where
        used, plain, self._jobs = use_engine(engine, apply, threads)
        self._database = Database(used, self.tables, plain, where, isolation_level)
        self._on_application_error = on_application_error
        self._on_stopped = on_stopped
        self._batch_transactions = batch_transactions
        self._retry_seconds = retry_seconds
        self._locks: dict[int, asyncio.Lock] = {}
        self._random = Random()
        self._marks: dict[int, int] = {}
        """After the last transactions applied here: when `applied` reads again."""
        self._moved = asyncio.Event()  # set, and replaced, when one of them has moved

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for the database transactions under way, end the threads. Idempotent. What has not
        begun, `run` included, ends with ClientClosedError. The engine stays its owner's."""
        await self._jobs.close()

    def wants_data(self, header: int) -> bool:
        """Whether the payload of a transaction with this header is read."""
        return self._with_data and (self._where is None or self._where(header))

    async def create_tables(self) -> None:
        """Create the tables that are missing. Raises what the database says, at once."""
        await self._jobs.run(self._database.create_tables)

    async def high_water_mark(self, partition: int) -> int:
        """The id of the last transaction applied, as the database says, -1 for none.

        SqlTableMissingError, DatabaseUnavailableError, SqlApplyError (the database refuses).
        """
        return await self._retrying(partition, None, lambda: self._database.read_mark(partition))

    async def applied(self, partition: int, transaction_id: int, *, timeout_seconds: float = 30.0) -> None:
        """Wait until the transaction is in the database, by whichever process: what a writer waits for that
        wants to read its own write there.

        RequestDeadlineError when it was not within `timeout_seconds`; the error that has stopped the
        partition here; errors as `high_water_mark`.
        """
        mark = -1
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    self._marks.pop(partition, None)  # what is older than the answer says nothing
                    mark = await self.high_water_mark(partition)
                    if mark >= transaction_id:
                        return
                    if partition in self.stopped:
                        raise self.stopped[partition]
                    await self._wait_moved(partition, transaction_id)
        except TimeoutError:
            raise RequestDeadlineError(
                f"partition {partition}: transaction {transaction_id} was not applied within "
                f"{timeout_seconds:g} s, the database has applied up to {mark}"
            ) from None

    async def _wait_moved(self, partition: int, transaction_id: int) -> None:
        """Until the transaction was applied here, or it is time to read the mark again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MARK_POLL_SECONDS):
                while self._marks.get(partition, -1) < transaction_id:
                    await self._moved.wait()

    async def lag(self, client: WaltzClient, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """How many committed transactions the database has not applied yet, per partition (default: all).
        RequestDeadlineError when a server does not answer; errors as `high_water_mark`."""
        lags = {}
        for partition in range(client.num_partitions) if partitions is None else partitions:
            applied = await self.high_water_mark(partition)
            lags[partition] = max(0, await client.high_water_mark(partition) - applied)
        return lags

    # -- applying --------------------------------------------------------------------------------------------

    async def apply(self, transactions: Sequence[FeedTransaction]) -> int:
        """Apply consecutive transactions of one partition, once; the partition's mark afterwards.

        What the database has already is skipped. Safe to repeat after any error and any crash. Raises
        SqlApplyError, DatabaseUnavailableError, HighWaterMarkMovedError: nothing of the transaction named and
        of later ones was applied. Cancelling it leaves the database transaction under way to end on its own;
        the mark says whether it did.
        """
        if not transactions:
            raise UsageError("apply needs at least one transaction")
        first, last = transactions[0], transactions[-1]
        partition_id = first.partition_id
        if (
            last.partition_id != partition_id
            or last.transaction_id - first.transaction_id != len(transactions) - 1
        ):
            raise UsageError("apply needs consecutive transactions of one partition")
        async with self._locks.setdefault(partition_id, asyncio.Lock()):
            mark = self._marks[partition_id] = await self._apply(partition_id, transactions)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        return mark

    async def _apply(self, partition_id: int, transactions: Sequence[FeedTransaction]) -> int:
        mark = transactions[0].transaction_id - 1  # as it has to be; the database says when it is not
        width = len(transactions)
        while True:
            todo = [one for one in transactions if one.transaction_id > mark]
            if not todo:
                return mark
            if todo[0].transaction_id != mark + 1:
                raise HighWaterMarkMovedError(partition_id, todo[0].transaction_id, mark)
            try:
                mark = await self._once(todo[:width])
            except ApplyFailed as failure:
                if width == 1 or len(todo) == 1:
                    mark = await self._failed(failure)
                width = 1  # together with others: again one by one, up to the one that fails

    async def _once(self, transactions: Sequence[FeedTransaction]) -> int:
        first = transactions[0]
        return await self._retrying(
            first.partition_id, first.transaction_id, lambda: self._database.apply(transactions)
        )

    async def _failed(self, failure: ApplyFailed) -> int:
        """An error of the application, at a transaction that was tried alone."""
        transaction = failure.transaction
        cause = failure.__cause__ or failure
        partition_id, transaction_id = transaction.partition_id, transaction.transaction_id
        if self._on_application_error == "stop":
            raise SqlApplyError(partition_id, transaction_id, cause) from cause
        mark = await self._retrying(
            partition_id, transaction_id, lambda: self._database.skip(transaction, cause)
        )
        log.error(
            "partition %d: transaction %d was put among the dead letters: %r",
            partition_id,
            transaction_id,
            cause,
            extra={"partition": partition_id, "transaction": transaction_id},
        )
        return mark

    async def _retrying(self, partition_id: int, transaction_id: int | None, job: Callable[[], T]) -> T:
        """The job's result; again after errors of the database that may pass, with growing delays, for
        `retry_seconds`."""
        backoff = Backoff(RETRY_INITIAL_SECONDS, RETRY_MAX_SECONDS, self._random)
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            try:
                return await self._jobs.run(job)
            except Exception as error:
                if not is_transient(error):
                    if isinstance(error, sa.exc.SQLAlchemyError):
                        raise SqlApplyError(partition_id, transaction_id, error) from error
                    raise
                cause = error.__cause__ if isinstance(error, ApplyFailed) and error.__cause__ else error
                spent = loop.time() - started
                if self._retry_seconds is not None and spent >= self._retry_seconds:
                    raise DatabaseUnavailableError(partition_id, transaction_id, spent, cause) from cause
                if backoff.attempts % 10 == 0:
                    log.warning(
                        "partition %d: the database failed, trying again: %s",
                        partition_id,
                        cause,
                        extra={"partition": partition_id, "transaction": transaction_id},
                    )
            await asyncio.sleep(backoff.next_seconds())

    def _stopped(self, partition_id: int, error: StopApplyingError) -> None:
        log.error("%s", error, exc_info=error.__cause__, extra={"partition": partition_id})
        self._report_stop(partition_id, error)

    def _report_stop(self, partition_id: int, error: StopApplyingError) -> None:
        self.stopped[partition_id] = error
        if self._on_stopped is not None:
            try:
                self._on_stopped(error)
            except Exception:
                log.exception("the on_stopped function raised", extra={"partition": partition_id})

    # -- feeds -----------------------------------------------------------------------------------------------

    async def run(
        self,
        client: WaltzClient,
        partitions: int | Iterable[int] | None = None,
        *,
        until: int | Mapping[int, int] | None = None,
    ) -> None:
        """Apply these partitions (default: all) from their marks on, forever or up to `until` (an id, or
        one per partition).

        A partition that stops does not hold up the others; when none is left and one had stopped, its error
        is raised. A mark that went back (a restored database) is followed: transactions from there on are
        read and applied again. Other errors end everything: ClientAheadError (the database is ahead of the
        log), ClientClosedError.
        """
        if partitions is None:
            partitions = range(client.num_partitions)
        ids = partition_numbers(partitions)
        ends = {p: for_partition("until", until, p) for p in ids}
        for partition_id in ids:
            self.stopped.pop(partition_id, None)
        try:
            async with asyncio.TaskGroup() as group:
                for partition_id in ids:
                    group.create_task(self._run_partition(client, partition_id, ends[partition_id]))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        for partition_id in ids:
            if partition_id in self.stopped:
                raise self.stopped[partition_id]

    async def _run_partition(self, client: WaltzClient, partition_id: int, until: int | None) -> None:
        backoff = Backoff(RETRY_INITIAL_SECONDS, RETRY_MAX_SECONDS, self._random)
        while True:
            try:
                await self._follow(client, partition_id, until)
                return
            except HighWaterMarkMovedError as moved:
                log.warning("%s; reading again from there", moved, extra={"partition": partition_id})
                await asyncio.sleep(backoff.next_seconds())  # somebody may keep setting it back
            except StopApplyingError as error:
                self._stopped(partition_id, error)
                return

    async def _follow(self, client: WaltzClient, partition_id: int, until: int | None) -> None:
        mark = await self.high_water_mark(partition_id)
        step = self._batch_transactions
        whose = self._where if self._with_data and self._where is not None else self._with_data
        async with client.feed(partition_id, after=mark, with_data=whose, until=until) as feed:
            async for batch in feed.batches():
                for start in range(0, len(batch), step):
                    await self.apply(batch[start : start + step])
