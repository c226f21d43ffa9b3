"""Accounts that pay out too often: an alert per burst, written back to the log exactly once:
`fraud_windows.py --help`.

A burst is `--limit` transfers from one account within `--window` transactions of its partition.
Transactions carry no time, so windows are counted in transaction ids, which also makes the result the same
whenever the job runs. Per account Spark keeps the last ids in its checkpoint. The alerts go to a partition of
the log (`--alerts-partition`) through the sink, as transactions with a header of their own, for whoever
follows the log to act on. Only the header of a transfer is read; transfers that cannot be read are left out,
counted and reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import col, from_json, lit

from waltz_client import HeaderNamespace
from waltz_spark.batch import option_named
from waltz_spark.connection import lease
from waltz_spark.job import log_options, parser, run, run_query, session, sound, stream_flags
from waltz_spark.offsets import chosen_partitions
from waltz_spark.options import STREAM, ReadOptions

if TYPE_CHECKING:
    from pandas import DataFrame as PandasFrame  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

TRANSFERRED = HeaderNamespace("ledger").header(2)
"""Header of the ledger's event for a transfer that was carried out."""
ALERT = HeaderNamespace("fraud-windows").header(1)
"""Header of an alert."""
TRANSFER = "book STRING, source STRING, amount BIGINT"


def bursts(
    last: Sequence[int], ids: Iterable[int], limit: int, window: int
) -> tuple[list[int], list[tuple[int, int]]]:
    """The last ids to remember, and first and last id of every burst. After a burst, counting begins anew."""
    kept = list(last)
    found = []
    for transaction_id in ids:
        kept = [*(one for one in kept if one > transaction_id - window), transaction_id]
        if len(kept) >= limit:
            found.append((kept[0], transaction_id))
            kept = []
    return kept, found


def alerts(log: DataFrame, limit: int, window: int) -> DataFrame:
    """Rows for the sink."""
    transfers = (
        log.where(col("header") == TRANSFERRED)
        .select(
            "partition",
            "transaction_id",
            from_json(col("data").cast("string"), lit(TRANSFER)).alias("transfer"),
        )
        .select(
            "partition",
            "transaction_id",
            col("transfer.book").alias("book"),
            col("transfer.source").alias("account"),
        )
    )
    transfers = sound(transfers, col("book").isNotNull() & col("account").isNotNull())

    def follow(
        key: tuple[Any, ...], frames: Iterator[PandasFrame], state: GroupState
    ) -> Iterator[PandasFrame]:
        import pandas

        partition, book, account = key
        ids = sorted(int(one) for frame in frames for one in frame["transaction_id"])
        last = json.loads(state.get[0]) if state.exists else []
        kept, found = bursts(last, ids, limit, window)
        state.update((json.dumps(kept),))
        texts = [
            json.dumps({"book": book, "account": account, "partition": int(partition), "first": a, "last": b})
            for a, b in found
        ]
        yield pandas.DataFrame({"data": pandas.Series(texts, dtype="object")})

    # The ids are kept as text: workers of Spark 4.3.0 read the types of a state in lower case, which no array
    # survives.
    return transfers.groupBy("partition", "book", "account").applyInPandasWithState(
        follow, "data STRING", "last STRING", "append", "NoTimeout"
    )


def run_stream(
    spark: SparkSession,
    options: Mapping[str, str],
    checkpoint: str,
    *,
    limit: int,
    window: int,
    alerts_partition: int,
    until_end: bool,
    seconds: float,
) -> None:
    """Follow the log, or with `until_end` stop at what is committed when it starts. OptionError before
    that when there is no partition for the alerts."""
    reading = {"startingTransactions": "earliest", "headers": str(TRANSFERRED), **options}
    with lease(ReadOptions.load(reading, STREAM).client) as connection, option_named("--alerts-partition"):
        chosen_partitions((alerts_partition,), connection.identity.num_partitions)
    log = spark.readStream.format("waltz").options(**reading).load()
    rows = alerts(log, limit, window).select(
        "data", lit(ALERT).alias("header"), lit(alerts_partition).alias("partition")
    )
    client = {
        key: value
        for key, value in options.items()
        if key.lower() == "servers" or key.startswith(("zookeeper.", "cluster.", "client."))
    }
    writer = (
        rows.writeStream.queryName("fraud-windows")
        .format("waltz")
        .options(**client)
        .option("checkpointLocation", checkpoint)
    )
    run_query(writer, until_end=until_end, seconds=seconds)


def main(arguments: Sequence[str] | None) -> None:
    """The command line."""
    flags = parser("Accounts of the ledger that pay out too often.")
    flags.add_argument("--checkpoint", required=True, help="folder that is kept after the job")
    flags.add_argument("--limit", type=int, default=5, help="transfers that make a burst")
    flags.add_argument("--window", type=int, default=100, help="transactions within which they must come")
    flags.add_argument(
        "--alerts-partition", type=int, required=True, help="partition of the log for the alerts"
    )
    stream_flags(flags)
    given = flags.parse_args(arguments)
    if given.limit < 1 or given.window < 1 or given.alerts_partition < 0:
        flags.error("--limit and --window are at least 1, --alerts-partition is at least 0")
    options = log_options(given)
    spark = session("fraud-windows")
    run_stream(
        spark,
        options,
        given.checkpoint,
        limit=given.limit,
        window=given.window,
        alerts_partition=given.alerts_partition,
        until_end=given.until_end,
        seconds=given.trigger_seconds,
    )
    spark.stop()


if __name__ == "__main__":
    run(main)
