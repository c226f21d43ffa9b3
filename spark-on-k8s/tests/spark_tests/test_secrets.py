"""A password given as an option is nowhere in what Spark shows, writes or reports."""

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from spark_tests.conftest import SparkFiles
from spark_tests.local_log import LocalLog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PLANTED = "Planted-4711-Secret"
SECRETS = {
    "zookeeper.auth": f"somebody:{PLANTED}",
    "client.ssl.keyStore.password": PLANTED,
    "client.ssl.trustStore.password": PLANTED,
}


def plans(frame: DataFrame) -> list[str]:
    """A plan in every form Spark can show it."""
    execution = frame._jdf.queryExecution()
    java: Any = SparkContext._jvm
    modes = (
        java.org.apache.spark.sql.execution.ExplainMode.fromString(mode)
        for mode in ("simple", "extended", "codegen", "cost", "formatted")
    )
    return [execution.explainString(mode) for mode in modes] + [repr(frame), execution.toString()]


def test_a_planted_password_is_found_nowhere(
    spark: SparkSession, log: LocalLog, spark_files: SparkFiles, tmp_path: Path
) -> None:
    log.append(2, [b"one"])
    frame = log.read(spark, partitions="2", **SECRETS).load()
    assert frame.count() > 0
    shown = plans(frame.filter("header = 0"))

    stream = log.read_stream(spark, partitions="2", startingTransactions="earliest", **SECRETS).load()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    shown += [*plans(stream), str(query.recentProgress), str(query.lastProgress)]

    for broken in ({"minPartition": "2"}, {"cluster.root": "/nowhere"}):
        reader = spark.read.format("waltz").options(**{**log.keys, **SECRETS, **broken})
        with pytest.raises(Exception, match="waltz: ") as caught:
            reader.load().collect()
        shown.append(str(caught.value))

    assert not [text for text in shown if PLANTED in text]
    written = [
        path for folder in (spark_files.directory, tmp_path) for path in folder.rglob("*") if path.is_file()
    ]
    assert spark_files.driver_log in written
    assert any(path.is_relative_to(spark_files.events) for path in written)
    assert not [path for path in written if PLANTED.encode() in path.read_bytes()]
