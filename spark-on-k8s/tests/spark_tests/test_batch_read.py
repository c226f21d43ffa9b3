"""Batch reads of a real cluster: exactly the rows that were committed, whatever the options cut."""

import json
import time
import zlib

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming.readwriter import DataStreamReader

import waltz_spark
from spark_tests.local_log import LocalLog, reason
from waltz_client import FeedTransaction
from waltz_spark.options import spark_is_at_least
from waltz_tools.local.http import get

pytestmark = [pytest.mark.timeout(600)]

Row = tuple[object, ...]


@pytest.fixture(scope="module")
def first(log: LocalLog) -> dict[int, int]:
    """Appends to every partition but the last; headers are the number of the append modulo 5. Where each
    partition's begin."""
    return {
        partition: log.append(
            partition,
            (b'{"carrier": "c%d", "delay": %d}' % (i % 7, i) for i in range(count)),
            lambda i: i % 5,
        )[0]
        for partition, count in ((0, 1_500), (1, 700), (2, 40))
    }


@pytest.fixture
def filled(log: LocalLog, first: dict[int, int]) -> LocalLog:
    """The log with those transactions."""
    return log


def expected(transactions: list[FeedTransaction]) -> list[Row]:
    """The row of each transaction as a plain feed has it."""
    return [
        (
            t.partition_id,
            t.transaction_id,
            t.header,
            t.data,
            t.req_id.client_id,
            t.req_id.generation,
            t.req_id.seq_num,
            _signed(zlib.crc32(t.data or b"")),
        )
        for t in transactions
    ]


def _signed(checksum: int) -> int:
    return checksum - 2**32 if checksum >= 2**31 else checksum


def rows(frame: DataFrame) -> list[Row]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[0], row[1]))


def ids(frame: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for partition, transaction_id in frame.select("partition", "transaction_id").collect():
        found.setdefault(partition, []).append(transaction_id)
    return {partition: sorted(each) for partition, each in sorted(found.items())}


def test_spark_finds_the_source_by_itself_and_reads_every_transaction_once(
    spark: SparkSession, filled: LocalLog
) -> None:
    frame = filled.read(spark).load()
    assert frame.schema.simpleString() == (
        "struct<partition:int,transaction_id:bigint,header:int,data:binary,client_id:int,generation:int,"
        "sequence:int,checksum:int>"
    )
    assert rows(frame) == [row for p in range(4) for row in expected(filled.transactions(p))]


def test_compressed_blocks_are_the_same_rows(spark: SparkSession, filled: LocalLog) -> None:
    """Asked for by the client's key; the servers count what they saved."""

    def counted() -> list[float]:
        """Bytes before and after."""
        pages = [
            filled.run(get(filled.cluster.http_endpoint(role).port, "/metrics"))[1].decode()
            for role in filled.cluster.server_roles
        ]
        names = [f"waltz_server_feed_bytes_{side}_compression_total" for side in ("before", "after")]
        lines = [line for page in pages for line in page.splitlines()]
        return [sum(float(line.split()[-1]) for line in lines if line.startswith(name)) for name in names]

    plain = rows(filled.read(spark).load())
    assert counted() == [0, 0]
    assert rows(filled.read(spark, **{"client.feedCompression": "zstd"}).load()) == plain
    deadline = time.monotonic() + 20
    while True:
        before, after = counted()
        if 0 < 2 * after < before:
            break
        assert time.monotonic() < deadline, (before, after)
        time.sleep(0.1)  # a page of metrics is made once a second at most


@pytest.mark.skipif(not spark_is_at_least((4, 1)), reason="Spark 4.0 plans a read anew for every action")
def test_a_data_frame_is_a_fixed_piece_of_the_log(spark: SparkSession, filled: LocalLog) -> None:
    frame = filled.read(spark, partitions="2", includeData=False).load()
    before = frame.count()
    filled.append(2, [b'{"delay": 1}'])
    assert frame.count() == before
    assert filled.read(spark, partitions="2", includeData=False).load().count() == before + 1


@pytest.mark.parametrize("include_data", [True, False])
def test_ranges_are_exact_and_cut_into_tasks(
    include_data: bool, spark: SparkSession, filled: LocalLog, first: dict[int, int]
) -> None:
    places = {
        "startingTransactions": json.dumps({"0": first[0] + 100, "1": -2, "2": first[2] + 3}),
        "endingTransactions": json.dumps({"0": first[0] + 1_203, "1": 650, "2": first[2] + 4}),
    }
    frame = filled.read(spark, partitions="0-2", **places, minPartitions=7, includeData=include_data).load()
    assert ids(frame) == {
        0: list(range(first[0] + 100, first[0] + 1_203)),
        1: list(range(650)),
        2: [first[2] + 3],
    }
    assert frame.rdd.getNumPartitions() == 7
    small = filled.read(spark, partitions="0-2", **places, maxTransactionsPerPartition=300).load()
    assert small.rdd.getNumPartitions() == 4 + 3 + 1
    if not include_data:
        assert frame.filter("data is not null or checksum is not null").count() == 0
        assert frame.filter("header is null or client_id is null").count() == 0


def test_a_plan_without_ranges_has_no_rows(spark: SparkSession, filled: LocalLog) -> None:
    same = json.dumps({"0": 100})
    frame = filled.read(spark, partitions="0", startingTransactions=same, endingTransactions=same).load()
    assert frame.collect() == []


def test_payloads_as_text_and_as_json(spark: SparkSession, filled: LocalLog, first: dict[int, int]) -> None:
    places = {
        "startingTransactions": json.dumps({"1": first[1]}),
        "endingTransactions": json.dumps({"1": first[1] + 700}),
    }
    frame = filled.read(spark, partitions="1", deserializer="utf8", **places).load()
    parsed = frame.select(from_json(col("data"), "carrier string, delay int").alias("flight"))
    total = parsed.selectExpr("sum(flight.delay)", "count(distinct flight.carrier)").first()
    assert total is not None
    assert tuple(total) == (sum(range(700)), 7)
    place = filled.append(3, [b"fine", b"\xff\xfe"])
    broken = filled.read(
        spark, partitions="3", deserializer="utf8", startingTransactions=json.dumps({"3": place[0]})
    )
    assert f"transaction {place[1]} of partition 3 is not UTF-8 text (byte 0)" in reason(
        lambda: broken.load().collect()
    )


def test_a_place_behind_the_end_is_data_loss(spark: SparkSession, filled: LocalLog) -> None:
    end = filled.end(2)
    options = {"partitions": "2", "endingTransactions": json.dumps({"2": end + 10}), "readTimeoutMs": "5000"}
    found = reason(lambda: filled.read(spark, **options).load().collect())
    assert f"partition 2 ends before transaction {end}, {end + 10} was asked for" in found
    assert filled.read(spark, **options, failOnDataLoss=False).load().count() == end


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"startingTransaction": "earliest"}, "unknown option startingtransaction; did you mean startingTransactions?"),
        ({"partitions": "0,9"}, "option partitions: there is no partition 9, the cluster has 0 to 3"),
        ({"startingTransactions": '{"0": 1}'}, "option startingTransactions: partition 1 is not named, and it is read"),
        ({"partitions": "0", "startingTransactions": '{"0": 9}', "endingTransactions": '{"0": 5}'}, "startingTransactions is 9, after"),
        ({"cluster.root": "/nowhere"}, "there is no cluster at /nowhere"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_of_the_driver(
    options: dict[str, str], line: str, spark: SparkSession, filled: LocalLog
) -> None:
    reader = spark.read.format("waltz").options(**{**filled.keys, **options})
    assert line in reason(lambda: reader.load().collect())


def test_other_columns_are_refused(spark: SparkSession, filled: LocalLog) -> None:
    assert "the columns of a log are fixed" in reason(
        lambda: filled.read(spark).schema("partition int, when timestamp").load().collect()
    )


def test_a_mistake_is_answered_by_load_in_one_line(spark: SparkSession, filled: LocalLog) -> None:
    """The class of Spark's error, its own words, ours: no stack trace of a worker."""
    cases: list[tuple[DataFrameReader | DataStreamReader, str]] = [
        (spark.read.format("waltz"), "the key zookeeper.connectString is required"),
        (spark.readStream.format("waltz"), "the key zookeeper.connectString is required"),
        (
            filled.read(spark, subscribe="a"),
            "option subscribe is one of Spark's Kafka source: use partitions",
        ),
        (filled.read_stream(spark, maxByts="1"), "unknown option maxbyts"),
    ]
    for reader, line in cases:
        with pytest.raises(AnalysisException) as caught:
            reader.load()
        (first, _) = str(caught.value).splitlines()
        assert first.startswith("[PYTHON_DATA_SOURCE_ERROR] ")
        assert f"waltz_spark.errors.OptionError: waltz: {line}" in first.replace("options: ", "")
        assert (waltz_spark.reason(caught.value) or "").startswith("waltz: ")


def test_an_error_of_a_task_or_of_planning_has_no_stack_trace(spark: SparkSession, filled: LocalLog) -> None:
    place = filled.append(3, [b"\xff\xfe"])[0]
    start = json.dumps({"3": place})
    options = {"partitions": "3", "startingTransactions": start, "deserializer": "utf8"}
    for action in (
        lambda: filled.read(spark, **options).load().collect(),
        lambda: filled.read(spark, partitions="9").load().collect(),
        lambda: spark.range(1).write.format("waltz").options(**filled.keys).mode("append").save(),
    ):
        with pytest.raises(PySparkException) as caught:
            action()
        assert "waltz: " in str(caught.value)
        assert "Traceback" not in str(caught.value)
        assert "File " not in str(caught.value)


def test_headers_are_chosen_in_the_reader(
    spark: SparkSession, filled: LocalLog, first: dict[int, int]
) -> None:
    options = {"partitions": "1", "startingTransactions": json.dumps({"1": first[1]})}
    for include_data in (True, False):
        frame = filled.read(spark, **options, headers="1,3,99", includeData=include_data).load()
        assert ids(frame) == {1: [first[1] + i for i in range(700) if i % 5 in (1, 3)]}
    assert filled.read(spark, **options, headers="99").load().collect() == []


def test_a_data_frame_serves_many_queries(
    spark: SparkSession, filled: LocalLog, first: dict[int, int]
) -> None:
    """Also where Spark offers filters to Python sources: it keeps one plan of a reader that takes them over,
    for all queries on its DataFrame."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = filled.read(spark, includeData=False).load()
        one, other = frame.where("partition = 0"), frame.where("partition = 1")
        both = one.union(other).groupBy("partition").count().collect()
        assert {row[0]: row[1] for row in both} == {p: filled.end(p) for p in (0, 1)}
        assert one.count() == filled.end(0)
        assert frame.count() == sum(filled.end(p) for p in range(4))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
