"""The writers that Spark knows: made on the driver, sent to the tasks, notified there of the end of the
batch.

The driver makes one for every micro-batch (and another one to record that it is complete), so what must
outlast a batch is in the folder of `batch_starts`. A task learns its query and batch from Spark's task
context.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from waltz_spark.errors import OptionError, in_one_line
from waltz_spark.options import STREAM_WRITE, WRITE
from waltz_spark.sink.batch_starts import Marks, Owner, Starts, StartsFolder
from waltz_spark.sink.options import AT_LEAST_ONCE, WriteOptions
from waltz_spark.sink.rows import check_schema
from waltz_spark.sink.task_claims import TaskKey

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from waltz_spark.connection import Connection
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # Spark 4.0 hands record batches to whatever writer is a DataSourceArrowWriter
        from pyspark.sql.datasource import DataSourceStreamWriter

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter): ...


log = logging.getLogger(__name__)

CHECKPOINT_FILE = "metadata"
"""What Spark has written into a checkpoint before it asks for a writer."""
QUERY_PROPERTY, BATCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"
SPECULATION = "spark.speculation"


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task reports to the driver; see `task_writer.TaskResult`."""

    written: int
    found: int
    skipped: int
    marks: Mapping[int, int]


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Of `df.write.format("waltz")`. OptionError, one line, for a mistake in options or columns."""
    options = WriteOptions.load(given, WRITE)
    _check(schema, overwrite)
    options = _pinned(options)
    query = options.write_id or f"write-{uuid.uuid4()}"
    return BatchWriter(options, query, _batch_start(options, query))


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Of `df.writeStream.format("waltz")`; errors as of `batch_writer`, and StateError."""
    options = WriteOptions.load(given, STREAM_WRITE)
    _check(schema, overwrite)
    options = _pinned(options)
    return StreamWriter(options, _stream_starts(options))


def _pinned(options: WriteOptions) -> WriteOptions:
    """For the tasks: the cluster that this process, the driver, follows."""
    from waltz_spark.connection import pinned

    return replace(options, client=pinned(options.client))


def _check(schema: StructType, overwrite: bool) -> None:
    if overwrite:
        raise OptionError(
            "a log cannot be overwritten: use mode append (a stream: outputMode append or update)"
        )
    check_schema(schema)


def _batch_start(options: WriteOptions, query: str) -> Starts:
    if options.delivery == AT_LEAST_ONCE:
        return Starts({})
    if options.state_location is not None:
        return _noted(f"{options.state_location.rstrip('/')}/{query}", options)
    if options.write_id is not None:
        return Starts({})  # from the beginning of the log
    from waltz_spark.connection import lease

    with lease(options.client) as connection:
        return Starts(_marks_now(connection, options.timeout_seconds))


def _stream_starts(options: WriteOptions) -> Starts:
    if options.state_location is None:
        return Starts({})
    return _noted(options.state_location, options)


def _noted(location: str, options: WriteOptions) -> Starts:
    from waltz_spark.connection import lease

    with lease(options.client) as connection:
        folder = StartsFolder(location, Owner(connection.identity.key, options.claim_header))
        starts = folder.read()
        if starts is None:
            if options.in_checkpoint and not folder.has_sibling(CHECKPOINT_FILE):
                raise OptionError(
                    f"{location.rpartition('/')[0]} is no checkpoint where the driver looks for it, so Spark has it in another file system than "
                    "the sink would have its notes: give checkpointLocation with its scheme (file, s3, gs, hdfs, abfs), or stateLocation, a "
                    "folder that outlives the driver"
                )
            starts = folder.note_first(_marks_now(connection, options.timeout_seconds))
    return starts


def _marks_now(connection: Connection, timeout_seconds: float) -> Marks:
    """High-water mark of every partition."""
    from waltz_spark.log_ends import all_ends

    ends = all_ends(connection, range(connection.identity.num_partitions), timeout_seconds)
    return {partition: end - 1 for partition, end in ends.items()}


class BatchWriter(DataSourceArrowWriter):
    """A batch write: one batch, numbered 0."""

    def __init__(self, options: WriteOptions, query: str, starts: Starts) -> None:
        self._options = options
        self._query = query
        self._starts = starts

    @in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """One task. Its errors end the attempt, and Spark tries again. A write of this name that is complete
        adds nothing."""
        if self._starts.is_complete(0):
            log.info("write %s is in the log already", self._query)
            return TaskMessage(0, 0, 0, {})
        key = TaskKey(self._query, 0, _context().partitionId())
        return _write(self._options, key, self._starts, iterator)

    @in_one_line()
    def commit(self, messages: Sequence[TaskMessage | None]) -> None:  # type: ignore[override]
        """All tasks are done."""
        _report(f"write {self._query}", messages)
        location = self._options.state_location
        if location is not None:
            folder = StartsFolder(f"{location.rstrip('/')}/{self._query}", self._starts.owner)
            folder.note_complete(0, _next_start(self._starts, 0, messages))

    def abort(self, messages: Sequence[TaskMessage | None]) -> None:  # type: ignore[override]
        """A task failed for good. A log takes nothing back."""
        log.warning("write %s failed: what its tasks have written remains in the log", self._query)


class StreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch of a streaming write."""

    def __init__(self, options: WriteOptions, starts: Starts) -> None:
        self._options = options
        self._starts = starts

    @in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """One task. Its errors end the attempt, and Spark tries again."""
        context = _context()
        query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise OptionError(
                "Spark did not report which query and batch a task belongs to: write with writeStream"
            )
        self._starts.check_place(int(batch))
        key = TaskKey(query, int(batch), context.partitionId())
        return _write(self._options, key, self._starts, iterator)

    @in_one_line()
    def commit(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """All tasks of the batch are done: note it before Spark does."""
        _report(f"batch {batchId}", messages)
        location = self._options.state_location
        if location is not None:
            folder = StartsFolder(location, self._starts.owner)
            folder.note_complete(batchId, _next_start(self._starts, batchId, messages))

    def abort(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """A task failed for good. The batch is tried again when the query is started again."""
        log.warning(
            "batch %d failed: what its tasks have written remains, and is found when the batch is repeated",
            batchId,
        )


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a task without a task context")
    return context


def _next_start(starts: Starts, batch: int, messages: Sequence[TaskMessage | None]) -> Marks:
    """Per partition the last transaction that a task of the batch knows: nothing of the next batch is at
    or below it."""
    marks = dict(starts.of(batch))
    for message in messages:
        for partition, mark in message.marks.items() if message is not None else ():
            marks[partition] = max(marks.get(partition, -1), mark)
    return marks


def _report(what: str, messages: Sequence[TaskMessage | None]) -> None:
    done = [message for message in messages if message is not None]
    skipped = sum(message.skipped for message in done)
    log.log(
        logging.WARNING if skipped else logging.INFO,
        "%s: %d rows written, %d found from earlier attempts, %d left out because of lock conflicts",
        what,
        sum(message.written for message in done),
        sum(message.found for message in done),
        skipped,
    )


def _write(
    options: WriteOptions, key: TaskKey, starts: Starts, batches: Iterator[pa.RecordBatch]
) -> TaskMessage:
    from waltz_spark.sink.task import write_task

    if (
        options.delivery == AT_LEAST_ONCE
        and (_context().getLocalProperty(SPECULATION) or "").lower() == "true"
    ):
        raise OptionError(
            "delivery = at-least-once and spark.speculation = true: every speculative copy of a task would write its rows again; turn "
            "speculation off, or write exactly once"
        )
    result = write_task(options, key, starts.of(key.batch), batches)
    return TaskMessage(result.written, result.found, result.skipped, dict(result.marks))
