"""A password given as an option is nowhere in what Spark shows, writes or reports."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from spark_tests.conftest import SparkFiles
from spark_tests.local_log import LocalLog

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PLANTED = "Planted-4711-Secret"
SECRETS = {
    "zookeeper.auth": f"somebody:{PLANTED}",
    "client.ssl.keyStore.password": PLANTED,
    "client.ssl.trustStore.password": PLANTED,
}


def plans(execution: Any) -> list[str]:
    """A plan in every form Spark can show it."""
    java: Any = SparkContext._jvm
    modes = (
        java.org.apache.spark.sql.execution.ExplainMode.fromString(mode)
        for mode in ("simple", "extended", "codegen", "cost", "formatted")
    )
    return [execution.explainString(mode) for mode in modes] + [execution.toString()]


def of_frame(frame: DataFrame) -> list[str]:
    return [repr(frame), *plans(frame._jdf.queryExecution())]


def files_with(secret: str, spark_files: SparkFiles, directory: Path) -> list[Path]:
    """Files of the session and of a checkpoint with the secret in them; there are logs and events among those
    looked at."""
    written = [
        path for folder in (spark_files.directory, directory) for path in folder.rglob("*") if path.is_file()
    ]
    assert spark_files.driver_log in written
    assert any(path.is_relative_to(spark_files.events) for path in written)
    return [path for path in written if secret.encode() in path.read_bytes()]


def test_a_planted_password_is_found_nowhere(
    spark: SparkSession, log: LocalLog, spark_files: SparkFiles, tmp_path: Path
) -> None:
    log.append(2, [b"one"])
    frame = log.read(spark, partitions="2", **SECRETS).load()
    assert frame.count() > 0
    shown = of_frame(frame.filter("header = 0"))

    stream = log.read_stream(spark, partitions="2", startingTransactions="earliest", **SECRETS).load()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    shown += [*of_frame(stream), str(query.recentProgress), str(query.lastProgress)]

    for broken in ({"minPartition": "2"}, {"cluster.root": "/nowhere"}):
        reader = spark.read.format("waltz").options(**{**log.keys, **SECRETS, **broken})
        with pytest.raises(Exception, match="waltz: ") as caught:
            reader.load().collect()
        shown.append(str(caught.value))

    assert not [text for text in shown if PLANTED in text]
    assert files_with(PLANTED, spark_files, tmp_path) == []


def test_a_planted_password_of_a_write_is_found_nowhere(
    spark: SparkSession, log: LocalLog, spark_files: SparkFiles, tmp_path: Path
) -> None:
    place = log.append(2, [b"one"])
    options = {**log.keys, **SECRETS}
    frame = spark.createDataFrame([(b"row", 1)], "data binary, partition int")
    frame.write.format("waltz").options(**options).mode("append").save()
    with pytest.raises(Exception, match="waltz: ") as caught:
        frame.write.format("waltz").options(**options, delivery="twice").mode("append").save()
    shown = [str(caught.value)]

    stream = log.read_stream(
        spark, partitions="2", startingTransactions=json.dumps({"2": place[0]}), includeData=False
    ).load()
    query = (
        stream.selectExpr("cast(transaction_id as string) as data", "1 as partition")
        .writeStream.format("waltz")
        .options(**options)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    shown += [query._jsq.explainInternal(True), str(query.recentProgress)]
    assert not [text for text in shown if PLANTED in text]
    assert files_with(PLANTED, spark_files, tmp_path) == []
