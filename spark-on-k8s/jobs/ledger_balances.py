"""Balances of every account of the ledger (`examples/ledger`), kept up to date by a stream:
`ledger_balances.py --help`.

Every event of the log moves money on at most two accounts; a balance is the sum of what was moved. The sums
are Spark's state, in the checkpoint; every batch writes the table of balances as a new folder `table-N`.
The one with the highest number that has the file `_SUCCESS` counts: a folder never changes after it has that,
so there is a whole table at any time, and a job that was killed leaves one behind that does not count. The
last few tables are kept, for whoever reads one while the next are written. Only the headers of the ledger's
events are read; events that cannot be read are left out, counted and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import array, col, explode, from_json, lit, struct, when
from pyspark.sql.functions import sum as total

from waltz_client import HeaderNamespace
from waltz_spark.job import log_options, parser, run, run_query, session, sound, stream_flags

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LEDGER = HeaderNamespace("ledger")
OPENED, TRANSFERRED = LEDGER.header(1), LEDGER.header(2)
"""Headers of the ledger's events that move money; a refusal (3) moves none."""
_TABLE = "table-"
_KEPT = 5
"""Whole tables that are kept."""
_LARGEST = 2**53
"""Of an amount: sums of larger ones could leave the range of a BIGINT."""
EVENT = "book STRING, account STRING, balance BIGINT, id STRING, source STRING, target STRING, amount BIGINT"


def movements(log: DataFrame) -> DataFrame:
    """One row per account and event: what it adds to the account."""
    events = log.where(col("header").isin(OPENED, TRANSFERRED)).select(
        "header", from_json(col("data").cast("string"), lit(EVENT)).alias("event")
    )
    events = sound(
        events, col("event.book").isNotNull() & when(col("header") == OPENED, _opened()).otherwise(_moved())
    )
    opened = array(_movement("event.account", col("event.balance")))
    transferred = array(
        _movement("event.source", -col("event.amount")), _movement("event.target", col("event.amount"))
    )
    moved = when(col("header") == OPENED, opened).otherwise(transferred)
    return events.select(col("event.book").alias("book"), explode(moved).alias("movement")).select(
        "book", "movement.*"
    )


def _opened() -> Column:
    return col("event.account").isNotNull() & col("event.balance").between(-_LARGEST, _LARGEST)


def _moved() -> Column:
    ends = col("event.source").isNotNull() & col("event.target").isNotNull()
    return ends & col("event.amount").between(-_LARGEST, _LARGEST)


def _movement(account: str, amount: Column) -> Column:
    return struct(col(account).alias("account"), amount.alias("amount"))


def balances(log: DataFrame) -> DataFrame:
    """Balance per book and account."""
    return movements(log).groupBy("book", "account").agg(total("amount").alias("balance"))


def run_stream(
    spark: SparkSession,
    options: Mapping[str, str],
    output: str,
    checkpoint: str,
    *,
    until_end: bool,
    seconds: float,
) -> None:
    """Follow the log, or with `until_end` stop at what is committed when it starts."""
    reading = {"startingTransactions": "earliest", "headers": f"{OPENED},{TRANSFERRED}", **options}
    log = spark.readStream.format("waltz").options(**reading).load()

    writer = (
        balances(log)
        .writeStream.queryName("ledger-balances")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(lambda frame, _: write_table(frame, output))
    )
    run_query(writer, until_end=until_end, seconds=seconds)


def write_table(frame: DataFrame, output: str) -> None:
    """The next table. The oldest ones go."""
    spark = frame.sparkSession
    before = tables(spark, output)
    folder = f"{output.rstrip('/')}/{_TABLE}{before[-1] + 1 if before else 0}"
    # `overwrite`: what a job that was killed has left there. The option: some platforms switch it off.
    writer = frame.coalesce(1).write.mode("overwrite")
    writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true").parquet(folder)
    files, root = _files(spark, output)
    for number in before[: 1 - _KEPT]:
        files.delete(_path(spark, f"{root}/{_TABLE}{number}"), True)


def tables(spark: SparkSession, output: str) -> list[int]:
    """Numbers of the whole tables, ascending; the last one counts."""
    files, root = _files(spark, output)
    done = files.globStatus(_path(spark, f"{root}/{_TABLE}*/_SUCCESS")) or ()
    names = (str(one.getPath().getParent().getName()).removeprefix(_TABLE) for one in done)
    return sorted(int(name) for name in names if name.isdecimal())


def read_current(spark: SparkSession, output: str) -> DataFrame:
    """The newest whole table."""
    found = tables(spark, output)
    if not found:
        raise LookupError(f"{output} has no table yet")
    return spark.read.parquet(f"{output.rstrip('/')}/{_TABLE}{found[-1]}")


def _files(spark: SparkSession, output: str) -> tuple[Any, str]:
    """The file system that Spark writes this location to (PySpark has no other way to it), and the location
    without a slash at its end."""
    root = output.rstrip("/")
    return _path(spark, root).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), root


def _path(spark: SparkSession, location: str) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.hadoop.fs.Path(location)


def main(arguments: Sequence[str] | None) -> None:
    """The command line."""
    flags = parser("Balances of every account of the ledger, kept up to date.")
    flags.add_argument(
        "--output", required=True, help="folder for the tables (Parquet), a path or URI for Spark"
    )
    flags.add_argument("--checkpoint", required=True, help="folder that is kept after the job")
    stream_flags(flags)
    given = flags.parse_args(arguments)
    if set("*?[]{}\\") & set(given.output):
        flags.error(
            "--output has characters of a pattern, * ? [ ] { } or \\, which Spark would look for when it reads"
        )
    options = log_options(given)
    spark = session("ledger-balances")
    run_stream(
        spark,
        options,
        given.output,
        given.checkpoint,
        until_end=given.until_end,
        seconds=given.trigger_seconds,
    )
    spark.stop()


if __name__ == "__main__":
    run(main)
