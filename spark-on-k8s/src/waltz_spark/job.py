"""What Spark jobs on a log have in common: their command line, and options of the log that come from files.

In Kubernetes the address of the log is in a ConfigMap and passwords are in a Secret, both mounted as files;
nothing of either is on a command line. `jobs/` has programs that use it.

One cluster is one log, which many programs write to. A job reads what is its own by the option `headers`, and
`sound` leaves out payloads that it cannot use, counted and reported: nothing that somebody else appends stops
a job.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit, when
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from waltz_cluster.config.files import load_file
from waltz_cluster.errors import ConfigError
from waltz_spark.errors import OptionError, WaltzSparkError, reason

OPTIONS_FILE = "WALTZ_OPTIONS_FILE"
"""Environment variable with the default of `--options-file`."""
LEFT_OUT = "waltz-left-out"
"""The observed metric of a query that counts what `sound` leaves out."""
_REPORT_SECONDS = 2

log = logging.getLogger("waltz_spark")


def parser(description: str) -> argparse.ArgumentParser:
    """A parser that knows how a job finds the log."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument(
        "--options-file",
        metavar="PATH",
        default=os.environ.get(OPTIONS_FILE),
        help=f"YAML file of options of the data source (client.yaml will do); default: ${OPTIONS_FILE}",
    )
    made.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one option of the data source, over the file's; may be repeated",
    )
    made.add_argument(
        "--secret",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="one option whose value is the content of a file (a password); may be repeated",
    )
    return made


def stream_flags(flags: argparse.ArgumentParser, when: str = "") -> None:
    """Add the options of every stream: when it ends, and its pace; `run_query` takes both. `when`
    precedes the help texts."""
    flags.add_argument(
        "--until-end",
        action="store_true",
        help=f"{when}end when everything that is committed now is processed",
    )
    flags.add_argument("--trigger-seconds", type=float, default=1.0, help=f"{when}time between two batches")


def run_query(writer: DataStreamWriter, *, until_end: bool, seconds: float) -> None:
    """Run a query: up to what is committed when it starts, or without end, with `seconds` between two
    batches."""
    triggered = (
        writer.trigger(availableNow=True)
        if until_end
        else writer.trigger(processingTime=f"{seconds:g} seconds")
    )
    query = triggered.start()
    ended, reported = False, -1
    while not ended:
        ended = bool(query.awaitTermination(_REPORT_SECONDS))
        reported = _report_batches(query, reported)


def _report_batches(query: StreamingQuery, reported: int) -> int:
    """Report what the batches after `reported` left out; the newest of them."""
    for progress in query.recentProgress:
        observed = progress.observedMetrics.get(LEFT_OUT)
        if observed is not None and progress.batchId > reported:
            reported = progress.batchId
            report_left_out(f"query {query.name}, batch {reported}", observed["payloads"])
    return reported


def sound(frame: DataFrame, condition: Column, observation: Observation | str = LEFT_OUT) -> DataFrame:
    """The rows for which `condition` holds. The others (and those for which it is null) are counted:
    `run_query` reports them of a stream; of a batch, give an `Observation` and report its `payloads`."""
    others = count(when(condition, lit(None)).otherwise(lit(1)))
    return frame.observe(observation, others.alias("payloads")).where(condition)


def report_left_out(what: str, payloads: int) -> None:
    """A warning when there were any."""
    if payloads:
        log.warning(
            "waltz: %s: %d payloads were left out: they are malformed, or of another program", what, payloads
        )


def log_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Options of the data source out of the command line; OptionError, one line."""
    found: dict[str, str] = {}
    if arguments.options_file:
        try:
            flat = load_file(arguments.options_file)
        except ConfigError as error:
            raise OptionError(str(error)) from None
        # One file serves programs of several kinds; keys of the command line tools are theirs.
        found.update(
            (key, _text(value)) for key, value in flat.items() if not key.startswith(("ssl.", "cli."))
        )
    for given in arguments.option:
        name, value = _pair("--option", given)
        found[name] = value
    for given in arguments.secret:
        name, path = _pair("--secret", given)
        try:
            found[name] = Path(path).read_text().strip()
        except OSError as error:
            raise OptionError(f"--secret {name}: {error}") from None
    if not {"servers", "zookeeper.connectString"} & found.keys():
        raise OptionError(
            "where is the log? Give --options-file, --option servers=... or --option zookeeper.connectString=... "
            f"(or set {OPTIONS_FILE})"
        )
    return found


def _pair(option: str, given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise OptionError(f"{option} {name}: it must be NAME=VALUE")
    return name, value


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def session(name: str) -> SparkSession:
    """The session of a job, with the data source."""
    from waltz_spark.source import WaltzDataSource

    spark = SparkSession.builder.appName(name).getOrCreate()
    try:
        spark.dataSource.register(WaltzDataSource)
    except AnalysisException as error:  # Spark 4.0, of a source that it has found
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark


def run(main: Callable[[Sequence[str] | None], None]) -> None:
    """Run a job's `main`; a mistake of its user, and what the source or the sink raised inside Spark, is one
    line and exit code 1."""
    try:
        main(None)
    except WaltzSparkError as error:
        if not error.user_error:
            raise
        sys.exit(f"Error: {error}")
    except Exception as error:
        line = reason(error)
        if line is None:
            raise
        sys.exit(f"Error: {line}")
