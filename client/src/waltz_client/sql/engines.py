"""Where the database's jobs run: with a synchronous engine in threads, with an asynchronous one on the
client's loop.

The jobs are the same (`database`), written once as synchronous code. SQLAlchemy's asynchronous engines run
such code in a greenlet that gives the loop back at every wait for the database, which is what its `run_sync`
does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import sqlalchemy as sa

from waltz_client._internal.raised import reportable
from waltz_client.errors import ClientClosedError, UsageError
from waltz_client.sql.threads import DatabaseThreads
from waltz_client.transaction import DataTransaction
from waltz_protocol.aio.tasks import spawn

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")

ApplyFunction = Callable[[sa.Connection, DataTransaction], object]
"""The application's part: statements on the connection it is given. It must not commit or roll back, and lets
the database's errors out; a statement that may fail goes into a savepoint (`with
connection.begin_nested()`). With `with_data=False` its parameter is a `FeedTransaction`."""

AsyncApplyFunction = Callable[["AsyncConnection", DataTransaction], Awaitable[object]]
"""The same as a coroutine function, for an asynchronous engine (`async with connection.begin_nested()`)."""


class DatabaseJobs(Protocol):
    """Runs jobs, a bounded number at a time. Invariant: after `close` no job runs and nothing is left of
    them."""

    async def run(self, job: Callable[[], T]) -> T:
        """The result of a job. Cancelling the caller does not stop a job under way: it ends, or fails, by
        itself."""
        ...

    async def close(self) -> None:
        """Start nothing more, wait for the jobs under way. Idempotent."""
        ...


class DatabaseGreenlets:
    """Runs jobs of an asynchronous engine on the loop, up to `count` at a time. Owner: the applier."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._jobs: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, job: Callable[[], T]) -> T:
        """See `DatabaseJobs`."""
        if self._closed:
            raise ClientClosedError("the applier is closed")
        task = spawn(self._outcome(job), "waltz-sql")
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        outcome = await asyncio.shield(task)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome[0]

    async def _outcome(self, job: Callable[[], T]) -> tuple[T] | Exception:
        """The result of a job, or its error: as a value, because nobody may wait for it any longer."""
        try:
            async with self._free:
                if self._closed:
                    raise ClientClosedError("the applier is closed")
                return (await sa.util.greenlet_spawn(job),)
        except Exception as error:
            return error

    async def close(self) -> None:
        """See `DatabaseJobs`."""
        self._closed = True
        if self._jobs:
            await asyncio.wait(set(self._jobs))


def use_engine(
    engine: sa.Engine | AsyncEngine, apply: ApplyFunction | AsyncApplyFunction, count: int
) -> tuple[sa.Engine, ApplyFunction, DatabaseJobs]:
    """The engine and the function as jobs use them, and what runs `count` of these jobs at a time. UsageError
    when engine and function do not fit together."""
    if isinstance(engine, sa.Engine):
        if engine.dialect.is_async:
            raise UsageError(
                f"the driver {engine.dialect.driver} is asynchronous: make its SQLAlchemy engine with "
                "sqlalchemy.ext.asyncio.create_async_engine, not with create_engine"
            )
        if _is_coroutine_function(apply):
            raise UsageError(
                "apply is a coroutine function and the engine is synchronous: use a plain function, or an engine of "
                "sqlalchemy.ext.asyncio.create_async_engine"
            )
        return engine, cast(ApplyFunction, apply), DatabaseThreads(count)
    synchronous: object = getattr(engine, "sync_engine", None)
    if not isinstance(synchronous, sa.Engine):
        raise UsageError(
            f"the SQL helper takes a SQLAlchemy engine, not {type(engine).__name__}: make one with "
            "sqlalchemy.create_engine or sqlalchemy.ext.asyncio.create_async_engine"
        )
    if _is_coroutine_function(apply):
        apply = _in_greenlet(engine, cast(AsyncApplyFunction, apply))
    return synchronous, cast(ApplyFunction, apply), DatabaseGreenlets(count)


def _is_coroutine_function(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 -- an object with an asynchronous __call__
    )


def _in_greenlet(engine: AsyncEngine, apply: AsyncApplyFunction) -> ApplyFunction:
    """A coroutine function as a plain one, for the greenlet of a job."""
    from sqlalchemy.ext.asyncio import AsyncConnection

    async def applied(connection: AsyncConnection, transaction: DataTransaction) -> None:
        try:
            await apply(connection, transaction)
        except asyncio.CancelledError as error:  # of something of its own that it has awaited
            raise reportable(error) from error

    def wait_for(connection: sa.Connection, transaction: DataTransaction) -> None:
        driver: Any = connection.connection.dbapi_connection  # sa.AdaptedConnection, as of every such engine
        driver.run_async(lambda _: applied(AsyncConnection(engine, connection), transaction))

    return wait_for
