"""`waltz local`: a cluster of real processes on this machine, in the foreground."""

from __future__ import annotations

import asyncio
import shlex
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from waltz_cluster.cluster_params import MAX_PARTITIONS
from waltz_tools.cli.common import OutputFormat, OutputOption, print_json, print_line, run
from waltz_tools.console.settings import ConsoleSettings, new_token
from waltz_tools.errors import LocalClusterError, UsageError
from waltz_tools.invocation import waltz_command
from waltz_tools.local import LocalCluster, LocalSettings

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_WATCH_SECONDS = 0.5
_MAX_RESTARTS = 5
_MAX_PROCESSES = 1000
_FORGET_SECONDS = 60.0
"""A role that ran for so long is sound again: its restarts before are forgotten."""


@app.callback()
def group() -> None:
    """A cluster of processes on this machine."""


@app.command()
def up(
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIRECTORY", help="Directory of the cluster; a temporary one without it."
        ),
    ] = None,
    storage_nodes: Annotated[
        int | None, typer.Option("--storage-nodes", min=1, max=_MAX_PROCESSES, help="3 for a new cluster.")
    ] = None,
    servers: Annotated[
        int | None, typer.Option("--servers", min=1, max=_MAX_PROCESSES, help="2 for a new cluster.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, max=MAX_PARTITIONS, help="8 for a new cluster.")
    ] = None,
    tls: Annotated[bool | None, typer.Option("--tls/--no-tls", help="TLS on for a new cluster.")] = None,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Show it in a browser, too; prints the link.")
    ] = True,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run a cluster until Ctrl-C; prints the path of a configuration file for clients.

    The same directory comes up again with all its data. A process that dies is restarted.
    """
    if data is None:
        with tempfile.TemporaryDirectory(prefix="waltz-local-") as folder:
            run(_up(LocalSettings(Path(folder), storage_nodes, servers, partitions, tls), console, output))
    elif not data:
        raise UsageError(
            "the directory in --data is empty: name one, or leave --data out for a temporary one"
        )
    else:
        run(_up(LocalSettings(Path(data), storage_nodes, servers, partitions, tls), console, output))


async def _up(settings: LocalSettings, console: bool, output: OutputFormat) -> None:
    report = print_line if output is OutputFormat.TABLE else _silent
    cluster = LocalCluster(settings, report=report)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()
    started = interrupted = False

    def on_signal(number: signal.Signals) -> None:
        # While starting, give up; while running, stop in order. Further signals change nothing: stopping is
        # bounded.
        nonlocal interrupted
        if not stop.is_set():
            interrupted = number is signal.SIGINT
            stop.set()
            if not started and starting is not None:
                starting.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    try:
        try:
            await cluster.start()
        except asyncio.CancelledError:
            if interrupted:
                raise KeyboardInterrupt from None
            if stop.is_set():
                return
            raise
        started = True
        async with _console(cluster.client_config if console else None) as link:
            _announce(cluster, output, link)
            await _watch(cluster, stop, report)
    finally:
        await cluster.stop()
    report("stopped")


@asynccontextmanager
async def _console(config: Path | None) -> AsyncIterator[str | None]:
    """A console for the cluster of that file, on a free port of this machine; its link."""
    if config is None:
        yield None
        return
    from waltz_tools.console.run import link, serving  # aiohttp takes a while: the cluster is up by now

    settings = ConsoleSettings(token=new_token(), port=0, config=str(config))
    async with serving(config, settings) as bound:
        yield link(bound, with_token=True)


async def _watch(cluster: LocalCluster, stop: asyncio.Event, report: object) -> None:
    """Until `stop`: start again what dies, a bounded number of times per role without a sound run between."""
    restarts: Counter[str] = Counter()
    started: dict[str, float] = {}
    clock = asyncio.get_running_loop().time
    while not stop.is_set():
        for role, _ in cluster.unexpected_ends():
            if clock() - started.get(role, clock()) >= _FORGET_SECONDS:
                del restarts[role]
            if restarts[role] >= _MAX_RESTARTS:
                raise LocalClusterError(f"{cluster.why_ended(role)}; it was restarted {_MAX_RESTARTS} times")
            restarts[role] += 1
            if callable(report):
                report(f"{cluster.why_ended(role)}; starting it again")
            await cluster.start_role(role, wait=False)
            started[role] = clock()
        try:
            async with asyncio.timeout(_WATCH_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue


def _announce(cluster: LocalCluster, output: OutputFormat, console: str | None) -> None:
    http = {role: cluster.http_endpoint(role) for role in (*cluster.server_roles, *cluster.storage_roles)}
    if output is OutputFormat.JSON:
        print_json(
            {
                "config": str(cluster.client_config),
                "application_config": str(cluster.application_config),
                "directory": str(cluster.directory.path),
                "zookeeper": str(cluster.zookeeper_endpoint),
                "storage_nodes": [str(cluster.storage_endpoint(role)) for role in cluster.storage_roles],
                "servers": [str(cluster.server_endpoint(role)) for role in cluster.server_roles],
                "http": http,
                "console": console,
                "pids": {role: cluster.pid(role) for role in cluster.roles if cluster.is_running(role)},
            }
        )
        return
    print_line(
        f"up: {cluster.state.partitions} partitions, TLS {'on' if cluster.state.tls else 'off'}; logs in {cluster.directory.logs_dir}"
    )
    print_line(f"configuration file for clients: {cluster.client_config}")
    print_line(f"for applications, without ZooKeeper: {cluster.application_config}")
    for role, endpoint in http.items():
        print_line(f"HTTP of {role}: http://{endpoint}/health and /metrics")
    if console is not None:
        print_line(f"console: {console}")
    waltz, config = waltz_command(), shlex.quote(str(cluster.client_config))
    print_line(f"try: echo hello | {waltz} append -c {config} -p 0; {waltz} tail -c {config}")
    print_line("Ctrl-C stops it")


def _silent(line: str) -> None:
    """JSON output stays one object."""
