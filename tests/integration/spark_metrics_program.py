"""A Spark application with a streaming aggregation, that prints the address of its pages and runs until its
standard input ends.

`python spark_metrics_program.py SETTINGS`: settings of Spark as JSON.
"""

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    )
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    rows = session.readStream.format("rate").option("rowsPerSecond", 20).load()
    counted = rows.groupBy((rows.value % 4).alias("account")).count()
    query = counted.writeStream.queryName("ledger-balances").outputMode("update").format("noop").start()
    print(session.sparkContext.uiWebUrl, flush=True)
    sys.stdin.read()
    query.stop()
    session.stop()


if __name__ == "__main__":
    main()
