"""Where Spark looks: it registers the `DefaultSource` of every installed module whose name begins with
`pyspark_`."""

from waltz_spark.source import WaltzDataSource as DefaultSource

__all__ = ["DefaultSource"]
