"""A Spark application: reads a log over mutual TLS with files that travel with the application, and prints
what it got as JSON.

`python spark_reader.py OPTIONS FILE...`: options of the source as JSON; the files are sent along to where
tasks run.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from waltz_spark.spark_home import prepare


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["SPARK_HOME"] = str(prepare(Path(home)))
        read(json.loads(sys.argv[1]), sys.argv[2:])


def read(options: dict[str, str], files: list[str]) -> None:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    try:
        for file in files:
            session.sparkContext.addFile(file)
        frame = session.read.format("waltz").options(**options).load()
        rows = frame.select("partition", "transaction_id", "data").collect()
        print(json.dumps(sorted([row[0], row[1], bytes(row[2]).decode()] for row in rows)))
    except Exception as error:
        print(json.dumps({"error": [line for line in str(error).splitlines() if "waltz: " in line][-1:]}))
    finally:
        session.stop()


if __name__ == "__main__":
    main()
