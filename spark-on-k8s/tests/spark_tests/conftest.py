"""One Spark and one cluster for all tests of this folder; both end with them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_tests.local_log import LocalLog
from waltz_spark.options import spark_is_at_least
from waltz_spark.spark_home import prepare
from waltz_tools.local import LocalSettings
from waltz_tools.local.java import find_java

JOBS = Path(__file__).resolve().parents[2] / "jobs"
"""Programs, not a package: Spark's workers need the folder on their path to run the functions of one that was
imported."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile little, collect simply: for Java processes that live for seconds."""

_LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
"""


def pytest_configure(config: pytest.Config) -> None:
    """PySpark 4.0 leaves sockets of a result to the garbage collector."""
    if not spark_is_at_least((4, 1)):
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


class SparkFiles:
    """Where the session leaves what it says: event log, driver log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events = directory / "events"
        self.driver_log = directory / "driver.log"
        self.log4j = directory / "log4j2.properties"
        self.events.mkdir()
        self.log4j.write_text(_LOG4J.format(file=self.driver_log))


@pytest.fixture(scope="session")
def spark_files(tmp_path_factory: pytest.TempPathFactory) -> SparkFiles:
    return SparkFiles(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def spark(spark_files: SparkFiles) -> Iterator[SparkSession]:
    """Two cores; the data source is found by Spark itself."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(prepare(spark_files.directory / "home"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(JOBS), os.environ.get("PYTHONPATH")]))
    os.environ.setdefault("JAVA_HOME", str(Path(find_java()).resolve().parent.parent))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("waltz tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "768m")
        .config(
            "spark.driver.extraJavaOptions",
            f"{QUICK_JAVA} -Dlog4j2.configurationFile=file:{spark_files.log4j}",
        )
        .config("spark.sql.warehouse.dir", str(spark_files.directory / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", spark_files.events.as_uri())
        .getOrCreate()
    )
    yield session
    session.stop()
    _end_java()


def _end_java() -> None:
    """Spark leaves its Java process to the end of the program; tests leave nothing."""
    gateway: Any = SparkContext._gateway
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalLog]:
    """Four partitions, plain text. Tests append to it and must not expect to be the only ones."""
    settings = LocalSettings(
        tmp_path_factory.mktemp("log"), partitions=4, tls=False, session_timeout_ms=3_000
    )
    with LocalLog(settings) as running:
        yield running
        assert running.cluster.unexpected_ends() == []
