"""What is asked before something is destroyed, and how a command runs without doing it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from waltz_runtime.visible import visible
from waltz_tools.cli.common import Listing, print_tables
from waltz_tools.errors import ToolError, UsageError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, show what would be done, change nothing.")
]


def confirm(what: str, yes: bool, preview: Sequence[Listing] = ()) -> None:
    """Ask on a terminal, with tables of what would be done; elsewhere --yes has to be passed. Standard output
    is for the result, so all of it is on standard error. ToolError or UsageError of one line: nothing was
    changed."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{what}: pass --yes if that is meant (--dry-run shows what it would do)")
    print_tables(Console(stderr=True), preview)
    try:
        agreed = typer.confirm(visible(f"{what}. Continue?"), default=False, err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        sys.stderr.write("\n")
        agreed = False
    if not agreed:
        raise ToolError("nothing was changed")
