"""Delays per carrier out of a log of flights, at once or as a stream: `flight_delays.py --help`.

The log is that of `make demo`: a JSON object per flight. At once, the job reads what is committed when it
starts. As a stream (`--stream`) it counts on from its checkpoint, and replaces the result after every
batch; killed and started again on the same checkpoint it ends with the same numbers. Payloads that are no
flights are left out, counted and reported (the header of a flight is the number of its aircraft, so it does
not set flights apart).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql.functions import avg, col, count, from_json, lit
from pyspark.sql.functions import sum as total

from waltz_spark.job import (
    LEFT_OUT,
    log_options,
    parser,
    report_left_out,
    run,
    run_query,
    session,
    sound,
    stream_flags,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHT = "row INT, carrier STRING, dep_delay INT, arr_delay INT"
COLUMNS = (
    "carrier",
    "flights",
    "departed",
    "departure_delay",
    "arrived",
    "arrival_delay",
    "mean_arrival_delay",
)


def delays(log: DataFrame, observation: Observation | str = LEFT_OUT) -> DataFrame:
    """Per carrier: flights, and for departure and arrival how many have a delay noted, and the sum of
    minutes."""
    flights = log.select(from_json(col("data").cast("string"), lit(FLIGHT)).alias("flight")).select(
        "flight.*"
    )
    flights = sound(flights, col("row").isNotNull() & col("carrier").isNotNull(), observation)
    return flights.groupBy("carrier").agg(
        count(lit(1)).alias("flights"),
        count("dep_delay").alias("departed"),
        total("dep_delay").alias("departure_delay"),
        count("arr_delay").alias("arrived"),
        total("arr_delay").alias("arrival_delay"),
        avg("arr_delay").alias("mean_arrival_delay"),
    )


def run_batch(spark: SparkSession, options: Mapping[str, str], output: str) -> None:
    """All flights that are committed now."""
    log = spark.read.format("waltz").options(**options).load()
    observation = Observation(LEFT_OUT)
    _replace(delays(log, observation), output)
    report_left_out("flight-delays", observation.get["payloads"])


def run_stream(
    spark: SparkSession,
    options: Mapping[str, str],
    output: str,
    checkpoint: str,
    *,
    until_end: bool,
    seconds: float,
) -> None:
    """All flights, without end, or with `until_end` those that are committed when it starts."""
    log = spark.readStream.format("waltz").options(**{"startingTransactions": "earliest", **options}).load()
    writer = (
        delays(log)
        .writeStream.queryName("flight-delays")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(lambda frame, _: _replace(frame, output))
    )
    run_query(writer, until_end=until_end, seconds=seconds)


def _replace(frame: DataFrame, output: str) -> None:
    """The result is one small table: the newest replaces the one before. A repeated batch gives the same."""
    frame.select(*COLUMNS).orderBy("carrier").coalesce(1).write.mode("overwrite").json(output)


def main(arguments: Sequence[str] | None) -> None:
    """The command line."""
    flags = parser("Delays per carrier out of a log of flights.")
    flags.add_argument(
        "--output", required=True, help="folder for the result (JSON lines), a path or URI for Spark"
    )
    flags.add_argument("--stream", action="store_true", help="continue with what is committed later")
    flags.add_argument("--checkpoint", help="with --stream: folder that is kept after the job")
    stream_flags(flags, "with --stream: ")
    given = flags.parse_args(arguments)
    if given.stream and not given.checkpoint:
        flags.error("--stream needs --checkpoint")
    options = log_options(given)
    spark = session("flight-delays")
    if given.stream:
        run_stream(
            spark,
            options,
            given.output,
            given.checkpoint,
            until_end=given.until_end,
            seconds=given.trigger_seconds,
        )
    else:
        run_batch(spark, options, given.output)
    spark.stop()


if __name__ == "__main__":
    run(main)
