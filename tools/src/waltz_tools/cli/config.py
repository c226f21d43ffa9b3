"""`waltz config`: configuration files, checked by what the processes themselves load them with."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from waltz_client.settings import ClientSettings
from waltz_cluster.config.files import load_file
from waltz_cluster.config.settings import CliSettings, ZooKeeperSettings, role_of
from waltz_cluster.errors import ConfigError
from waltz_protocol.aio import tls
from waltz_protocol.aio.tls import client_context, server_context
from waltz_protocol.errors import TlsSettingsError
from waltz_tools.cli.common import (
    Listing,
    OutputFormat,
    OutputOption,
    print_json,
    print_line,
    render_listings,
)
from waltz_tools.errors import DegradedError, ToolError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """One command today: without this it would have no name of its own."""


class Role(StrEnum):
    """Whose file it is."""

    SERVER = "server"
    STORAGE = "storage"
    CLIENT = "client"
    TOOLS = "tools"


_SHOWN = {
    Role.SERVER: "a server",
    Role.STORAGE: "a storage node",
    Role.CLIENT: "a client",
    Role.TOOLS: "the waltz command",
}
Step = Callable[[], object]
"""Loads or makes one thing of what a process needs at its start."""


@app.command("check")
def check(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Configuration file (YAML).", show_default=False)
    ],
    role: Annotated[
        Role | None,
        typer.Option("--role", help="Whose file it is; found by its keys without it.", show_default=False),
    ] = None,
    keys_only: Annotated[
        bool,
        typer.Option("--keys-only", help="Leave out the files that it names: it is of another machine."),
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check a configuration file as the process that takes it does at its start. Connects to nothing. Exit
    code 3 when that process would not start with it."""
    flat = load_file(path)
    roles = [role] if role is not None else _roles(flat)
    errors: list[str] = []
    with _warnings(str(path)) as warned:
        for each in roles:
            errors += (line for line in _problems(each, flat, str(path), keys_only) if line not in errors)
    warnings = list(dict.fromkeys(warned))
    whose = f"the file of {' and of '.join(_SHOWN[each] for each in roles)}"
    if role is None and role_of(flat) is None:
        whose = f"checked as {whose}, since no key shows the role (--role says it)"
    if output is OutputFormat.JSON:
        print_json({"file": path, "roles": roles, "errors": errors, "warnings": warnings})
    elif errors or warnings:
        listing = Listing("problems", f"{path} is {whose}", ["Level", "Problem"])
        for level, lines in (("error", errors), ("warning", warnings)):
            for line in lines:
                listing.add(level, line)
        render_listings(output, [listing])
    if errors:
        more = f", and {len(errors) - 1} more" if errors[1:] else ""
        raise DegradedError(f"{path}: {errors[0]}{more}")
    if output is OutputFormat.TABLE:
        print_line(f"{path} is {whose}: {len(flat)} keys without an error")


def _roles(flat: Mapping[str, object]) -> list[Role]:
    """Clients and the `waltz` command may share a file; it is theirs too if it has keys of all roles only."""
    whose = role_of(flat)
    found = next((role for role, shown in _SHOWN.items() if shown == whose), None)
    if found in (Role.SERVER, Role.STORAGE):
        return [found]
    of_client = any(key.startswith("client.") or key == "servers" for key in flat)
    of_tools = any(key.startswith("ssl.") for key in flat)
    return ([Role.CLIENT] if of_client else []) + ([Role.TOOLS] if of_tools or not of_client else [])


def _problems(role: Role, flat: Mapping[str, object], source: str, keys_only: bool) -> Iterator[str]:
    """One line for each mistake, without the name of the file."""
    try:
        steps = _load(role, flat, source)
    except ConfigError as error:
        yield from (
            line.removeprefix(f"{source}: ").replace(f"{source} is", "it is", 1) for line in error.problems
        )
        return
    if keys_only:
        return
    for step in steps:
        try:
            step()
        except (ConfigError, TlsSettingsError, ToolError) as error:
            yield str(error).removeprefix(f"{source}: ")


def _load(role: Role, flat: Mapping[str, object], source: str) -> list[Step]:
    """The settings, made by their own class; gives what the process does with the files that they name."""
    match role:
        case Role.SERVER:
            return _load_server(flat, source)
        case Role.STORAGE:
            return _load_storage(flat, source)
        case Role.CLIENT:
            client = ClientSettings.from_mapping(flat, source=source)
            zookeeper = [] if client.servers else _zookeeper(client)
            return [*zookeeper, lambda: client_context(client.tls_settings("client.ssl"))]
        case Role.TOOLS:
            tools = CliSettings.from_mapping(flat, source=source)
            return [*_zookeeper(tools), lambda: client_context(tools.tls_settings("ssl"))]


def _zookeeper(settings: ZooKeeperSettings) -> list[Step]:
    return [settings.credentials, settings.zookeeper_context]


def _load_server(flat: Mapping[str, object], source: str) -> list[Step]:
    with _installed("waltz-server"):
        from waltz_server.settings import ServerSettings
    settings = ServerSettings.from_mapping(flat, source=source)
    return [
        *_zookeeper(settings),
        lambda: server_context(settings.client_facing_tls()),
        lambda: client_context(settings.storage_facing_tls()),
    ]


def _load_storage(flat: Mapping[str, object], source: str) -> list[Step]:
    with _installed("waltz-storage"):
        from waltz_storage.settings import StorageSettings
    settings = StorageSettings.from_mapping(flat, source=source)

    def directory() -> None:
        if not os.path.isdir(settings.directory):
            raise ToolError(
                f"storage.directory = {settings.directory!r}: there is no such directory; "
                "make it, and give it to the user that the node runs as"
            )

    return [
        *_zookeeper(settings),
        settings.host,
        directory,
        lambda: server_context(settings.tls_settings("storage.ssl")),
    ]


@contextlib.contextmanager
def _installed(package: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ToolError(
            f"its file is checked where {package} is installed, and it is not here ({error})"
        ) from None


@contextlib.contextmanager
def _warnings(source: str) -> Iterator[list[str]]:
    """What settings and certificates warn about while they are loaded: as lines, not in the log."""
    lines: list[str] = []

    class Gather(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage().removeprefix(f"{source}: "))

    handler = Gather(logging.WARNING)
    loggers = [logging.getLogger(name) for name in (ZooKeeperSettings.__module__, tls.__name__)]
    propagated = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield lines
    finally:
        for logger, propagate in zip(loggers, propagated, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
