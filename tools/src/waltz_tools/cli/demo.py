"""`waltz demo`: real flights through a local cluster that loses two processes on the way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from waltz_tools.cli.common import OutputFormat, OutputOption, print_json, run
from waltz_tools.errors import ExitCode


def demo(
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=1, envvar="ROWS", help="Only the first rows; all 336,776 without it."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Keep the cluster in this new directory; a temporary one without it."),
    ] = None,
    writers: Annotated[int, typer.Option("--writers", min=1, max=16, help="Writer processes.")] = 2,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, help="Appends on their way per writer.")
    ] = 192,
    tls: Annotated[bool, typer.Option("--tls/--no-tls")] = True,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Load the flights of a year into a local cluster, kill a storage node and a server on the way, and check
    every row.

    Exit code 0 for PASS, 1 for FAIL.
    """
    # Imported here: the other sub-commands start faster without it.
    from waltz_tools.demo.report import as_facts, print_report
    from waltz_tools.demo.run import DemoSettings, run_demo

    console = Console(stderr=output is OutputFormat.JSON)
    with tempfile.TemporaryDirectory(prefix="waltz-demo-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder) if data is None else data
        settings = DemoSettings(directory, rows=rows, writers=writers, in_flight=in_flight, tls=tls)
        result = run(run_demo(settings, console))
    if output is OutputFormat.JSON:
        print_json(as_facts(result))
    else:
        print_report(result, console)
    if not result.passed:
        raise typer.Exit(ExitCode.FAILED)
