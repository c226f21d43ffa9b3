"""Streaming reads of a real cluster: each transaction once, over triggers, restarts and replays."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_tests.local_log import LocalLog
from waltz_spark import Lag, LagListener, reason
from waltz_spark.options import LIMITS_SINCE, spark_is_at_least

pytestmark = [pytest.mark.timeout(600), pytest.mark.long, pytest.mark.every_spark]

SECONDS = 90.0
LIMITS = spark_is_at_least(LIMITS_SINCE)
PARTITIONS = "1,3"


class Sink:
    """Remembers the ids of every batch, by its number; the second time it comes, too."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[tuple[int, int]]]] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        found = sorted((p, i) for p, i in frame.select("partition", "transaction_id").collect())
        self.batches.append((batch_id, found))

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Everything, in the order of batches."""
        return [row for _, batch in self.batches for row in batch]


def until(condition: Callable[[], object], query: StreamingQuery) -> None:
    """Wait for a condition; fails with the query's own error when it ends first."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        error = query.exception()
        if error is not None:
            raise error
        assert time.monotonic() < deadline, f"still not true after {SECONDS} s: {query.lastProgress}"
        time.sleep(0.05)


def start(
    spark: SparkSession,
    log: LocalLog,
    sink: Sink,
    checkpoint: Path,
    every: str | None,
    **options: object,
) -> StreamingQuery:
    frame = log.read_stream(spark, partitions=PARTITIONS, **options).load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (
        writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    ).start()


def ends(log: LocalLog) -> dict[int, int]:
    return {p: log.end(p) for p in (1, 3)}


def ids_since(log: LocalLog, starts: dict[int, int]) -> list[tuple[int, int]]:
    return [(p, i) for p, start in starts.items() for i in range(start, log.end(p))]


@pytest.mark.long
def test_available_now_reads_what_is_there_in_portions_and_goes_on_from_its_checkpoint(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    starts = ends(log)
    log.append(1, (b"%d" % i for i in range(250)))
    log.append(3, (b"%d" % i for i in range(50)))
    options: dict[str, object] = {
        "startingTransactions": json.dumps(starts),
        **({"maxTransactionsPerTrigger": 120} if LIMITS else {}),
    }
    sink = Sink()
    query = start(spark, log, sink, tmp_path / "c", None, **options)
    until(lambda: not query.isActive, query)
    expected = ids_since(log, starts)
    assert sorted(sink.rows) == expected
    assert len(sink.batches) == (-(-len(expected) // 120) if LIMITS else 1)
    assert not LIMITS or max(len(batch) for _, batch in sink.batches) <= 120

    again = Sink()
    log.append(3, [b"later"])
    query = start(spark, log, again, tmp_path / "c", None, **options)
    until(lambda: not query.isActive, query)
    assert again.rows == [row for row in ids_since(log, starts) if row not in set(expected)]

    # The last batch was planned and not committed when the driver died: it is run again, with the same rows.
    last = max(int(path.name) for path in (tmp_path / "c" / "commits").iterdir() if path.name.isdecimal())
    (tmp_path / "c" / "commits" / str(last)).unlink()
    (tmp_path / "c" / "commits" / f".{last}.crc").unlink(missing_ok=True)
    log.append(1, [b"not planned yet"])
    replay = Sink()
    query = start(spark, log, replay, tmp_path / "c", None, **options)
    until(lambda: not query.isActive, query)
    assert replay.batches[0] == (last, again.batches[-1][1])
    if LIMITS:  # without them AvailableNow is one batch, here the one that is run again
        assert replay.batches[1][1] == [(1, log.end(1) - 1)]


def test_a_running_query_reads_what_is_appended_and_its_lag_is_shown(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    before = ends(log)
    lags: list[Lag] = []
    listener = LagListener(lags.append)
    spark.streams.addListener(listener)
    sink = Sink()
    try:
        limit = {"maxBytesPerTrigger": 4_000} if LIMITS else {}
        query = start(spark, log, sink, tmp_path / "c", "200 milliseconds", **limit)
        try:
            until(lambda: sink.batches, query)  # the first one, empty: where "latest" is settled
            log.append(1, (bytes(100) for _ in range(60)))
            log.append(3, (bytes(400) for _ in range(10)))
            expected = ids_since(log, before)
            until(lambda: len(sink.rows) >= len(expected), query)
            until(lambda: not LIMITS or any(lag.batch_id == sink.batches[-1][0] for lag in lags), query)
        finally:
            query.stop()
    finally:
        spark.streams.removeListener(listener)
    assert sorted(sink.rows) == expected
    if not LIMITS:
        return  # nor does this Spark report where the log ends
    assert max(len(batch) for _, batch in sink.batches) < 50  # 4,000 bytes of about 100 each, by estimate
    assert any(lag.total > 0 for lag in lags)
    assert lags[-1].total == 0
    assert set(lags[-1].per_partition) == {1, 3}


def test_a_mistake_that_only_a_stream_makes_ends_the_query_with_a_line(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    """Raised where Spark makes the reader it would be lost behind a fault of Spark's own."""
    query = start(spark, log, Sink(), tmp_path / "c", None, endingTransactions="latest")
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(90)
    line = "waltz: option endingTransactions has no meaning for a streaming read (it is for a batch read): remove it"
    assert reason(caught.value) == line
    assert "Traceback" not in str(caught.value)


def test_a_place_that_is_not_in_the_log_ends_the_query_with_a_line(
    spark: SparkSession, log: LocalLog, tmp_path: Path
) -> None:
    beyond = json.dumps({"1": 10**9, "3": 0})
    options = {"startingTransactions": beyond, "readTimeoutMs": 5000}
    query = start(spark, log, Sink(), tmp_path / "c", None, **options)
    with pytest.raises(
        StreamingQueryException, match=r"partition 1 ends before \d+, 1000000000 was asked for"
    ):
        query.awaitTermination(90)
