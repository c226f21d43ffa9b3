"""The row path, for comparison only: the same read, handed to Spark as one tuple per transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from waltz_spark import WaltzDataSource
from waltz_spark.batch import WaltzBatchReader
from waltz_spark.options import BATCH, ReadOptions


class RowReader(WaltzBatchReader):
    """Rows instead of record batches."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """What `read` of a simple source does: Spark converts cell by cell."""
        for batch in super().read(partition):
            columns = [column.to_pylist() for column in batch.columns]
            yield from zip(*columns, strict=True)


class RowSource(WaltzDataSource):
    """`format("waltz_rows")`."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "waltz_rows"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read by rows."""
        return RowReader(ReadOptions.load(self.options, BATCH))
