"""The sink: `df.write.format("waltz")` and `df.writeStream.format("waltz")`, exactly once.

Read `attempt` first: it has the method and the argument. `task_claims` and `read_back` are its records
and how they are read back, `requests` the locks of a row, `task_writer` and `task` perform it,
`batch_starts` is what outlives a driver, `writers` the face towards Spark.
"""

from waltz_spark.sink.task_claims import CLAIM_HEADER
from waltz_spark.sink.writers import batch_writer, stream_writer

__all__ = ["CLAIM_HEADER", "batch_writer", "stream_writer"]
