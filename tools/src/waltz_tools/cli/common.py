"""What all sub-commands share: options, running asynchronous code, rendering, partition ranges, and how
errors are shown."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from waltz_admin.tree import read_maps
from waltz_cluster import zk_client
from waltz_cluster.config.settings import CliSettings
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.closing import wait_gone
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint, can_be_host
from waltz_runtime.counting import new_event_loop
from waltz_runtime.visible import visible
from waltz_tools.errors import OutputError, ReaderGoneError, ToolError, UsageError

T = TypeVar("T")

_WIDTH_WITHOUT_TERMINAL = 200
_MAX_DIGITS = 10
_MAX_GROUP = 2**31 - 1
_MAX_SHOWN = 60


class OutputFormat(StrEnum):
    """How results are printed on standard output."""

    TABLE = "table"
    JSON = "json"


ConfigOption = Annotated[
    Path,
    typer.Option(
        "--cli-config-path",
        "-c",
        "--config",
        envvar="WALTZ_CONFIG",
        help="Configuration file (the one that `waltz local up` prints will do).",
        show_default=False,
    ),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", help="How to print the result.")]
PartitionsOption = Annotated[
    str,
    typer.Option(
        "--partition", "-p", help="Partition ids and ranges, such as 0-6,7,10-16.", show_default=False
    ),
]
LostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--lost",
        help="host:port of a storage node whose disk is lost for good; may be repeated.",
        show_default=False,
    ),
]
ServerOption = Annotated[
    str, typer.Option("--server", "-s", help="host:port of the server.", show_default=False)
]
LoggerOption = Annotated[
    bool,
    typer.Option(
        "--logger-as-output", "-l", hidden=True, help="Accepted for compatibility; output is the same."
    ),
]


@dataclass(frozen=True, slots=True)
class Context:
    """What an administration command works on."""

    store: ZooKeeperStore
    root: str
    tls: TlsSettings
    settings: CliSettings


@asynccontextmanager
async def open_context(config: Path) -> AsyncIterator[Context]:
    """Read the file and connect to ZooKeeper; ConfigError or ConnectError, one line each."""
    settings = CliSettings.from_file(config)
    store = await zk_client.connect(settings)
    try:
        yield Context(store, settings.cluster_root, settings.tls_settings("ssl"), settings)
    finally:
        await store.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a sub-command's coroutine to its end, and its connections to theirs."""

    async def body() -> T:
        try:
            return await work
        finally:
            await wait_gone()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(body())


def run_until(work: Coroutine[Any, Any, T], timeout_seconds: float, what: str) -> T:
    """Run a sub-command's coroutine; a ToolError of one line when it is not done in time."""

    async def body() -> T:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await work
        except TimeoutError:
            raise ToolError(f"{what} was not done after {timeout_seconds:g} s") from None

    return run(body())


def run_admin(config: Path, work: Callable[[Context], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine with an open `Context`."""

    async def body() -> T:
        async with open_context(config) as context:
            return await work(context)

    return run(body())


def parse_endpoint(text: str) -> Endpoint:
    """host:port, or a usage error of one line."""
    try:
        return Endpoint.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def parse_new_endpoint(text: str) -> Endpoint:
    """host:port of a process that is to become known; a usage error of one line also for what can be no host.

    What is known already may have any name: it must be possible to remove it.
    """
    endpoint = parse_endpoint(text)
    if not can_be_host(endpoint.host):
        raise UsageError(f"{shown(endpoint.host)} in {shown(text)} is no host name")
    return endpoint


async def known_node(c: Context, text: str) -> str:
    """The storage node that is meant: exactly this text where ZooKeeper has it, whatever it is, so that it
    can be removed; else host:port, or a usage error of one line."""
    maps = await read_maps(c.store, ClusterPaths(c.root))
    return text if text in maps.names else str(parse_endpoint(text))


def parse_group(option: str, number: int | None) -> int:
    """The number of a group, or a usage error of one line that names the option."""
    if number is None or not 0 <= number <= _MAX_GROUP:
        raise UsageError(f"the group in {option} is a number from 0 to {_MAX_GROUP}")
    return number


def parse_partitions(text: str) -> list[int]:
    """`0-6,7,10-16` as a sorted list without duplicates, or a usage error of one line."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = parse_number(first)
        high = parse_number(last) if dash else low
        if low is None or high is None:
            raise UsageError(
                f"{shown(text)} is not a list of partitions: write ids and ranges such as 0-6,7,10-16"
            )
        if high < low or high - low > 1_000_000:
            raise UsageError(f"the range {part.strip()} in {shown(text)} is not valid")
        found.update(range(low, high + 1))
    return sorted(found)


def parse_number(text: str) -> int | None:
    """A number as an id or a port is written, or None: digits of ASCII alone (`int` and `isdigit` take other
    ones, and disagree), and no more than a 32-bit number has."""
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        return None
    return int(text)


def shown(text: str) -> str:
    """A wrong argument as an error quotes it: its beginning, if it is long."""
    return repr(text) if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]!r}…"


def parse_truth(option: str, text: str) -> bool:
    """`true` or `false`, or a usage error of one line that names the option."""
    if text.lower() not in ("true", "false"):
        raise UsageError(f"{option} is true or false, not {text!r}")
    return text.lower() == "true"


def parse_single_partition(text: str) -> int:
    """One partition id, or a usage error of one line."""
    partitions = parse_partitions(text)
    if len(partitions) != 1:
        raise UsageError(f"give one partition id, not {shown(text)}")
    return partitions[0]


@dataclass(slots=True)
class Listing:
    """A table with a title; `render_listings` prints several of them, or one JSON object keyed by their
    names."""

    name: str
    title: str
    columns: Sequence[str]
    rows: list[Sequence[object]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append(cells)

    def objects(self) -> list[dict[str, object]]:
        keys = [column.lower().replace(" ", "_") for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]


def render_listings(output: OutputFormat, listings: Sequence[Listing]) -> None:
    """Print on standard output."""
    if output is OutputFormat.JSON:
        print_json({listing.name: listing.objects() for listing in listings})
        return
    print_tables(out_console(), listings)


def print_tables(console: Console, listings: Sequence[Listing]) -> None:
    """Each as a table, an empty one as its title."""
    for listing in listings:
        if not listing.rows:
            console.print(_title(listing))
            continue
        console.print(listing_table(listing))


def listing_table(listing: Listing) -> Table:
    """A listing as a table."""
    table = Table(title=_title(listing), title_justify="left")
    for column in listing.columns:
        table.add_column(column, overflow="fold")
    for row in listing.rows:
        # Text, not str: cells are data and never markup.
        table.add_row(*(Text(visible(_cell(value))) for value in row))
    return table


def _title(listing: Listing) -> Text:
    return Text(visible(listing.title), style="bold")


def render_result(output: OutputFormat, *lines: str, **facts: object) -> None:
    """Lines for a person, or the facts as a JSON object."""
    if output is OutputFormat.JSON:
        print_json(facts)
    else:
        for line in lines:
            print_line(line)


def print_json(value: object) -> None:
    """A JSON value on a line of standard output, at once. Errors as `print_line`."""
    _write_line(json.dumps(_plain(value), default=str))


def _plain(value: object) -> object:
    """Addresses as text: they are tuples, which JSON would show as lists."""
    if isinstance(value, Endpoint):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def print_line(line: str) -> None:
    """One visible line for a person on standard output, at once. Errors of `writing_output`."""
    _write_line(visible(line))


def _write_line(line: str) -> None:
    with writing_output():
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


@contextmanager
def writing_output() -> Iterator[None]:
    """Around what writes standard output: ReaderGoneError when the reader is gone (`waltz tail | head`),
    OutputError for everything else that the system refuses."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as error:
        raise OutputError(error) from None


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise ReaderGoneError from None

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Where the console writes what was printed.
        with writing_output():
            super().__exit__(exc_type, exc_value, traceback)


def out_console() -> Console:
    """Standard output; wide when it is not a terminal, so that nothing is cut. Errors as `print_line`."""
    return _Output(width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset) and not isinstance(value, Endpoint):
        return ",".join(str(item) for item in value)
    return str(value)
