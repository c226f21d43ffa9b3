"""`python -m flights` (make demo): real flights through a local cluster that loses two processes."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from rich.console import Console

from flights.report import as_facts, print_report
from flights.run import DemoSettings, run_demo
from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import leave, show
from waltz_tools.cli.common import print_json, run


def main() -> int:
    """The command line; the exit code: 0 for PASS, 1 for FAIL."""
    given = _arguments()
    console = Console(stderr=given.output == "json")
    try:
        with tempfile.TemporaryDirectory(prefix="waltz-demo-", ignore_cleanup_errors=True) as folder:
            directory = given.data or Path(folder)
            settings = DemoSettings(
                directory, rows=given.rows, writers=given.writers, in_flight=given.in_flight, tls=given.tls
            )
            result = run(run_demo(settings, console))
        if given.output == "json":
            print_json(as_facts(result))
        else:
            print_report(result, console)
    except Exception as error:
        return show(error)
    return ExitCode.OK if result.passed else ExitCode.FAILED


def _arguments() -> argparse.Namespace:
    flags = argparse.ArgumentParser(
        prog="python -m flights",
        description="Load the flights of a year into a local cluster, kill a storage node and a server on the way, "
        "and check every row.",
    )
    rows = os.environ.get("ROWS") or None
    flags.add_argument(
        "--rows", type=positive, default=rows, help="only the first rows; all 336,776 without it"
    )
    flags.add_argument(
        "--data",
        type=Path,
        help="keep the cluster in this new directory; without it, a temporary one is used",
    )
    flags.add_argument(
        "--writers", type=int, choices=range(1, 17), default=2, metavar="1..16", help="writer processes"
    )
    flags.add_argument("--in-flight", type=positive, default=192, help="appends on their way per writer")
    flags.add_argument("--tls", action=argparse.BooleanOptionalAction, default=True)
    flags.add_argument("--output", choices=["table", "json"], default="table")
    return flags.parse_args()


def positive(text: str) -> int:
    """A whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not greater than or equal to 1")
    return number


if __name__ == "__main__":
    leave(main)
