"""The tables of the SQL helper: high-water marks, and dead letters.

The table of marks is that of release 0.13.2's database helper, column by column, so that processes of both
may share one database. The mark is also the fence between appliers: it only ever moves by compare-and-set, in
the database transaction that holds the effects, so of two that apply the same transaction one changes no row
and has to leave it.
"""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from waltz_client.transaction import FeedTransaction

MARKS = "waltz_high_water_marks"
DEAD_LETTERS = "waltz_dead_letters"


class SqlTables:
    """Names and columns.

    `marks`: `partition_id INTEGER PRIMARY KEY, high_water_mark BIGINT NOT NULL`, one row per partition:
    the id of the last transaction applied, -1 for none. `dead_letters`: transactions that were skipped,
    with the error as text. Two applications in one database need two tables of marks.
    """

    def __init__(
        self, *, marks: str = MARKS, dead_letters: str = DEAD_LETTERS, schema: str | None = None
    ) -> None:
        metadata = sa.MetaData(schema=schema)
        self.metadata = metadata
        self.marks = sa.Table(
            marks,
            metadata,
            sa.Column("partition_id", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("high_water_mark", sa.BigInteger, nullable=False),
        )
        self.dead_letters = sa.Table(
            dead_letters,
            metadata,
            sa.Column("partition_id", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("transaction_id", sa.BigInteger, primary_key=True, autoincrement=False),
            sa.Column("req_id", sa.String(64), nullable=False),
            sa.Column("header", sa.Integer, nullable=False),
            sa.Column("data", sa.LargeBinary, nullable=True),
            sa.Column("error", sa.Text, nullable=False),
            sa.Column("skipped_at", sa.DateTime(timezone=True), nullable=False),
        )

    def create(self, engine: sa.Engine) -> None:
        """Create what is missing; safe to call at every start, by several processes at once."""
        try:
            self.metadata.create_all(engine)
        except sa.exc.DBAPIError:
            self.metadata.create_all(engine)  # another process created them between our look and our CREATE

    def read_mark(self, connection: sa.Connection, partition_id: int) -> int | None:
        """The mark of a partition; None without a row."""
        mark = connection.scalar(
            sa.select(self.marks.c.high_water_mark).where(self.marks.c.partition_id == partition_id)
        )
        return None if mark is None else int(mark)

    def insert_mark(self, connection: sa.Connection, partition_id: int) -> None:
        """The row of a partition that has none; IntegrityError when somebody else was faster."""
        connection.execute(sa.insert(self.marks).values(partition_id=partition_id, high_water_mark=-1))

    def advance_mark(self, connection: sa.Connection, partition_id: int, expected: int, new: int) -> bool:
        """Compare and set; False when the mark is not `expected`. Holds the row until the end of the
        transaction."""
        marks = self.marks
        changed = connection.execute(
            sa.update(marks)
            .where(marks.c.partition_id == partition_id, marks.c.high_water_mark == expected)
            .values(high_water_mark=new)
        )
        return changed.rowcount == 1

    def keep_dead_letter(
        self, connection: sa.Connection, transaction: FeedTransaction, error: BaseException
    ) -> None:
        """Record a transaction that is skipped."""
        connection.execute(
            sa.insert(self.dead_letters).values(
                partition_id=transaction.partition_id,
                transaction_id=transaction.transaction_id,
                req_id=str(transaction.req_id),
                header=transaction.header,
                data=transaction.data,
                error=f"{type(error).__name__}: {error}",
                skipped_at=datetime.datetime.now(datetime.UTC),
            )
        )
