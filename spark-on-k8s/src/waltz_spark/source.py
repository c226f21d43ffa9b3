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

from waltz_spark.errors import WaltzSparkError, in_one_line
from waltz_spark.options import BATCH, STREAM, ReadOptions, check_at_load
from waltz_spark.schema import check_schema, log_schema


class WaltzDataSource(DataSource):
    """`format("waltz")`. Register it with `spark.dataSource.register(WaltzDataSource)`, or have this
    package installed where the driver runs: Spark finds it automatically."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "waltz"

    @in_one_line()
    def schema(self) -> StructType:
        """The columns of a read: Spark asks for them in `load()`. OptionError, one line, for a mistake in the
        options that shows without the cluster."""
        check_at_load(self.options)
        return log_schema(self.options.get("deserializer", "binary").lower())

    @in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read; OptionError, one line, for a mistake in the options."""
        from waltz_spark.batch import WaltzBatchReader

        options = ReadOptions.load(self.options, BATCH)
        check_schema(schema, options.deserializer)
        return WaltzBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read; OptionError as for `reader`, raised by what this returns: Spark (4.0 to 4.3)
        loses what is raised here."""
        from waltz_spark.stream import RefusedStreamReader, WaltzStreamReader

        try:
            options = ReadOptions.load(self.options, STREAM)
            check_schema(schema, options.deserializer)
        except WaltzSparkError as error:
            return RefusedStreamReader(error)
        return WaltzStreamReader(options)

    @in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from waltz_spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    @in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A streaming write."""
        from waltz_spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
