"""Errors of the SQL helper. Each stops one partition, is reported once and names the place in the log."""

from __future__ import annotations

from waltz_client.errors import StopApplyingError


def _place(partition_id: int, transaction_id: int | None) -> str:
    before = "" if transaction_id is None else f" before transaction {transaction_id}"
    return f"partition {partition_id} stops{before}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


class SqlApplyError(StopApplyingError):
    """The application's `apply` raised, or the database refused; that error is `__cause__`. Nothing of
    the transaction is in the database, unless a statement of `apply` committed on its own."""

    def __init__(self, partition_id: int, transaction_id: int | None, error: BaseException) -> None:
        super().__init__(
            f"{_place(partition_id, transaction_id)}: {type(error).__name__}: {_first_line(error)}"
        )
        self.partition_id = partition_id
        self.transaction_id = transaction_id


class DatabaseUnavailableError(StopApplyingError):
    """The database kept failing for `retry_seconds`; its last error is `__cause__`. It is safe to start
    again."""

    retriable = True

    def __init__(
        self, partition_id: int, transaction_id: int | None, seconds: float, error: BaseException
    ) -> None:
        super().__init__(
            f"{_place(partition_id, transaction_id)}: the database has failed for {seconds:.0f} s: "
            f"{type(error).__name__}: {_first_line(error)}"
        )
        self.partition_id = partition_id
        self.transaction_id = transaction_id


class HighWaterMarkMovedError(StopApplyingError):
    """The mark in the database is below what this applier has applied: an older copy was restored, or
    somebody reset it or deleted its row (-1).

    Transactions from `high_water_mark` + 1 on have to be read again: start again, which begins at the mark.
    """

    retriable = True

    def __init__(self, partition_id: int, transaction_id: int, high_water_mark: int) -> None:
        super().__init__(
            f"{_place(partition_id, transaction_id)}: the high-water mark in the database went back to {high_water_mark}"
        )
        self.partition_id = partition_id
        self.transaction_id = transaction_id
        self.high_water_mark = high_water_mark


class SqlTableMissingError(StopApplyingError):
    """A table of the helper does not exist: call `create_tables`, or give the right name and schema."""

    user_error = True
