"""The command line of a program: how it was started, what is wrong with its arguments, and a service that
reads its file, sets up its log and serves."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from waltz_runtime import __version__, standard_streams
from waltz_runtime.exit_code import ExitCode
from waltz_runtime.logs import configure_logging
from waltz_runtime.process import run_service


def invocation(name: str, module: str) -> str:
    """How this program was started, as a shell takes it: hints and usage lines work as they are printed.
    `name` where it is on PATH, or where the program runs inside another one."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py" and started.parent.name == module:
        return f"{shlex.quote(sys.executable)} -m {module}"
    found = shutil.which(name)
    if started.name != name or (found is not None and started.exists() and os.path.samefile(found, started)):
        return name
    return shlex.quote(sys.argv[0])


def version_line(program: str) -> str:
    """What `--version` of every program prints."""
    return f"{program} {__version__}"


class CommandParser(argparse.ArgumentParser):
    """Says in one line what is wrong with a command line."""

    def add_version(self, program: str) -> None:
        """The option `--version`."""
        self.add_argument(
            "--version", action="version", version=version_line(program), help="print the version and exit"
        )

    def error(self, message: str) -> NoReturn:
        usage = self.usage or f"{self.prog} --help"
        self.exit(ExitCode.USAGE, f"Error: {message} (usage: {usage})\n")


class LogSettings(Protocol):
    """What settings say of the log."""

    @property
    def log_level(self) -> str: ...

    @property
    def log_json(self) -> bool: ...


S = TypeVar("S", bound=LogSettings)
S_co = TypeVar("S_co", bound=LogSettings, covariant=True)


class Check(Protocol[S_co]):
    """Makes settings of flat keys; one line in an error with `user_error` when one is wrong."""

    def __call__(self, flat: Mapping[str, object], *, source: str) -> S_co: ...


def run_role(
    role: str,
    arguments: Sequence[str] | None,
    read: Callable[[str], Mapping[str, object]],
    check: Check[S],
    serve: Callable[[S, asyncio.Event], Awaitable[None]],
) -> int:
    """`waltz-<role> CONFIG.yaml`; the exit code. `read` gives the flat keys of the file, `check` its
    settings. The log is JSON as soon as `<role>.log.json` has been read: a key that is wrong is reported in
    it."""
    standard_streams.complete()
    program = invocation(f"waltz-{role}", f"waltz_{role}")
    parser = CommandParser(
        prog=program, usage=f"{program} CONFIG.yaml", description=f"Run a Waltz {role} process."
    )
    parser.add_version(f"waltz-{role}")
    parser.add_argument("config", metavar="CONFIG.yaml", help="configuration file (YAML)")
    path = parser.parse_args(arguments).config

    async def main(stop: asyncio.Event) -> None:
        keys = read(path)
        configure_logging(json=str(keys.get(f"{role}.log.json")).lower() in ("true", "yes", "on", "1"))
        settings = check(keys, source=path)
        configure_logging(settings.log_level, settings.log_json)
        await serve(settings, stop)

    configure_logging()
    return run_service(main)
