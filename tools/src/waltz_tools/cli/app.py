"""The Typer application: groups and their sub-commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from waltz_runtime.command import version_line
from waltz_tools.cli import (
    client,
    cluster,
    config,
    console,
    disk,
    explain,
    k8s,
    local,
    log,
    perf,
    reports,
    server,
    storage,
    tls,
    zk,
)
from waltz_tools.errors import UsageError


class Interrupted(BaseException):
    """Ctrl-C, by a name that typer does not make an exit code of: whoever called the command is interrupted
    too."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error


app = typer.Typer(
    cls=_Commands,
    name="waltz",
    help="Waltz: a replicated write-ahead log. Run it locally, inspect it, change it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line("waltz"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Of `waltz` itself; `help` of the application is its text."""


app.add_typer(local.app, name="local", help="A cluster of processes on this machine.")
app.command("append", help=log.append.__doc__)(log.append)
app.command("get", help=log.get.__doc__)(log.get)
app.command("tail", help=log.tail.__doc__)(log.tail)
app.command("top", help=cluster.top.__doc__)(cluster.top)
app.command("doctor", help=cluster.doctor.__doc__)(cluster.doctor)
app.command("locks", help=reports.locks.__doc__)(reports.locks)
app.command("console", help=console.console.__doc__)(console.console)
app.add_typer(explain.app, name="explain", help="Why something is as it is, and the next step.")
app.add_typer(zk.app, name="zk", help="The cluster's records in ZooKeeper.")
app.add_typer(storage.app, name="storage", help="Storage nodes, through their admin ports.")
app.add_typer(server.app, name="server", help="Servers.")
app.add_typer(cluster.app, name="cluster", help="The cluster as a whole.")
app.add_typer(disk.app, name="disk", help="The files of a storage node, read without touching them.")
app.add_typer(config.app, name="config", help="Configuration files of every role.")
app.add_typer(tls.app, name="tls", help="An authority and certificates, for machines without Kubernetes.")
app.add_typer(client.app, name="client", help="Clients: who is connected, and what clients see.")
app.add_typer(perf.app, name="perf", help="Load, and rough figures.")
app.add_typer(k8s.app, name="k8s", help="Clusters that the operator runs on Kubernetes.")


@app.command(hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def demo() -> None:
    """Only prints where the demo is: it was a sub-command, with options."""
    raise UsageError("the demo is an example of the repository: run `make demo` in a checkout of it")
