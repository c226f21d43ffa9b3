"""The Spark data source and sink of Waltz: `spark.read.format("waltz")` and its like."""

from waltz_spark.lag import Lag, LagListener
from waltz_spark.source import WaltzDataSource

__all__ = ["Lag", "LagListener", "WaltzDataSource"]
