"""One attempt of a task, from Arrow batches to the log: takes a connection, gives the rows over, returns what
was done."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from waltz_spark import connection as connections
from waltz_spark.sink.options import AT_LEAST_ONCE, WriteOptions
from waltz_spark.sink.plain_writer import PlainWriter
from waltz_spark.sink.rows import RowReader
from waltz_spark.sink.task_claims import Claim, TaskKey
from waltz_spark.sink.task_writer import ClientPort, TaskResult, TaskWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from waltz_client import WaltzClient
    from waltz_spark.connection import Connection
    from waltz_spark.sink.attempt import OutgoingRow


class _Writer(Protocol):
    async def write(self, rows: Mapping[int, Sequence[OutgoingRow]]) -> None: ...

    def finish(self) -> TaskResult: ...


def write_task(
    options: WriteOptions, key: TaskKey, start: Mapping[int, int], batches: Iterator[pa.RecordBatch]
) -> TaskResult:
    """Write all rows. Errors end the attempt.

    The connection is kept for the next task of this process, unless the attempt fails: what it has sent could
    then still be decided, and the transactions of a client belong to the task of its newest claim.
    """
    connection = _connection(options)
    clean = False
    try:
        reader = RowReader(connection.identity.num_partitions, key.task % connection.identity.num_partitions)
        writer: _Writer | None = None
        for batch in batches:
            rows = reader.read(batch)
            if not rows:
                continue
            if writer is None:
                writer = _writer(options, key, start, connection, has_views="as_of" in batch.schema.names)
            _hand_over(connection, writer, rows)
        result = TaskResult(0, 0, 0, {}) if writer is None else writer.finish()
        clean = options.delivery != AT_LEAST_ONCE or writer is None
        return result
    finally:
        connections.give_back(connection)
        if not clean:
            connection.close_now()


def _connection(options: WriteOptions) -> Connection:
    if options.delivery != AT_LEAST_ONCE:
        return connections.take(options.client, options.settings.claim_header)
    # Not one that has claimed anything: the rows would pass for rows of that claim's task.
    connection = connections.Connection(options.client)
    connection.users = 1
    return connection


def _writer(
    options: WriteOptions,
    key: TaskKey,
    start: Mapping[int, int],
    connection: Connection,
    *,
    has_views: bool,
) -> _Writer:
    async def make(client: WaltzClient) -> _Writer:
        port = ClientPort(client, options.settings)
        if options.delivery == AT_LEAST_ONCE:
            return PlainWriter(port, options.settings)
        claim = Claim(key, uuid.uuid4().hex, client.client_id)
        return TaskWriter(port, claim, start, options.settings, has_views=has_views)

    return connection.call(make)


def _hand_over(connection: Connection, writer: _Writer, rows: Mapping[int, Sequence[OutgoingRow]]) -> None:
    async def write(_: WaltzClient) -> None:
        await writer.write(rows)

    connection.call(write)
