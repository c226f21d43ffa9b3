"""`waltz config`: configuration files, checked by what the processes themselves load them with."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from waltz_client.settings import ClientSettings
from waltz_cluster.acl import parse_acl
from waltz_cluster.config.files import load_file
from waltz_cluster.config.settings import Checked, CliSettings, ZooKeeperSettings, role_of, tls_keys
from waltz_cluster.errors import ConfigError
from waltz_protocol.aio import tls
from waltz_protocol.aio.tls import TlsSettings, client_context, server_context
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


class Step(NamedTuple):
    """Loads or makes one thing of what a process needs at its start, out of the values of these keys.
    `opens`: it opens what they name, which may be on another machine."""

    keys: tuple[str, ...]
    run: Callable[[], object]
    opens: bool = True


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
    """One line for each mistake, without the name of the file. What is made of a key with a mistake is not
    tried: it would be a guess what the key was meant to be."""
    try:
        checked, steps = _load(role, flat, source)
    except ConfigError as error:
        yield from (line.replace(f"{source} is", "it is", 1) for line in error.problems)
        return
    yield from (line.removeprefix(f"{source}: ") for line in checked.problems)
    for step in steps:
        if checked.wrong.isdisjoint(step.keys) and not (keys_only and step.opens):
            try:
                step.run()
            except (ConfigError, TlsSettingsError, ToolError) as error:
                yield str(error).removeprefix(f"{source}: ")


def _load(
    role: Role, flat: Mapping[str, object], source: str
) -> tuple[Checked[ZooKeeperSettings], list[Step]]:
    """The settings, made by their own class, and what the process does with the files that they name."""
    match role:
        case Role.SERVER:
            return _load_server(flat, source)
        case Role.STORAGE:
            return _load_storage(flat, source)
        case Role.CLIENT:
            of_client = ClientSettings.checked(flat, source=source)
            client = of_client.settings
            zookeeper = [] if client.servers else _zookeeper(client)
            return of_client, [*zookeeper, *_tls(client.tls_settings("client.ssl"))]
        case Role.TOOLS:
            of_tools = CliSettings.checked(flat, source=source)
            tools = of_tools.settings
            return of_tools, [*_zookeeper(tools), *_tls(tools.tls_settings("ssl"))]


def _zookeeper(settings: ZooKeeperSettings) -> list[Step]:
    keys = ("zookeeper.auth", "zookeeper.auth.file", "zookeeper.auth.scheme")
    tls = settings.zookeeper_tls()

    def permissions() -> None:
        has_credentials = bool(settings.zookeeper_auth or settings.zookeeper_auth_file)
        parse_acl(settings.zookeeper_acl, has_credentials=has_credentials)

    return [
        Step(keys, settings.credentials),
        Step((*keys, "zookeeper.acl"), permissions, opens=False),
        *([] if tls is None else _tls(tls)),
    ]


def _tls(settings: TlsSettings, *, listens: bool = False, also: tuple[str, ...] = ()) -> list[Step]:
    """Each store alone, so that a mistake in one does not hide that in the other. `also`: more keys on which
    it depends."""
    keys = (*tls_keys(settings.prefix), *also)
    make = server_context if listens else client_context
    key_store = replace(settings, trust_store=None, allow_unverified=True)
    trust_store = replace(
        settings, key_store=None, key_file=None, allow_unverified=listens or settings.allow_unverified
    )
    return [Step(keys, lambda: client_context(trust_store)), Step(keys, lambda: make(key_store))]


def _load_server(flat: Mapping[str, object], source: str) -> tuple[Checked[ZooKeeperSettings], list[Step]]:
    with _installed("waltz-server"):
        from waltz_server.settings import ServerSettings
    checked = ServerSettings.checked(flat, source=source)
    settings = checked.settings
    to_nodes = _tls(settings.storage_facing_tls(), also=tls_keys("storage.ssl"))
    return checked, [*_zookeeper(settings), *_tls(settings.client_facing_tls(), listens=True), *to_nodes]


def _load_storage(flat: Mapping[str, object], source: str) -> tuple[Checked[ZooKeeperSettings], list[Step]]:
    with _installed("waltz-storage"):
        from waltz_storage.settings import StorageSettings
    checked = StorageSettings.checked(flat, source=source)
    settings = checked.settings

    def directory() -> None:
        if not os.path.isdir(settings.directory):
            raise ToolError(
                f"storage.directory = {settings.directory!r}: there is no such directory; "
                "make it, and give it to the user that the node runs as"
            )

    return checked, [
        *_zookeeper(settings),
        Step(("storage.bind.host",), settings.host),
        Step(("storage.directory",), directory),
        *_tls(settings.tls_settings("storage.ssl"), listens=True),
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
