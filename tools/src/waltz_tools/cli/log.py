"""`waltz append`, `waltz tail` and `waltz get`: lines into the log, JSON lines out of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import closing, suppress
from queue import SimpleQueue
from typing import Annotated, Any, BinaryIO

import typer

from waltz_client import WaltzClient
from waltz_tools.cli.common import (
    ConfigOption,
    OutputFormat,
    OutputOption,
    parse_partitions,
    print_json,
    print_line,
    run,
    writing_output,
)
from waltz_tools.cli.transactions import (
    Line,
    Search,
    describe,
    json_lines,
    parse_lock,
    plain_lines,
    show,
)
from waltz_tools.errors import OutputError, ReaderGoneError, ToolError, UsageError
from waltz_tools.invocation import as_started

PartitionOption = Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition to append to.")]
_CLUSTER_SECONDS = 30.0
_LOOK_BACK = 1000


def append(
    config: ConfigOption,
    partition: PartitionOption = 0,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="The payload; if not given: the lines of standard input."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="All of standard input, byte for byte, is one payload.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json-lines", help="Lines are what `waltz tail` prints; their partition and header count."
        ),
    ] = False,
    header: Annotated[
        int,
        typer.Option("--header", min=-(1 << 31), max=(1 << 31) - 1, help="Number stored with the payload."),
    ] = 0,
    lock: Annotated[
        list[str] | None,
        typer.Option("--lock", help="Write lock NAME:ID, or NAME/KEY with a text; can be repeated."),
    ] = None,
    as_of: Annotated[
        int | None, typer.Option("--as-of", min=-1, help="Locks must be untouched since this transaction.")
    ] = None,
    deadline_seconds: Annotated[
        float, typer.Option("--deadline", min=0.1, help="Seconds per append.")
    ] = _CLUSTER_SECONDS,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Append one payload, or every line of standard input, in order; prints each transaction id once it is
    committed."""
    locks = [parse_lock(text) for text in lock or []]
    lines = _input(data, whole, as_json)

    async def work() -> None:
        async with WaltzClient.connect(config) as client:
            while (line := await reader.next()) is not None:
                place = partition if line.partition is None else line.partition
                try:
                    committed = await client.append(
                        partition=place,
                        data=line.data,
                        header=header if line.header is None else line.header,
                        write_locks=locks,
                        as_of=as_of,
                        deadline_seconds=deadline_seconds,
                    )
                except asyncio.CancelledError:
                    _say_outcome_unknown(place)
                    raise
                _show_committed(output, place, committed.transaction_id)

    with closing(_Reader(lines)) as reader:
        run(work())


class _Reader:
    """Reads lines in a thread that nobody waits for: Ctrl-C ends a command whose terminal, or the program
    before it in a pipe, writes nothing more. One line is read for each that is asked for; the thread ends
    when it is closed, after the line that it may be reading."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._asked: SimpleQueue[asyncio.Future[Line | None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="standard input", daemon=True).start()

    async def next(self) -> Line | None:
        """The next line, None at the end."""
        read: asyncio.Future[Line | None] = asyncio.get_running_loop().create_future()
        self._asked.put(read)
        return await read

    def close(self) -> None:
        """No more lines are wanted."""
        self._asked.put(None)

    def _work(self) -> None:
        while (read := self._asked.get()) is not None:
            line, failed = None, None
            try:
                line = next(self._lines, None)
            except Exception as error:
                failed = error
            with suppress(RuntimeError):  # the loop is closed: nobody wants it
                read.get_loop().call_soon_threadsafe(_settle, read, line, failed)


def _settle(read: asyncio.Future[Line | None], line: Line | None, error: Exception | None) -> None:
    if read.done():
        return
    if error is None:
        read.set_result(line)
    else:
        read.set_exception(error)


def _say_outcome_unknown(partition: int) -> None:
    sys.stderr.write(
        as_started(
            f"interrupted: whether the append to partition {partition} that was in progress is committed is not "
            f"known; `waltz tail -p {partition}` shows what is\n"
        )
    )


def _show_committed(output: OutputFormat, partition: int, transaction: int) -> None:
    try:
        if output is OutputFormat.JSON:
            print_json({"partition": partition, "transaction": transaction})
        else:
            print_line(f"{partition} {transaction}")
    except (ReaderGoneError, OutputError) as error:
        raise ToolError(
            f"{error}: ended after transaction {transaction} of partition {partition}, which is committed"
        ) from None


def _input(data: str | None, whole: bool, as_json: bool) -> Iterator[Line]:
    if (data is not None) + whole + as_json > 1:
        raise UsageError("--data, --whole and --json-lines exclude each other")
    if data is not None:
        return iter([Line(os.fsencode(data))])  # the bytes that were given, whatever the encoding is
    if whole:
        return iter([Line(sys.stdin.buffer.read())])
    source: BinaryIO = sys.stdin.buffer
    with suppress(OSError):  # what a test puts there has no descriptor
        # A buffer of its own: the end of the interpreter waits for whoever reads from that of `sys.stdin`.
        source = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115
    return json_lines(source) if as_json else plain_lines(source)


def get(
    config: ConfigOption,
    transaction: Annotated[
        int, typer.Argument(metavar="TXID", min=0, help="Transaction id.", show_default=False)
    ],
    partition: Annotated[
        int, typer.Option("--partition", "-p", min=0, help="Its partition.", show_default=False)
    ],
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the payload to standard output, byte for byte.")
    ] = False,
    deadline_seconds: Annotated[
        float, typer.Option("--deadline", min=0.1, help="Seconds for the answer.")
    ] = _CLUSTER_SECONDS,
    output: OutputOption = OutputFormat.JSON,
) -> None:
    """Print one committed transaction."""

    async def work() -> dict[str, object] | bytes:
        async with WaltzClient.connect(config) as client, asyncio.timeout(deadline_seconds):
            if raw:
                return await client.get_data(partition, transaction, deadline_seconds=deadline_seconds)
            end = await client.high_water_mark(partition, deadline_seconds=deadline_seconds)
            if transaction > end:
                raise ToolError(f"partition {partition} has no transaction {transaction}: it ends at {end}")
            async with client.feed(partition, after=transaction - 1, until=transaction) as feed:
                return describe(await anext(aiter(feed)))

    try:
        found = run(work())
    except TimeoutError:
        raise ToolError(f"no answer within {deadline_seconds:g} s") from None
    if isinstance(found, bytes):
        with writing_output():
            sys.stdout.buffer.write(found)
            sys.stdout.buffer.flush()
    else:
        _print(output, found)


def tail(
    config: ConfigOption,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="Ids and ranges; all without it.")
    ] = None,
    start: Annotated[int | None, typer.Option("--from", min=0, help="First transaction id to show.")] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="The last N of each partition.")] = 10,
    header: Annotated[
        str | None,
        typer.Option(
            "--header",
            help="VALUE or VALUE/MASK: only these headers; -n counts only these.",
            show_default=False,
        ),
    ] = None,
    client: Annotated[
        int | None,
        typer.Option(
            "--client",
            help="Id of a client: only what it appended; -n counts only these.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with what is appended from now on.")
    ] = False,
    headers_only: Annotated[bool, typer.Option("--headers-only", help="Leave the payload out.")] = False,
    output: OutputOption = OutputFormat.JSON,
) -> None:
    """Print transactions as JSON lines: partition, transaction, header, client, data (data_base64 when it is
    not text)."""
    chosen = None if partition is None else parse_partitions(partition)
    wanted = Search.of(header, client)
    run(_until_interrupt(_tail(config, chosen, start, last, wanted, follow, headers_only, output)))


async def _tail(
    config: ConfigOption,
    chosen: list[int] | None,
    start: int | None,
    last: int,
    wanted: Search | None,
    follow: bool,
    headers_only: bool,
    output: OutputFormat,
) -> None:
    async with WaltzClient.connect(config) as client:
        partitions = list(range(client.num_partitions)) if chosen is None else chosen
        ends = {p: await client.high_water_mark(p, deadline_seconds=_CLUSTER_SECONDS) for p in partitions}
        after = {
            p: start - 1 if start is not None else await _place(client, p, end, last, wanted)
            for p, end in ends.items()
        }
        if not follow:
            partitions = [p for p in partitions if after[p] < ends[p]]
        elif start is not None:
            # A place beyond the end of the log would be an error of the application: wait at the end instead.
            after = {p: min(place, ends[p]) for p, place in after.items()}
        if not partitions:
            return
        async with client.feed(
            partitions, after=after, until=None if follow else ends, headers_only=headers_only
        ) as feed:
            async for transaction in feed:
                early = start is not None and transaction.transaction_id < start
                if not early and (wanted is None or wanted(transaction)):
                    _print(output, describe(transaction))


async def _place(client: WaltzClient, partition: int, end: int, last: int, wanted: Search | None) -> int:
    """The id after which the last `count` transactions begin. With a filter headers are read backwards, in
    growing pieces."""
    if wanted is None or last == 0:
        return max(end - last, -1)
    found, high, size = 0, end, _LOOK_BACK
    while high >= 0:
        low = max(0, high - size + 1)
        ids: list[int] = []
        async with client.feed(partition, after=low - 1, until=high, headers_only=True) as feed:
            async for transaction in feed:
                if wanted(transaction):
                    ids.append(transaction.transaction_id)
        if found + len(ids) >= last:
            return ids[found - last] - 1
        found, high, size = found + len(ids), low - 1, size * 2
    return -1


def _print(output: OutputFormat, line: dict[str, object]) -> None:
    if output is OutputFormat.JSON:
        print_json(line)
    else:
        print_line(show(line))


async def _until_interrupt(work: Coroutine[Any, Any, None]) -> None:
    """Run; Ctrl-C and SIGTERM end it without an error."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
