"""SqlApplier when the database transaction is not what it was any more: aborted, ended by the database, or
without its mark."""

import asyncio
import contextlib
import threading

import pytest
import sqlalchemy as sa
import sqlalchemy.orm

from client_tests.sql_databases import METADATA, SUMS, Applying, contents, record, transactions
from waltz_client import FeedTransaction
from waltz_client.sql import HighWaterMarkMovedError, SqlApplyError, SqlTables
from waltz_client.testing import InProcessLog

SWALLOWED = r"before transaction 2: UsageError: apply has swallowed an error .*begin_nested\(\)"


@pytest.fixture(autouse=True)
def _application_tables(engine: sa.Engine) -> None:
    METADATA.create_all(engine)
    SqlTables().create(engine)


def _violate(connection: sa.Connection, prefix: str = "") -> None:
    insert = sa.insert(SUMS).values(partition_id=9, total=None)  # violates NOT NULL
    connection.execute(insert.prefix_with(prefix) if prefix else insert)


def _end(connection: sa.Connection) -> None:
    """What MySQL does at a deadlock: the database transaction is gone, and SQLAlchemy has not heard of it."""
    connection.connection.rollback()


@pytest.mark.parametrize("engine", ["postgresql", "asyncpg"], indirect=True)
@pytest.mark.parametrize("batch", [1, 4])
async def test_an_aborted_transaction_is_an_error_of_the_application(
    engine: sa.Engine, applying: Applying, batch: int
) -> None:
    """PostgreSQL answers the commit of an aborted transaction with a rollback, and no driver calls that an
    error."""

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        if transaction.transaction_id == 2:
            with contextlib.suppress(sa.exc.IntegrityError):
                _violate(connection)

    async with applying(apply) as applier, asyncio.timeout(20):
        with pytest.raises(SqlApplyError, match=SWALLOWED):
            for first in range(0, 4, batch):
                await applier.apply(transactions(first, first + batch - 1))
    assert contents(engine) == ({0: [0, 1]}, {0: 1})


@pytest.mark.parametrize("engine", ["postgresql", "asyncpg"], indirect=True)
async def test_an_aborted_transaction_goes_among_the_dead_letters(
    engine: sa.Engine, applying: Applying
) -> None:
    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        if transaction.transaction_id == 2:
            with contextlib.suppress(sa.exc.IntegrityError):
                _violate(connection)

    async with (
        applying(apply, on_application_error="dead-letter") as applier,
        asyncio.timeout(20),
    ):
        assert await applier.apply(transactions(0, 4)) == 4
    assert contents(engine) == ({0: [0, 1, 3, 4]}, {0: 4})


async def test_a_statement_that_may_fail_stands_in_a_savepoint(engine: sa.Engine, applying: Applying) -> None:
    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        with contextlib.suppress(sa.exc.IntegrityError), connection.begin_nested():
            _violate(connection)

    async with applying(apply) as applier:
        assert await applier.apply(transactions(0, 4)) == 4
    assert contents(engine) == ({0: [0, 1, 2, 3, 4]}, {0: 4})


async def test_what_follows_a_transaction_that_the_database_ended_is_not_committed(
    engine: sa.Engine, applying: Applying
) -> None:
    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        if transaction.transaction_id == 2:
            _end(connection)
        record(connection, transaction)

    async with applying(apply) as applier, asyncio.timeout(20):
        with pytest.raises(SqlApplyError, match=SWALLOWED):
            await applier.apply(transactions(0, 4))
    assert contents(engine) == ({0: [0, 1]}, {0: 1})


@pytest.mark.parametrize("engine", ["sqlite", "aiosqlite"], indirect=True)
async def test_sqlite_ends_a_transaction_by_itself(engine: sa.Engine, applying: Applying) -> None:
    """As it does when its disk is full."""

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        if transaction.transaction_id == 2:
            with contextlib.suppress(sa.exc.IntegrityError):
                _violate(connection, "OR ROLLBACK")
        record(connection, transaction)

    async with applying(apply) as applier, asyncio.timeout(20):
        with pytest.raises(SqlApplyError, match=SWALLOWED):
            await applier.apply(transactions(0, 4))
    assert contents(engine) == ({0: [0, 1]}, {0: 1})


async def test_another_applier_comes_in_when_the_database_ended_the_transaction(
    engine: sa.Engine, applying: Applying
) -> None:
    """The mark is where it should be then, but not through this database transaction: nothing may be applied
    twice."""
    met: list[int] = []

    def other() -> None:
        with engine.begin() as connection:
            tables = SqlTables()
            assert tables.advance_mark(connection, 0, 1, 2)
            record(connection, transactions(2, 2)[0])

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        if transaction.transaction_id == 2:
            _end(connection)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            met.append(2)
            connection.execute(sa.text("update sums set total = total + 1000"))
        else:
            record(connection, transaction)

    async with applying(apply) as applier, asyncio.timeout(20):
        assert await applier.apply(transactions(0, 1)) == 1
        with pytest.raises(SqlApplyError, match=SWALLOWED):
            await applier.apply(transactions(2, 2))
        assert met == [2]
        assert await applier.apply(transactions(2, 4)) == 4
    assert contents(engine) == ({0: [0, 1, 2, 3, 4]}, {0: 4})


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
async def test_a_statement_that_commits_by_itself(
    engine: sa.Engine, applying: Applying, on_error: str
) -> None:
    """As CREATE TABLE does on MySQL. The mark is committed then, without what follows: never passed over in
    silence."""

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        if transaction.transaction_id == 2:
            connection.connection.commit()
            connection.execute(sa.text("update sums set total = total + 1000"))

    async with (
        applying(apply, on_application_error=on_error) as applier,
        asyncio.timeout(20),
    ):
        with pytest.raises(SqlApplyError, match=r"UsageError: .* commits on its own"):
            await applier.apply(transactions(0, 2))
        with engine.connect() as connection:
            assert not connection.execute(sa.select(applier.tables.dead_letters)).all()
    assert contents(engine) == ({0: [0, 1, 2]}, {0: 2})


def _mysql(number: int, text: str) -> sa.exc.OperationalError:
    """As MySQL's drivers in Python raise it: a number, no SQLSTATE."""
    return sa.exc.OperationalError("RELEASE SAVEPOINT", {}, Exception(number, text))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (_mysql(1305, "SAVEPOINT waltz_apply does not exist"), False),
        (_mysql(2013, "Lost connection to MySQL server during query"), True),
    ],
)
async def test_what_mysql_says_to_the_release_of_the_savepoint(
    engine: sa.Engine,
    applying: Applying,
    error: sa.exc.OperationalError,
    passes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = [error]
    release = applying.dialect.do_release_savepoint

    def fail_once(connection: sa.Connection, name: str) -> None:
        if errors:
            raise errors.pop()
        release(connection, name)

    monkeypatch.setattr(applying.dialect, "do_release_savepoint", fail_once)
    async with applying(record) as applier:
        with contextlib.nullcontext() if passes else pytest.raises(SqlApplyError, match=SWALLOWED):
            assert await applier.apply(transactions(0, 2)) == 2
    assert contents(engine) == (({0: [0, 1, 2]}, {0: 2}) if passes else ({}, {0: -1}))


async def test_a_session_on_the_connection_need_not_commit(engine: sa.Engine, applying: Applying) -> None:
    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        with sqlalchemy.orm.Session(bind=connection):
            record(connection, transaction)

    async with applying(apply) as applier:
        assert await applier.apply(transactions(0, 1)) == 1
    assert contents(engine) == ({0: [0, 1]}, {0: 1})


async def test_a_mark_that_is_deleted_before_the_first_transaction(
    engine: sa.Engine, applying: Applying
) -> None:
    async with applying(record) as applier, asyncio.timeout(20):
        assert await applier.high_water_mark(0) == -1
        with engine.begin() as connection:
            connection.execute(sa.delete(applier.tables.marks))
        assert (
            await applier.apply(transactions(0, 2)) == 2
        )  # no row is a mark of -1, and the row is made again
    assert contents(engine) == ({0: [0, 1, 2]}, {0: 2})


NEVER_UPDATED = {
    "sqlite": ["create trigger never before update on {marks} begin select raise(ignore); end"],
    "postgresql": [
        "create function never() returns trigger language plpgsql as 'begin return null; end'",
        "create trigger never before update on {marks} for each row execute function never()",
    ],
}


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
async def test_a_mark_that_does_not_move_is_an_error(
    engine: sa.Engine, applying: Applying, on_error: str
) -> None:
    """Not the transaction's fault: it is no dead letter."""
    async with (
        applying(record, on_application_error=on_error) as applier,
        asyncio.timeout(20),
    ):
        assert await applier.high_water_mark(0) == -1
        with engine.begin() as connection:
            for statement in NEVER_UPDATED[engine.dialect.name]:
                connection.execute(sa.text(statement.format(marks=applier.tables.marks.name)))
        with pytest.raises(SqlApplyError, match=r"before transaction 0: .*mark is -1 .* changed no row"):
            await applier.apply(transactions(0, 2))
        with engine.connect() as connection:
            assert not connection.execute(sa.select(applier.tables.dead_letters)).all()
    assert contents(engine) == ({}, {0: -1})


async def test_a_mark_that_keeps_going_back_is_followed_with_pauses(
    engine: sa.Engine, applying: Applying, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = 0

    async def follow(*_: object) -> None:
        nonlocal followed
        followed += 1
        raise HighWaterMarkMovedError(0, 5, 3)

    async with applying(record) as applier:
        monkeypatch.setattr(applier, "_follow", follow)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await applier.run(InProcessLog().client(), 0)
    assert 1 < followed < 20
