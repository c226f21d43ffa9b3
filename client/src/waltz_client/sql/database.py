"""One database transaction at a time: the mark and the effects of transactions, or nothing. Synchronous; runs
where `engines` puts it.

Order inside it: compare-and-set of the mark (which takes the row's lock, so a second applier waits here and
then finds the mark changed), a savepoint, the application's statements, a look at mark and savepoint, commit.
A crash anywhere leaves both as they were; a commit whose answer was lost is found by the next attempt,
because the mark has moved.

The look is there because an application may catch an error of the database and continue. PostgreSQL has
aborted the transaction then, and answers the commit with a rollback that no driver reports; MySQL after a
deadlock and SQLite with a full disk have ended it, and what follows is a new one without the mark. The mark
alone would not show it: once the row's lock is lost, another applier may have moved it to the same value.
Only the transaction that made the savepoint can release it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, cast

import sqlalchemy as sa

from waltz_client.errors import StopApplyingError, UsageError
from waltz_client.feed import HeaderTest
from waltz_client.sql.engines import ApplyFunction
from waltz_client.sql.errors import SqlApplyError, SqlTableMissingError
from waltz_client.sql.tables import SqlTables
from waltz_client.sql.transient import is_transient
from waltz_client.transaction import DataTransaction, FeedTransaction

SAVEPOINT = "waltz_apply"

_ENDED = (
    "apply has swallowed an error of the database that ended the database transaction (let such errors out, or put the "
    "statement that may fail into a savepoint: with connection.begin_nested()), or it has run a statement that commits on its own"
)


_AUTOCOMMIT = (
    "the database connection is in autocommit: the high-water mark would be committed before what belongs to it. Leave "
    "autocommit out, of isolation_level in SqlApplier or create_engine and of the driver's connect arguments"
)


class ApplyFailed(Exception):
    """The application's function raised at this transaction; everything was rolled back. Its error is
    `__cause__`."""

    def __init__(self, transaction: FeedTransaction) -> None:
        super().__init__(str(transaction))
        self.transaction = transaction


class Database:
    """The engine, the tables and the application's function. Stateless: any thread may call any method."""

    def __init__(
        self,
        engine: sa.Engine,
        tables: SqlTables,
        apply: ApplyFunction,
        where: HeaderTest | None,
        isolation_level: str | None,
    ) -> None:
        self._engine = engine
        # An engine with an option shares the pool of its parent.
        self._apply_engine = (
            engine if isolation_level is None else engine.execution_options(isolation_level=isolation_level)
        )
        self._tables = tables
        self._apply = apply
        self._where = where

    def create_tables(self) -> None:
        """See `SqlTables.create`."""
        self._tables.create(self._engine)

    def read_mark(self, partition_id: int) -> int:
        """The mark of a partition, -1 for a new one, whose row is made. SqlTableMissingError, or what the
        database raises."""
        tables = self._tables
        for _ in range(2):
            try:
                with _connect(self._engine) as connection, connection.begin():
                    mark = tables.read_mark(connection, partition_id)
                    if mark is None:
                        tables.insert_mark(connection, partition_id)
                        mark = -1
                    return mark
            except sa.exc.IntegrityError:
                continue  # another process has just made the row
            except (sa.exc.ProgrammingError, sa.exc.OperationalError) as error:
                self._explain_missing_table(error)
                raise
        raise UsageError(
            f"the row of partition {partition_id} in {tables.marks.fullname} can neither be read nor made"
        )

    def _explain_missing_table(self, error: sa.exc.DBAPIError) -> None:
        if error.connection_invalidated:
            return
        marks = self._tables.marks
        try:
            with _connect(self._engine) as connection:
                there = sa.inspect(connection).has_table(marks.name, schema=marks.schema)
        except sa.exc.SQLAlchemyError:
            return
        if not there:
            raise SqlTableMissingError(
                f"the database has no table {marks.fullname}: call create_tables()"
            ) from None

    def apply(self, transactions: Sequence[FeedTransaction]) -> int:
        """Apply consecutive transactions of one partition in one database transaction; the mark afterwards.

        A mark other than the last one's id means that nothing was applied, because the mark was not where it
        had to be; -1 also for a row that was missing, and is there now. Raises ApplyFailed (also for what
        only the commit finds, a deferred constraint say), an error of the database that may pass,
        SqlTableMissingError or SqlApplyError (the connection is in autocommit; the mark is right and cannot
        be moved, or was committed without this transaction's end).
        """
        try:
            mark = self._apply_together(transactions)
            return self.read_mark(transactions[0].partition_id) if mark is None else mark
        except (ApplyFailed, StopApplyingError):
            raise
        except Exception as error:
            if is_transient(error):
                raise
            if isinstance(error, (sa.exc.ProgrammingError, sa.exc.OperationalError)):
                self._explain_missing_table(error)
            raise ApplyFailed(transactions[-1]) from error

    def _apply_together(self, transactions: Sequence[FeedTransaction]) -> int | None:
        partition_id = transactions[0].partition_id
        expected = transactions[0].transaction_id - 1
        last = transactions[-1].transaction_id
        with _connect(self._apply_engine) as connection, connection.begin():
            _refuse_autocommit(connection, partition_id, expected + 1)
            if not self._tables.advance_mark(connection, partition_id, expected, last):
                return self._mark_elsewhere(connection, partition_id, expected)
            # Not begin_nested(): a Session that the application puts on the connection would behave
            # differently inside one.
            connection.dialect.do_savepoint(connection, SAVEPOINT)
            with _no_commit(connection):
                for transaction in transactions:
                    try:
                        if self._where is None or self._where(transaction.header):
                            _refuse_awaitable(self._apply(connection, cast(DataTransaction, transaction)))
                    except Exception as error:
                        raise ApplyFailed(transaction) from error
            self._look_for_mark(connection, partition_id, last)
        return last

    def _look_for_mark(self, connection: sa.Connection, partition_id: int, last: int) -> None:
        """Raise unless this is still the database transaction that moved the mark to `last`, and a commit
        would keep it."""
        try:
            mark = self._tables.read_mark(connection, partition_id)
        except sa.exc.SQLAlchemyError as error:
            if is_transient(error):
                raise
            raise UsageError(_ENDED) from error
        if mark != last:
            raise UsageError(_ENDED)
        try:
            connection.dialect.do_release_savepoint(connection, SAVEPOINT)
        except sa.exc.SQLAlchemyError as error:
            if is_transient(error):
                raise
            # The mark is there without us, for good: neither another attempt nor a dead letter would change
            # anything.
            raise SqlApplyError(partition_id, last, UsageError(_ENDED)) from error

    def _mark_elsewhere(self, connection: sa.Connection, partition_id: int, expected: int) -> int | None:
        """The mark (None without a row), after a compare-and-set that found it not to be `expected`. Errors
        as `apply`."""
        mark = self._tables.read_mark(connection, partition_id)
        if mark == expected:
            raise SqlApplyError(
                partition_id,
                expected + 1,
                UsageError(
                    f"the high-water mark is {mark} as it has to be, but moving it changed no row of "
                    f"{self._tables.marks.fullname}: look for a trigger or rule, a view, or a driver that does not count rows"
                ),
            )
        return mark

    def skip(self, transaction: FeedTransaction, error: BaseException) -> int:
        """Put one transaction among the dead letters and move the mark past it; the mark afterwards, as
        `apply`."""
        tables = self._tables
        partition_id, transaction_id = transaction.partition_id, transaction.transaction_id
        with _connect(self._apply_engine) as connection, connection.begin():
            _refuse_autocommit(connection, partition_id, transaction_id)
            if tables.advance_mark(connection, partition_id, transaction_id - 1, transaction_id):
                tables.keep_dead_letter(connection, transaction, error)
                return transaction_id
            mark = self._mark_elsewhere(connection, partition_id, transaction_id - 1)
        return self.read_mark(partition_id) if mark is None else mark


@contextlib.contextmanager
def _connect(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection of the pool. Asynchronous drivers let out errors of their own and of the socket where
    SQLAlchemy does not translate them: when the database is not there, or starting up, or a statement took
    too long. Here they are errors of the database, as with synchronous ones; those of the application's
    function have become ApplyFailed."""
    try:
        with engine.connect() as connection:
            yield connection
    except Exception as error:
        of_driver = isinstance(error, OSError) or isinstance(getattr(error, "sqlstate", None), str)
        if of_driver and not isinstance(error, sa.exc.SQLAlchemyError):
            raise sa.exc.OperationalError("(of the driver)", None, error) from error
        raise


def _refuse_autocommit(connection: sa.Connection, partition_id: int, transaction_id: int) -> None:
    """SqlApplyError where each statement commits on its own. Asks the driver, not the database. A driver of
    SQLite in autocommit may have a transaction all the same: SQLAlchemy's recipe begins it in an event."""
    pooled: Any = connection.connection
    autocommit = (
        getattr(pooled.dbapi_connection, "autocommit", None) is True
    )  # not the method of some drivers
    if not autocommit:
        with contextlib.suppress(AttributeError, NotImplementedError):  # of 2.0.42 and older; of the dialect
            autocommit = connection.dialect.detect_autocommit_setting(pooled.dbapi_connection)
    if autocommit and getattr(pooled.driver_connection, "in_transaction", None) is not True:
        raise SqlApplyError(partition_id, transaction_id, UsageError(_AUTOCOMMIT))


def _refuse_awaitable(result: object) -> None:
    """A coroutine that nobody awaits has applied nothing."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise UsageError(
            "apply returned an awaitable: write it as a coroutine function (`async def`), with an asynchronous engine"
        )


@contextlib.contextmanager
def _no_commit(connection: sa.Connection) -> Iterator[None]:
    """The application cannot end the database transaction: half of its effects would stay without the
    rest."""

    refused = False

    def refuse(_: sa.Connection) -> None:
        nonlocal refused
        refused = True
        raise UsageError(
            "apply must neither commit nor roll back: the transaction ends after it (savepoints are fine)"
        )

    for event in ("commit", "rollback"):
        sa.event.listen(connection, event, refuse)
    try:
        yield
    finally:
        for event in ("commit", "rollback"):
            sa.event.remove(connection, event, refuse)
        if refused:  # SQLAlchemy takes its transaction for ended now and would not roll back any longer
            connection.connection.rollback()
