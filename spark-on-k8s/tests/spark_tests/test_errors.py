"""What people see of an error: one line, found in what Spark raises, without Spark's own words."""

import importlib
import os
import sys

import pytest

from waltz_spark.errors import OptionError, UnavailableError, in_one_line, reason
from waltz_spark.job import run

OF_SPARK = """\
[STREAM_FAILED] Query [id = 5] terminated with exception: Failed when Python streaming data source perform \
initialOffset: waltz_spark.errors.UnavailableError: waltz: partition 1: no answer
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Current State: ACTIVE"""


def test_the_line_is_found_in_what_spark_raises() -> None:
    assert reason(Exception(OF_SPARK)) == "waltz: partition 1: no answer"
    assert reason(OptionError("option x: no")) == "waltz: option x: no"
    assert reason(Exception("[TABLE_OR_VIEW_NOT_FOUND] The table or view waltz cannot be found")) is None


def test_a_stack_trace_is_left_out_of_our_errors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only in processes of Spark's own: here nothing is set."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    for worker, error, hidden in (
        (True, KeyError("a fault"), ""),
        (False, UnavailableError("no answer"), ""),
        (True, UnavailableError("no answer"), "1"),
    ):
        monkeypatch.setattr("waltz_spark.errors._is_worker", lambda worker=worker: worker)
        with pytest.raises(type(error)), in_one_line():
            raise error
        assert os.environ["SPARK_HIDE_TRACEBACK"] == hidden


def test_a_job_ends_with_the_line() -> None:
    def fails(error: Exception) -> None:
        def main(_: object) -> None:
            raise error

        run(main)

    with pytest.raises(SystemExit, match=r"^Error: waltz: partition 1: no answer$"):
        fails(RuntimeError(OF_SPARK))
    with pytest.raises(SystemExit, match=r"^Error: waltz: option x: no$"):
        fails(OptionError("option x: no"))
    with pytest.raises(KeyError):
        fails(KeyError("a fault of the job"))


@pytest.mark.parametrize("missing", ["pyspark", "pyspark.sql.datasource"])
def test_without_a_pyspark_that_has_data_sources_the_import_is_one_sentence(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither any, nor one older than 4.0."""
    monkeypatch.delitem(sys.modules, "waltz_spark")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        ModuleNotFoundError, match=r"needs PySpark 4\.0 or newer, .* waltz-spark with its extra pyspark"
    ):
        importlib.import_module("waltz_spark")
