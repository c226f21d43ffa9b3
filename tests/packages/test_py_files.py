"""The archive for Spark's `--py-files`, in environments that have only what cannot be in it."""

import subprocess
from pathlib import Path

import pytest

from tests.packages.environments import SECONDS, Environment, interpreters
from waltz_tools.local.java import find_java

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

_PROGRAM = """
from pyspark.sql import SparkSession

from waltz_spark import WaltzDataSource

build = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = build.config("spark.driver.memory", "512m").getOrCreate()
spark.dataSource.register(WaltzDataSource)
try:
    spark.read.format("waltz").load()
except Exception as error:
    print("answer:", error)
spark.stop()
"""
"""Spark that has the source asks for the address of the log."""


@pytest.fixture(scope="module", params=interpreters())
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A Python with Spark as a platform has it."""
    made = Environment.make(tmp_path_factory.mktemp("platform") / "env", request.param)
    made.link(["pyspark", "pyarrow", "numpy"])
    return made


@pytest.fixture
def archive(dist: Path) -> str:
    (found,) = dist.glob("*-py-files.zip")
    return str(found)


def test_it_imports_and_names_what_the_platform_lacks(platform: Environment, archive: str) -> None:
    names = ("import sys, waltz_spark, pyspark_waltz, waltz_spark.sink.writers, kazoo.client, yaml",)
    command = [platform.program("python"), "-c", *names]
    done = subprocess.run(
        command,
        env=platform.variables(PYTHONPATH=archive),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 1
    assert "waltz_spark needs pydantic, and " in done.stderr.splitlines()[-1]
    platform.link(["pydantic"])
    printed = platform.run(
        "python",
        "-c",
        f"{names[0]}; print(waltz_spark.__file__, waltz_spark.__version__)",
        PYTHONPATH=archive,
    )
    assert printed.startswith(f"{archive}/waltz_spark/__init__.py ")


def test_spark_submit_takes_it(platform: Environment, archive: str, tmp_path: Path) -> None:
    platform.link(["pydantic"])
    (tmp_path / "program.py").write_text(_PROGRAM)
    home = platform.site_packages / "pyspark"
    done = subprocess.run(
        [str(home / "bin/spark-submit"), "--py-files", archive, "program.py"],
        cwd=tmp_path,
        env=platform.variables(
            SPARK_HOME=str(home),
            PYSPARK_PYTHON=platform.program("python"),
            JAVA_HOME=str(Path(find_java()).resolve().parent.parent),
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert "waltz: options: the key zookeeper.connectString is required" in done.stdout, (
        done.stdout,
        done.stderr,
    )
