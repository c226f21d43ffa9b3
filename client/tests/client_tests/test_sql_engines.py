"""Which engines and functions the SQL helper takes, and what is particular to asynchronous ones."""

import asyncio
import builtins
import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import aiosqlite
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine

import waltz_client.sql
from client_tests.sql_databases import METADATA, contents, record, transactions
from waltz_client import ClientClosedError, FeedTransaction, UsageError
from waltz_client.sql import (
    DatabaseUnavailableError,
    SqlApplier,
    SqlApplyError,
    SqlCallbacks,
)
from waltz_client.testing import InProcessLog
from waltz_protocol.aio.tasks import spawn


@pytest.fixture
def asynchronous_database(tmp_path: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/application.db", poolclass=sa.NullPool)
    METADATA.create_all(engine)
    return engine


@pytest.fixture
async def asynchronous(asynchronous_database: sa.Engine) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(asynchronous_database.url.set(drivername="sqlite+aiosqlite"))
    yield engine
    await engine.dispose()


async def in_loop(connection: AsyncConnection, transaction: FeedTransaction) -> None:
    await connection.run_sync(record, transaction)


def test_an_engine_that_it_cannot_use_is_refused() -> None:
    """At once and in one sentence, not with an AttributeError later."""
    driver = sa.create_engine("postgresql+psycopg_async://user@127.0.0.1:1/database")
    for wrong in (driver, "sqlite://"):
        for kind in (SqlApplier, SqlCallbacks):
            with pytest.raises(UsageError, match=r"SQLAlchemy engine.*create_async_engine") as caught:
                kind(wrong, record)  # type: ignore[arg-type]
            assert "\n" not in str(caught.value)


def test_a_coroutine_function_needs_an_asynchronous_engine() -> None:
    class Applying:
        async def __call__(self, connection: AsyncConnection, transaction: FeedTransaction) -> None:
            raise AssertionError

    for apply in (in_loop, Applying()):
        with pytest.raises(
            UsageError, match=r"coroutine function and the engine is synchronous: use .* engine of"
        ):
            SqlApplier(sa.create_engine("sqlite://"), apply)


async def test_an_awaitable_that_nobody_awaits_is_an_error(
    asynchronous: AsyncEngine, asynchronous_database: sa.Engine
) -> None:
    """Otherwise the mark would move and nothing be applied."""

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> object:
        return in_loop(None, transaction)  # type: ignore[arg-type]

    for engine in (asynchronous, asynchronous_database):
        async with SqlApplier(engine, apply) as applier:
            await applier.create_tables()
            with pytest.raises(
                SqlApplyError, match="apply returned an awaitable: write it as a coroutine function"
            ):
                await applier.apply(transactions(0, 0))
    assert contents(asynchronous_database) == ({}, {0: -1})


async def test_a_plain_function_gets_the_connection_of_run_sync(
    asynchronous: AsyncEngine, asynchronous_database: sa.Engine
) -> None:
    async with SqlApplier(asynchronous, record) as applier:
        await applier.create_tables()
        assert await applier.apply(transactions(0, 3)) == 3
    assert contents(asynchronous_database) == ({0: [0, 1, 2, 3]}, {0: 3})


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_coroutine_cannot_end_the_transaction(
    asynchronous: AsyncEngine, asynchronous_database: sa.Engine, end: str
) -> None:
    async def apply(connection: AsyncConnection, transaction: FeedTransaction) -> None:
        await in_loop(connection, transaction)
        async with connection.begin_nested():
            await connection.execute(sa.text("select 1"))
        await getattr(connection, end)()

    async with SqlApplier(asynchronous, apply) as applier:
        await applier.create_tables()
        with pytest.raises(SqlApplyError, match="must neither commit nor roll back"):
            await applier.apply(transactions(0, 0))
    assert contents(asynchronous_database) == ({}, {0: -1})


async def test_a_session_of_the_object_mapper_uses_the_connection(
    asynchronous: AsyncEngine, asynchronous_database: sa.Engine
) -> None:
    async def apply(connection: AsyncConnection, transaction: FeedTransaction) -> None:
        async with AsyncSession(bind=connection) as session:
            await session.run_sync(lambda synchronous: record(synchronous.connection(), transaction))

    async with SqlApplier(asynchronous, apply) as applier:
        await applier.create_tables()
        assert await applier.apply(transactions(0, 1)) == 1
    assert contents(asynchronous_database) == ({0: [0, 1]}, {0: 1})


async def test_clients_apply_through_an_asynchronous_engine(
    asynchronous: AsyncEngine, asynchronous_database: sa.Engine
) -> None:
    log = InProcessLog(2)
    for number in range(6):
        log.partition(number % 2).commit(b"%d" % number)
    async with SqlCallbacks(asynchronous, in_loop) as callbacks:
        await callbacks.create_tables()
        async with log.client(callbacks) as client:
            await callbacks.applied(0, 2)
            await callbacks.applied(1, 2)
            assert await callbacks.lag(client) == {0: 0, 1: 0}
    log.partition(0).commit(b"more")
    async with SqlApplier(asynchronous, in_loop, threads=2) as applier, log.client() as client:
        await applier.run(client, until={0: 3, 1: 2})
    assert contents(asynchronous_database) == ({0: [0, 1, 2, 3], 1: [0, 1, 2]}, {0: 3, 1: 2})


async def test_a_database_that_is_not_there_is_tried_again() -> None:
    """asyncpg lets out what the socket says."""
    engine = create_async_engine("postgresql+asyncpg://user@127.0.0.1:1/database")
    async with SqlApplier(engine, in_loop, retry_seconds=0.05) as applier:
        with pytest.raises(DatabaseUnavailableError, match="partition 0 stops: the database has failed"):
            await applier.high_water_mark(0)
    await engine.dispose()


async def test_an_operating_system_error_of_the_application_is_not_repeated(
    asynchronous: AsyncEngine, asynchronous_database: sa.Engine
) -> None:
    async def apply(connection: AsyncConnection, transaction: FeedTransaction) -> None:
        raise FileNotFoundError("no such file")

    async with SqlApplier(asynchronous, apply, retry_seconds=None) as applier, asyncio.timeout(20):
        await applier.create_tables()
        with pytest.raises(SqlApplyError, match="FileNotFoundError: no such file"):
            await applier.apply(transactions(0, 0))


async def _cancelled_inside(connection: AsyncConnection, transaction: FeedTransaction) -> None:
    other = spawn(asyncio.sleep(60), "of the application")
    other.cancel()
    await other


async def test_a_cancellation_of_its_own_is_an_error_of_the_application(asynchronous: AsyncEngine) -> None:
    """Not the end of the partition's task, which nobody would notice."""
    log = InProcessLog(1)
    log.partition(0).commit(b"x")
    async with SqlApplier(asynchronous, _cancelled_inside) as applier:
        await applier.create_tables()
        with pytest.raises(SqlApplyError):
            await applier.apply(transactions(0, 0))
        async with log.client() as client:
            with pytest.raises(SqlApplyError):
                await applier.run(client, 0, until=0)
        assert 0 in applier.stopped


async def test_a_timeout_of_the_driver_is_tried_again(
    asynchronous: AsyncEngine, asynchronous_database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncpg's command_timeout raises a bare TimeoutError, which SQLAlchemy lets out: no reason to skip the
    transaction."""
    real, late = aiosqlite.Connection.commit, [False]

    async def commit(self: aiosqlite.Connection) -> None:
        if late[0]:
            late[0] = False
            raise TimeoutError
        await real(self)

    monkeypatch.setattr(aiosqlite.Connection, "commit", commit)
    async with SqlApplier(asynchronous, record, on_application_error="dead-letter") as applier:
        await applier.create_tables()
        await applier.high_water_mark(0)
        late[0] = True
        await applier.apply(transactions(0, 0))
    assert contents(asynchronous_database) == ({0: [0]}, {0: 0})


async def test_an_error_of_the_driver_on_connecting_is_tried_again(asynchronous_database: sa.Engine) -> None:
    """SQLAlchemy 2.0 lets asyncpg's own out, such as 57P03, the database is starting up."""

    class StartingUp(Exception):
        sqlstate = "57P03"

    refuse = [False]

    async def creator(*_: object, **__: object) -> aiosqlite.Connection:
        if refuse[0]:
            refuse[0] = False
            raise StartingUp
        return await aiosqlite.connect(str(asynchronous_database.url.database))

    engine = create_async_engine("sqlite+aiosqlite://", async_creator=creator, poolclass=sa.NullPool)
    async with SqlApplier(engine, record, on_application_error="dead-letter") as applier:
        await applier.create_tables()
        await applier.high_water_mark(0)
        refuse[0] = True
        await applier.apply(transactions(0, 0))
    assert contents(asynchronous_database) == ({0: [0]}, {0: 0})
    await engine.dispose()


async def test_a_closed_applier_begins_nothing(asynchronous: AsyncEngine) -> None:
    """Nor does what was waiting for one under way."""
    inside, go = asyncio.Event(), asyncio.Event()

    async def apply(connection: AsyncConnection, transaction: FeedTransaction) -> None:
        inside.set()
        await go.wait()

    applier = SqlApplier(asynchronous, apply)
    await applier.create_tables()
    assert await applier.high_water_mark(1) == -1  # its row is there, so one job would do
    async with asyncio.TaskGroup() as group:
        first = group.create_task(applier.apply(transactions(0, 0)))
        await inside.wait()
        waiting = group.create_task(_refused(applier))
        closing = group.create_task(applier.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        go.set()
    assert first.result() == 0
    assert waiting.result()
    assert await _refused(applier)


async def _refused(applier: SqlApplier) -> bool:
    with pytest.raises(ClientClosedError):
        await applier.apply(transactions(0, 0, 1))
    return True


def test_without_sqlalchemy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> ModuleType:
        if name.partition(".")[0] == "sqlalchemy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    kept = {name: module for name, module in sys.modules.items() if name.startswith("waltz_client.sql")}
    monkeypatch.setattr(builtins, "__import__", without)
    try:
        with pytest.raises(ImportError, match="install waltz-client with its extra sql"):
            importlib.reload(waltz_client.sql)
    finally:
        monkeypatch.undo()
        sys.modules.update(kept)
