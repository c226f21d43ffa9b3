"""SqlApplier: the mark and the effects are one, errors of the database pass, errors of the application are
told once."""

import asyncio
import sqlite3
import threading
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.util.concurrency import in_greenlet

from client_tests.helpers import until
from client_tests.sql_databases import (
    ENTRIES,
    METADATA,
    SUMS,
    Applying,
    Failing,
    contents,
    record,
    transactions,
    wait_in_apply,
)
from waltz_client import ClientClosedError, FeedTransaction, StopApplyingError, UsageError
from waltz_client.sql import (
    DatabaseUnavailableError,
    HighWaterMarkMovedError,
    SqlApplier,
    SqlApplyError,
    SqlTableMissingError,
    SqlTables,
)
from waltz_client.sql.transient import is_transient


@pytest.fixture(autouse=True)
def _application_tables(engine: sa.Engine) -> None:
    METADATA.create_all(engine)
    SqlTables().create(engine)


async def test_transactions_and_the_mark_are_applied_together(engine: sa.Engine, applying: Applying) -> None:
    async with applying(record) as applier:
        assert await applier.high_water_mark(0) == -1
        assert await applier.apply(transactions(0, 9)) == 9
        assert await applier.apply(transactions(10, 10)) == 10
        assert contents(engine) == ({0: list(range(11))}, {0: 10})
        # Delivered again, in any cut: nothing happens twice.
        assert await applier.apply(transactions(0, 10)) == 10
        assert await applier.apply(transactions(8, 12)) == 12
    assert contents(engine) == ({0: list(range(13))}, {0: 12})


async def test_client_server_13_36_applying_before_the_mark_was_read(
    engine: sa.Engine, applying: Applying
) -> None:
    """Nobody has asked for the mark, there is not even a row: apply finds it out on its own."""
    async with applying(record) as applier:
        assert await applier.apply(transactions(0, 0)) == 0
    async with applying(record) as applier:  # as after a restart, delivered from the beginning
        assert await applier.apply(transactions(0, 3)) == 3
    assert contents(engine) == ({0: [0, 1, 2, 3]}, {0: 3})


@pytest.mark.parametrize(
    "error", [ValueError("no such account"), sa.exc.InvalidRequestError("bad statement")]
)
async def test_client_server_13_36_an_application_error_is_told_once(
    engine: sa.Engine, applying: Applying, error: Exception
) -> None:
    apply = Failing()
    apply.plan[3] = (error, 1_000)
    async with applying(apply) as applier:
        with pytest.raises(SqlApplyError, match=r"partition 0 stops before transaction 3") as caught:
            await applier.apply(transactions(0, 5))
        assert caught.value.__cause__ is error
        assert (caught.value.partition_id, caught.value.transaction_id) == (0, 3)
        assert isinstance(caught.value, StopApplyingError)
    # Once in the batch, once alone; what comes before it stays, nothing of it and after it does.
    assert apply.calls.count(3) == 2
    assert contents(engine) == ({0: [0, 1, 2]}, {0: 2})


async def test_client_server_13_36_an_sql_error_of_the_application_is_not_repeated(
    engine: sa.Engine, applying: Applying
) -> None:
    calls = 0

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        nonlocal calls
        calls += 1
        connection.execute(sa.insert(SUMS).values(partition_id=1, total=None))  # violates NOT NULL

    async with applying(apply, retry_seconds=None) as applier:
        with pytest.raises(SqlApplyError, match="IntegrityError"):
            await applier.apply(transactions(0, 0))
    assert calls == 1


async def test_what_only_the_commit_refuses_is_an_error_of_the_application(
    engine: sa.Engine, applying: Applying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deferred constraint, say. It belongs to the transaction that was applied, and the ones before it
    stay."""
    deferred: list[int] = []

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        deferred.append(transaction.transaction_id)

    commit = applying.dialect.do_commit

    def refuse(connection: object) -> None:
        applied, deferred[:] = deferred[:], []
        if 2 in applied:
            raise sa.exc.IntegrityError("COMMIT", {}, ValueError("deferred constraint"))
        commit(connection)  # type: ignore[arg-type]

    async with applying(apply) as applier:
        await applier.high_water_mark(0)
        monkeypatch.setattr(applying.dialect, "do_commit", refuse)
        with pytest.raises(SqlApplyError, match="before transaction 2: IntegrityError"):
            await applier.apply(transactions(0, 4))
        monkeypatch.undo()
    assert contents(engine) == ({0: [0, 1]}, {0: 1})


async def test_dead_letters_keep_what_was_skipped(engine: sa.Engine, applying: Applying) -> None:
    apply = Failing()
    apply.plan = {1: (ValueError("poison"), 99), 3: (KeyError("x"), 99)}
    async with applying(apply, on_application_error="dead-letter") as applier:
        assert await applier.apply(transactions(0, 4)) == 4
        letters = applier.tables.dead_letters
    assert contents(engine) == ({0: [0, 2, 4]}, {0: 4})
    with engine.connect() as connection:
        rows = connection.execute(sa.select(letters).order_by(letters.c.transaction_id)).all()
    assert [(row.transaction_id, row.data, row.error, row.req_id) for row in rows] == [
        (1, b"1", "ValueError: poison", "7:1:0:2"),
        (3, b"3", "KeyError: 'x'", "7:1:0:4"),
    ]


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_the_application_cannot_end_the_transaction(
    engine: sa.Engine, applying: Applying, end: str
) -> None:
    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        with connection.begin_nested():
            connection.execute(sa.select(SUMS))
        getattr(connection, end)()

    async with applying(apply) as applier:
        with pytest.raises(SqlApplyError, match="must neither commit nor roll back"):
            await applier.apply(transactions(0, 0))
        assert contents(engine) == ({}, {0: -1})
    async with applying(record) as applier:
        assert await applier.apply(transactions(0, 0)) == 0


async def test_a_stale_applier_changes_nothing(engine: sa.Engine, applying: Applying) -> None:
    """Two on the same tables: the mark in the database is the fence, whatever either of them remembers."""
    async with applying(record) as first, applying(record) as second:
        await first.apply(transactions(0, 4))
        await second.apply(transactions(5, 9))
        # The first one still remembers 4. What it does now from 5 on must have no effect, and it moves on.
        assert await first.apply(transactions(5, 7)) == 9
        assert await first.apply(transactions(8, 11)) == 11
        assert await second.apply(transactions(10, 12)) == 12
    assert contents(engine) == ({0: list(range(13))}, {0: 12})


async def test_the_commit_of_a_stale_applier_fails_when_the_other_commits_meanwhile(
    engine: sa.Engine,
    applying: Applying,
) -> None:
    """The slow one is inside its database transaction when the fast one comes: one of them applies, the other
    finds it done."""
    inside, go = threading.Event(), threading.Event()

    def slow(connection: sa.Connection, transaction: FeedTransaction) -> None:
        inside.set()
        wait_in_apply(lambda: go.wait(10))
        record(connection, transaction)

    async with applying(slow) as first, applying(record) as second:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(first.apply(transactions(0, 0)))
            await until(inside.is_set)
            two = group.create_task(second.apply(transactions(0, 2)))
            await asyncio.sleep(0.2)
            assert not two.done()  # it waits for the row
            go.set()
        assert (one.result(), two.result()) == (0, 2)
    assert contents(engine) == ({0: [0, 1, 2]}, {0: 2})


async def test_many_appliers_apply_each_transaction_once(engine: sa.Engine, applying: Applying) -> None:
    async def run(applier: SqlApplier) -> None:
        for start in range(0, 60, 3):
            await applier.apply(transactions(start, start + 5))

    appliers = [applying(record) for _ in range(4)]
    async with asyncio.TaskGroup() as group:
        for applier in appliers:
            group.create_task(run(applier))
    for applier in appliers:
        await applier.close()
    assert contents(engine) == ({0: list(range(63))}, {0: 62})


async def test_a_mark_that_went_back_is_an_error_not_a_gap(engine: sa.Engine, applying: Applying) -> None:
    async with applying(record) as applier:
        await applier.apply(transactions(0, 9))
        with engine.begin() as connection:
            connection.execute(sa.update(applier.tables.marks).values(high_water_mark=4))
        with pytest.raises(HighWaterMarkMovedError, match="went back to 4") as caught:
            await applier.apply(transactions(10, 11))
        assert caught.value.high_water_mark == 4
        with pytest.raises(HighWaterMarkMovedError):
            await applier.apply(transactions(10, 11))


class _SlowReading(SqlTables):
    """Tables whose next look at a mark, when `hold` is set, comes back only after `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = False
        self.has_read, self.go = threading.Event(), threading.Event()

    def read_mark(self, connection: sa.Connection, partition_id: int) -> int | None:
        mark = super().read_mark(connection, partition_id)
        if self.hold:
            self.hold = False
            self.has_read.set()
            wait_in_apply(lambda: self.go.wait(30))
        return mark


async def test_a_mark_read_while_an_apply_runs_does_not_stop_the_partition(
    engine: sa.Engine,
    applying: Applying,
) -> None:
    """The answer of a slow reader is older than what was applied meanwhile. It is the reader's alone."""
    tables = _SlowReading()
    async with applying(record, tables=tables, threads=2) as applier, asyncio.TaskGroup() as group:
        await applier.apply(transactions(0, 4))
        tables.hold = True
        reader = group.create_task(applier.high_water_mark(0))
        await until(tables.has_read.is_set)
        assert await applier.apply(transactions(5, 9)) == 9
        tables.go.set()
        assert await reader == 4
        assert await applier.apply(transactions(10, 12)) == 12
    assert contents(engine) == ({0: list(range(13))}, {0: 12})


async def test_a_mark_that_went_back_is_followed_although_nobody_read_it(
    engine: sa.Engine, applying: Applying
) -> None:
    """An older copy was restored and the feed begins below what this applier has applied: what is delivered
    is applied again, not taken for done because the applier remembers it."""
    async with applying(record) as applier:
        await applier.apply(transactions(0, 9))
        with engine.begin() as connection:
            connection.execute(sa.delete(ENTRIES).where(ENTRIES.c.transaction_id > 4))
            connection.execute(sa.update(SUMS).values(total=15))
            connection.execute(sa.update(applier.tables.marks).values(high_water_mark=4))
        assert await applier.apply(transactions(5, 7)) == 7
    assert contents(engine) == ({0: list(range(8))}, {0: 7})


async def test_the_row_of_a_mark_that_was_deleted_is_an_error_not_a_gap(
    engine: sa.Engine, applying: Applying
) -> None:
    async with applying(record) as applier:
        await applier.apply(transactions(0, 9))
        with engine.begin() as connection:
            connection.execute(sa.delete(applier.tables.marks))
        with pytest.raises(HighWaterMarkMovedError, match="went back to -1"):
            await applier.apply(transactions(10, 11))


async def test_applying_without_the_tables_says_so(engine: sa.Engine, applying: Applying) -> None:
    async with applying(record, tables=SqlTables(marks="elsewhere")) as applier:
        with pytest.raises(SqlTableMissingError, match="no table elsewhere: call create_tables"):
            await applier.apply(transactions(0, 0))


def _transient(dialect: Any) -> Exception:
    original: Exception
    if dialect.name == "sqlite":
        original = sqlite3.OperationalError("database is locked")
        original.sqlite_errorname = "SQLITE_BUSY"
    elif dialect.driver == "asyncpg":
        cause = asyncpg.exceptions.SerializationError("could not serialize access")
        original = dialect.loaded_dbapi.Error(str(cause), cause)
        original.sqlstate = cause.sqlstate  # type: ignore[attr-defined]  # before SQLAlchemy 2.1 set after it is made
    else:
        original = psycopg.errors.SerializationFailure("could not serialize access")
    return sa.exc.OperationalError("UPDATE", {}, original)


async def test_errors_of_the_database_that_pass_are_tried_again(
    engine: sa.Engine, applying: Applying
) -> None:
    apply = Failing()
    apply.plan[1] = (_transient(applying.dialect), 3)
    async with applying(apply) as applier:
        assert await applier.apply(transactions(0, 2)) == 2
    assert apply.calls.count(1) == 4
    assert contents(engine) == ({0: [0, 1, 2]}, {0: 2})


async def test_errors_of_the_database_that_do_not_pass_end(engine: sa.Engine, applying: Applying) -> None:
    """Tried again while there is time, and not once more after that."""
    apply = Failing()
    apply.plan[1] = (_transient(applying.dialect), 10**9)

    def until_the_time_is_over(connection: sa.Connection, transaction: FeedTransaction) -> None:
        if apply.calls.count(1) == 4:
            applier._retry_seconds = 0.0
        apply(connection, transaction)

    async with applying(until_the_time_is_over, retry_seconds=3600) as applier:
        with pytest.raises(DatabaseUnavailableError, match="before transaction 0"):
            await applier.apply(transactions(0, 2))
    assert apply.calls.count(1) == 5
    assert contents(engine) == ({}, {0: -1})


async def test_an_error_raised_from_a_passing_one_passes_too(applying: Applying) -> None:
    cause = _transient(applying.dialect)
    wrapped = RuntimeError("the repository failed")
    wrapped.__cause__ = cause
    assert is_transient(wrapped)
    assert not is_transient(RuntimeError("no cause"))
    assert not is_transient(None)


@pytest.mark.parametrize("engine", ["postgresql", "asyncpg"], indirect=True)
async def test_a_lost_connection_is_replaced(engine: sa.Engine, applying: Applying) -> None:
    """The database ends the connection in the middle; the next attempt has another one."""
    cut = 0

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        nonlocal cut
        record(connection, transaction)
        if transaction.transaction_id == 1 and not cut:
            cut = connection.scalar(sa.text("select pg_backend_pid()")) or 0
            with engine.connect() as other:
                other.execute(sa.text("select pg_terminate_backend(:pid)"), {"pid": cut})
            connection.execute(sa.select(SUMS))

    async with applying(apply) as applier:
        assert await applier.apply(transactions(0, 2)) == 2
    assert cut
    assert contents(engine) == ({0: [0, 1, 2]}, {0: 2})


async def test_a_commit_whose_answer_was_lost_is_not_repeated(
    engine: sa.Engine, applying: Applying, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with applying(record) as applier:
        await applier.high_water_mark(0)
        commit = applying.dialect.do_commit
        lost = 0

        def lose(connection: object) -> None:
            nonlocal lost
            commit(connection)  # type: ignore[arg-type]
            if lost < 2:
                lost += 1
                raise _transient(applying.dialect).orig  # type: ignore[attr-defined]

        monkeypatch.setattr(applying.dialect, "do_commit", lose)
        assert await applier.apply(transactions(0, 2)) == 2
    assert lost == 2
    assert contents(engine) == ({0: [0, 1, 2]}, {0: 2})


async def test_the_loop_is_not_blocked(engine: sa.Engine, applying: Applying) -> None:
    go = threading.Event()

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        assert in_greenlet() or threading.current_thread() is not threading.main_thread()
        wait_in_apply(lambda: go.wait(10))
        record(connection, transaction)

    async with applying(apply) as applier, asyncio.TaskGroup() as group:
        task = group.create_task(applier.apply(transactions(0, 0)))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not task.done()
        go.set()


@pytest.mark.parametrize("engine", ["postgresql", "asyncpg"], indirect=True)
async def test_partitions_can_use_the_database_at_the_same_time(
    engine: sa.Engine, applying: Applying
) -> None:
    """With two threads both are inside their transaction at once (the barrier would break otherwise)."""
    barrier = threading.Barrier(2, timeout=60)
    met: set[int] = set()

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        if transaction.partition_id not in met:  # a transaction that could not be serialized is applied again
            met.add(transaction.partition_id)
            wait_in_apply(barrier.wait)

    async with applying(apply, threads=2) as applier, asyncio.TaskGroup() as group:
        for partition_id in (0, 1):
            group.create_task(applier.apply(transactions(0, 3, partition_id)))
    assert contents(engine) == ({0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}, {0: 3, 1: 3})


async def test_one_partition_is_applied_by_one_at_a_time(engine: sa.Engine, applying: Applying) -> None:
    inside = 0

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        record(connection, transaction)
        inside -= 1

    async with applying(apply, threads=3) as applier, asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(applier.apply(transactions(0, 9)))
    assert contents(engine) == ({0: list(range(10))}, {0: 9})


async def test_closing_waits_for_the_transaction_under_way(engine: sa.Engine, applying: Applying) -> None:
    before = set(threading.enumerate())  # of another test in this process, whose applier is not collected yet
    inside, go = threading.Event(), threading.Event()

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        inside.set()
        wait_in_apply(lambda: go.wait(10))

    applier = applying(apply)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(applier.apply(transactions(0, 0)))
        await until(inside.is_set)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, go.set)
        await applier.close()
    assert contents(engine) == ({0: [0]}, {0: 0})
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("waltz-sql")]


async def test_a_close_refuses_what_has_not_begun(engine: sa.Engine, applying: Applying) -> None:
    """Jobs that wait for a thread: nobody has cancelled their callers."""
    inside, go = threading.Event(), threading.Event()

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        inside.set()
        wait_in_apply(lambda: go.wait(10))

    applier = applying(apply)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(applier.apply(transactions(0, 0)))
        await until(inside.is_set)
        waiting = asyncio.gather(
            applier.high_water_mark(0),
            applier.apply(transactions(0, 0, partition_id=1)),
            return_exceptions=True,
        )
        left = group.create_task(applier.high_water_mark(1))
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().call_later(0.05, go.set)
        closing = group.create_task(applier.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # now its job is cancelled, and its caller too
        left.cancel()
        await closing
    assert [str(error) for error in await waiting] == ["the applier is closed"] * 2
    assert all(isinstance(error, ClientClosedError) for error in await waiting)
    assert first.result() == 0
    assert left.cancelled()


async def test_mistakes_are_refused(engine: sa.Engine) -> None:
    with pytest.raises(UsageError):
        SqlApplier(engine, record, on_application_error="skip")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        SqlApplier(engine, record, threads=0)
    async with SqlApplier(engine, record) as applier:
        with pytest.raises(UsageError):
            await applier.apply([])
        with pytest.raises(UsageError, match="consecutive"):
            await applier.apply([*transactions(0, 0), *transactions(2, 2)])
