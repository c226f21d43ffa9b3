"""The task side of a read, the same for batch and streaming: one range of the log as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from waltz_spark.blocks import cut_block
from waltz_spark.connection import lease
from waltz_spark.errors import DataLossError, WaltzSparkError, in_one_line
from waltz_spark.planning import Range
from waltz_spark.schema import arrow_batch, arrow_schema

if TYPE_CHECKING:
    from waltz_client import RangeBatch, RangeRead, WaltzClient
    from waltz_spark.options import ReadOptions


class RangePartition(InputPartition):
    """One task: a range of one partition of the log, and the key of the cluster that the driver follows (the
    reader that tasks get was pickled before that was known)."""

    def __init__(self, planned: Range, cluster_key: str) -> None:
        super().__init__(planned)
        self.range = planned
        self.cluster_key = cluster_key


def read_range(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task, in the order of their ids. A plan without ranges has one task without a range: no
    rows.

    Everything is there or an error is raised (UnavailableError when nothing came for `readTimeoutMs`):
    Spark runs the task again.
    """
    if not isinstance(partition, RangePartition):
        return
    schema = arrow_schema(options.deserializer)
    options = replace(options, client=options.client.of_cluster(partition.cluster_key))
    with in_one_line():
        for batch in range_batches(options, partition):
            yield arrow_batch(batch, schema)


def range_batches(options: ReadOptions, partition: RangePartition) -> Iterator[RangeBatch]:
    """The transactions of a range in batches of the client, read ahead while the caller works. DataLossError
    in another cluster than that of the plan, which an address of ZooKeeper can have passed to."""
    wanted = partition.range
    with lease(options.client) as connection:
        here = connection.identity.key
        if here != partition.cluster_key:
            raise DataLossError(
                f"the read was planned for the cluster with the key {partition.cluster_key}, and this task follows {here}"
            )

        async def open_range(client: WaltzClient) -> RangeRead:
            read = client.read_range(
                wanted.partition,
                wanted.first,
                wanted.last,
                with_data=options.include_data,
                where=None if options.headers is None else options.headers.__contains__,
                batch_transactions=options.batch_transactions,
                batch_bytes=options.batch_bytes,
                timeout_seconds=options.read_timeout_ms / 1000,
            )
            return read.cut_blocks_with(cut_block)

        batches = connection.call(open_range)

        async def next_batch(_: WaltzClient) -> RangeBatch | None:
            return await anext(batches, None)

        async def close(_: WaltzClient) -> None:
            await batches.aclose()

        try:
            while (batch := connection.call(next_batch)) is not None:
                yield batch
        finally:
            with suppress(WaltzSparkError):  # an error of the read itself comes first
                connection.call(close)
