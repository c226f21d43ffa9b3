"""The data source itself: `spark.read.format("waltz")`, `readStream`, `write` and `writeStream`.

Reads are here (`batch`, `stream`); writes are in `sink`. Nothing is opened and nothing heavy imported
when Spark makes or copies the object.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from waltz_spark.options import BATCH, STREAM, ReadOptions
from waltz_spark.schema import check_schema, log_schema


class WaltzDataSource(DataSource):
    """`format("waltz")`. Register it with `spark.dataSource.register(WaltzDataSource)`, or have this
    package installed where the driver runs: Spark finds it automatically."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "waltz"

    def schema(self) -> StructType:
        """The columns of a read."""
        return log_schema(self.options.get("deserializer", "binary").lower())

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read; OptionError, one line, for a mistake in the options."""
        from waltz_spark.batch import FilteringBatchReader, WaltzBatchReader, filters_are_asked_for

        options = ReadOptions.load(self.options, BATCH)
        check_schema(schema, options.deserializer)
        if options.push_filters and filters_are_asked_for():
            return FilteringBatchReader(options)
        return WaltzBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read; OptionError as for `reader`."""
        from waltz_spark.stream import WaltzStreamReader

        options = ReadOptions.load(self.options, STREAM)
        check_schema(schema, options.deserializer)
        return WaltzStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from waltz_spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A streaming write."""
        from waltz_spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
