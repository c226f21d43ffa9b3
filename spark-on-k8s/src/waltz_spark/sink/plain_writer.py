"""Writing without claims (`delivery = at-least-once`): rows are appended until they are in the log; a
repeated task repeats them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from waltz_client import Append
from waltz_spark.sink.attempt import Committed, Conflict, OnConflict, OutgoingRow, Undecided
from waltz_spark.sink.errors import BadRowError, RowConflictError
from waltz_spark.sink.task_writer import (
    BEHIND_PAUSE_SECONDS,
    BEHIND_SECONDS,
    ROWS_AT_ONCE,
    LogPort,
    TaskResult,
    WriteSettings,
    not_taken,
)


class PlainWriter:
    """One attempt of a task. What failed is sent again as it is, so a row that was not answered in time may
    be there twice."""

    def __init__(self, port: LogPort, settings: WriteSettings) -> None:
        self._port = port
        self._settings = settings
        self._written = 0
        self._skipped = 0

    async def write(self, rows: Mapping[int, Sequence[OutgoingRow]]) -> None:
        """Rows by partition; returns when they are in the log."""
        for partition, its_rows in rows.items():
            for first in range(0, len(its_rows), ROWS_AT_ONCE):
                await self._write(partition, its_rows[first : first + ROWS_AT_ONCE])

    async def _write(self, partition: int, rows: Sequence[OutgoingRow]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(BEHIND_SECONDS, self._settings.timeout_seconds)
        while rows:
            outcomes = await self._port.send([_append(partition, row) for row in rows])
            conflicts = sum(isinstance(one, Conflict) for one in outcomes)
            if conflicts and self._settings.on_conflict is OnConflict.FAIL:
                raise RowConflictError(
                    f"{conflicts} rows for partition {partition} conflict: a lock of theirs was touched after their as_of"
                )
            self._skipped += conflicts
            committed = sum(isinstance(one, Committed) for one in outcomes)
            self._written += committed
            left = [
                row
                for row, one in zip(rows, outcomes, strict=True)
                if not isinstance(one, (Committed, Conflict))
            ]
            if left and len(left) == len(rows):
                ends = [
                    one.log_ends_at
                    for one in outcomes
                    if isinstance(one, Undecided) and one.log_ends_at is not None
                ]
                if not ends:
                    raise not_taken(partition, rows, self._settings.timeout_seconds)
                if loop.time() >= deadline:  # until then an old owner may have answered
                    raise BadRowError(
                        f"partition {partition} ends at transaction {max(ends)}, and the as_of of {len(ends)} rows is beyond that: it is no "
                        "transaction of that partition that a decision can have taken into account"
                    )
                await asyncio.sleep(BEHIND_PAUSE_SECONDS)
            rows = left

    def finish(self) -> TaskResult:
        """The task has no more rows."""
        return TaskResult(self._written, 0, self._skipped, {})


def _append(partition: int, row: OutgoingRow) -> Append:
    return Append(
        partition, row.data, row.header, row.write_locks, row.read_locks, row.append_locks, as_of=row.as_of
    )
