"""One database transaction at a time: the mark and the effects of transactions, or nothing. Synchronous; runs in a thread.

Order inside it: compare-and-set of the mark (which takes the row's lock, so a second applier waits here and then finds the mark
changed), the application's statements, commit. A crash anywhere leaves both as they were; a commit whose answer was lost is
found by the next attempt, because the mark has moved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import sqlalchemy as sa

from waltz_client.errors import UsageError
from waltz_client.sql.errors import SqlTableMissingError
from waltz_client.sql.tables import SqlTables
from waltz_client.sql.transient import is_transient
from waltz_client.transaction import FeedTransaction

ApplyFunction = Callable[[sa.Connection, FeedTransaction], object]
"""The application's part: statements on the connection it is given. It must not commit or roll back (savepoints are fine)."""


class ApplyFailed(Exception):
    """The application's function raised at this transaction; everything was rolled back. Its error is ``__cause__``."""

    def __init__(self, transaction: FeedTransaction) -> None:
        super().__init__(str(transaction))
        self.transaction = transaction


class Database:
    """The engine, the tables and the application's function. Stateless: any thread may call any method."""

    def __init__(
        self, engine: sa.Engine, tables: SqlTables, apply: ApplyFunction, isolation_level: str | None
    ) -> None:
        self._engine = engine
        # An engine with an option shares the pool of its parent.
        self._apply_engine = (
            engine if isolation_level is None else engine.execution_options(isolation_level=isolation_level)
        )
        self._tables = tables
        self._apply = apply

    def create_tables(self) -> None:
        """See ``SqlTables.create``."""
        self._tables.create(self._engine)

    def read_mark(self, partition_id: int) -> int:
        """The mark of a partition, -1 for a new one, whose row is made. SqlTableMissingError, or what the database raises."""
        tables = self._tables
        for _ in range(2):
            try:
                with self._engine.begin() as connection:
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
            there = sa.inspect(self._engine).has_table(marks.name, schema=marks.schema)
        except sa.exc.SQLAlchemyError:
            return
        if not there:
            raise SqlTableMissingError(
                f"the database has no table {marks.fullname}: call create_tables()"
            ) from None

    def apply(self, transactions: Sequence[FeedTransaction]) -> int:
        """Apply consecutive transactions of one partition in one database transaction; the mark afterwards.

        A mark other than the last one's id means that nothing was applied, because the mark was not where it had to be.
        Raises ApplyFailed (also for what only the commit finds, a deferred constraint say), or an error of the database that
        may pass.
        """
        try:
            return self._apply_together(transactions)
        except ApplyFailed:
            raise
        except Exception as error:
            if is_transient(error):
                raise
            raise ApplyFailed(transactions[-1]) from error

    def _apply_together(self, transactions: Sequence[FeedTransaction]) -> int:
        tables = self._tables
        partition_id = transactions[0].partition_id
        expected = transactions[0].transaction_id - 1
        last = transactions[-1].transaction_id
        with self._apply_engine.connect() as connection, connection.begin():
            if not tables.advance_mark(connection, partition_id, expected, last):
                mark = tables.read_mark(connection, partition_id)
                return -1 if mark is None else mark
            with _no_commit(connection):
                for transaction in transactions:
                    try:
                        self._apply(connection, transaction)
                    except Exception as error:
                        raise ApplyFailed(transaction) from error
        return last

    def skip(self, transaction: FeedTransaction, error: BaseException) -> int:
        """Put one transaction among the dead letters and move the mark past it; the mark afterwards, as :meth:`apply`."""
        tables = self._tables
        partition_id, transaction_id = transaction.partition_id, transaction.transaction_id
        with self._apply_engine.connect() as connection, connection.begin():
            if not tables.advance_mark(connection, partition_id, transaction_id - 1, transaction_id):
                mark = tables.read_mark(connection, partition_id)
                return -1 if mark is None else mark
            tables.keep_dead_letter(connection, transaction, error)
        return transaction_id


@contextlib.contextmanager
def _no_commit(connection: sa.Connection) -> Iterator[None]:
    """The application cannot end the database transaction: half of its effects would stay without the rest."""

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
        if refused:  # SQLAlchemy takes its transaction for ended now and would not roll back any more
            connection.connection.rollback()
