"""`waltz console`: the cluster in a browser."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from waltz_tools.cli.common import (
    ConfigOption,
    OutputFormat,
    OutputOption,
    print_json,
    print_line,
    run,
)
from waltz_tools.console.settings import (
    DEFAULT_PORT,
    ConsoleSettings,
    check_reach,
    check_token,
    is_loopback,
    new_token,
)
from waltz_tools.errors import UsageError


def console(
    config: ConfigOption,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = DEFAULT_PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="File with the token that browsers present; without it one is made and printed.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Name by which browsers call it; may be repeated."),
    ] = None,
    allow_data: Annotated[
        bool | None,
        typer.Option("--allow-data/--no-allow-data", help="Show payloads; on only on loopback if not given."),
    ] = None,
    allow_append: Annotated[
        bool, typer.Option("--allow-append", help="Let its users append to partitions.")
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="PEM file: serve HTTPS with this certificate.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", help="PEM file with its key.")] = None,
    allow_plaintext: Annotated[
        bool,
        typer.Option(
            "--allow-plaintext",
            help="Without TLS on an address that others reach: behind a proxy that has it.",
        ),
    ] = False,
    interval_seconds: Annotated[
        float, typer.Option("--interval", min=0.5, help="Seconds between two observations at least.")
    ] = 2.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the cluster in a browser: state, findings, records. Prints the link; Ctrl-C ends it.

    It changes nothing, asks the cluster only while a page is open, and listens on this machine alone unless
    --host names another address, which needs --token-file and TLS.
    """
    if (certificate is None) != (key is None):
        raise UsageError("--tls-certificate and --tls-key belong together")
    check_reach(
        host,
        has_token_file=token_file is not None,
        has_tls=certificate is not None,
        allow_plaintext=allow_plaintext,
    )
    settings = ConsoleSettings(
        token=new_token() if token_file is None else _token_of(token_file),
        host=host,
        port=port,
        allowed_hosts=tuple(allow_host or ()),
        allow_data=is_loopback(host) if allow_data is None else allow_data,
        allow_append=allow_append,
        interval_seconds=interval_seconds,
        config=str(config),
        certificate=None if certificate is None else str(certificate),
        key=None if key is None else str(key),
    )
    run(_serve(config, settings, token_file is None, output))


def _token_of(path: Path) -> str:
    try:
        text = path.read_text()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token file cannot be read: {error}") from None
    if mode & 0o077 and path.stat().st_uid == os.getuid():
        raise UsageError(f"others may read {path}: chmod 600 {path}")
    return check_token(text, str(path))


async def _serve(config: Path, settings: ConsoleSettings, with_token: bool, output: OutputFormat) -> None:
    from waltz_tools.console.run import link, serving  # aiohttp takes a while, and other commands need it not

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(config, settings) as bound:
        address = link(bound, with_token=with_token)
        if output is OutputFormat.JSON:
            print_json({"link": address, "port": bound.port})
        else:
            print_line(f"console: {address}")
            print_line(_described(bound))
        await stop.wait()


def _described(settings: ConsoleSettings) -> str:
    data = "shows payloads" if settings.allow_data else "shows no payloads"
    append = "appends are allowed" if settings.allow_append else "changes nothing"
    return f"it {data}, {append}; Ctrl-C ends it"
