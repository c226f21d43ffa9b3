"""Transactions, bytes and checksums per partition of any log, as a stream: `log_totals.py --help`.

Shows whether two readers saw the same log: a plain reader that adds up the same numbers must come to the same
totals. With `--until-end` the job ends at what is committed when it starts, and prints its result as one
line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.functions import col, count, length, lit
from pyspark.sql.functions import max as largest
from pyspark.sql.functions import min as smallest
from pyspark.sql.functions import sum as total

from waltz_spark.job import log_options, parser, run, run_query, session, stream_flags

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def totals(log: DataFrame) -> DataFrame:
    """Per partition: how many transactions, the first and last id, bytes of payload, sum of the checksums."""
    return log.groupBy("partition").agg(
        count(lit(1)).alias("transactions"),
        smallest("transaction_id").alias("first"),
        largest("transaction_id").alias("last"),
        total(length("data")).alias("bytes"),
        total(col("checksum").cast("bigint")).alias("checksums"),
    )


def run_stream(
    spark: SparkSession,
    options: Mapping[str, str],
    output: str,
    checkpoint: str,
    *,
    until_end: bool,
    seconds: float,
) -> dict[str, dict[str, int]]:
    """Follow the log; the newest totals are in `output`, and returned at the end."""
    log = spark.readStream.format("waltz").options(**{"startingTransactions": "earliest", **options}).load()
    writer = (
        totals(log)
        .writeStream.queryName("log-totals")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(lambda frame, _: frame.coalesce(1).write.mode("overwrite").json(output))
    )
    run_query(writer, until_end=until_end, seconds=seconds)
    rows = [row.asDict() for row in spark.read.json(output).collect()]
    return {str(row.pop("partition")): row for row in rows}


def main(arguments: Sequence[str] | None) -> None:
    """The command line."""
    flags = parser("Totals per partition of a log.")
    flags.add_argument(
        "--output", required=True, help="folder for the totals (JSON lines), a path or URI for Spark"
    )
    flags.add_argument("--checkpoint", required=True, help="folder that is kept after the job")
    stream_flags(flags)
    given = flags.parse_args(arguments)
    options = log_options(given)
    spark = session("log-totals")
    found = run_stream(
        spark,
        options,
        given.output,
        given.checkpoint,
        until_end=given.until_end,
        seconds=given.trigger_seconds,
    )
    sys.stdout.write(f"totals: {json.dumps(found, sort_keys=True)}\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    run(main)
