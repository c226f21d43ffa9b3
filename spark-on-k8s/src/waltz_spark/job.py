"""What Spark jobs on a log have in common: their command line, and options of the log that come from files.

In Kubernetes the address of the log is in a ConfigMap and passwords are in a Secret, both mounted as files;
nothing of either is on a command line. `jobs/` has programs that use it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from waltz_cluster.config.files import load_file
from waltz_cluster.errors import ConfigError
from waltz_spark.errors import OptionError, WaltzSparkError

OPTIONS_FILE = "WALTZ_OPTIONS_FILE"
"""Environment variable with the default of `--options-file`."""


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
    triggered.start().awaitTermination()


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
    if "zookeeper.connectString" not in found:
        raise OptionError(
            f"where is the log? Give --options-file or --option zookeeper.connectString=... (or set {OPTIONS_FILE})"
        )
    return found


def _pair(option: str, given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise OptionError(f"{option} {name}: it must be NAME=VALUE")
    return name, value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def session(name: str) -> SparkSession:
    """The session of a job, with the data source."""
    from waltz_spark.source import WaltzDataSource

    spark = SparkSession.builder.appName(name).getOrCreate()
    spark.dataSource.register(WaltzDataSource)
    return spark


def run(main: Callable[[Sequence[str] | None], None]) -> None:
    """Run a job's `main`; a mistake of its user is one line and exit code 1."""
    try:
        main(None)
    except WaltzSparkError as error:
        if not error.user_error:
            raise
        sys.exit(f"Error: {error}")
