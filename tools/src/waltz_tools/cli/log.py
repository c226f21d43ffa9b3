"""`waltz append` and `waltz tail`: lines into the log, JSON lines out of it."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from waltz_client import FeedTransaction, LockId, WaltzClient
from waltz_tools.cli.common import (
    ConfigOption,
    OutputFormat,
    OutputOption,
    parse_partitions,
    print_json,
    print_line,
    run,
)
from waltz_tools.errors import UsageError

PartitionOption = Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition to append to.")]
_CLUSTER_SECONDS = 30.0


def append(
    config: ConfigOption,
    partition: PartitionOption = 0,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="The payload; lines of standard input without it.")
    ] = None,
    header: Annotated[int, typer.Option("--header", help="Number beside the payload.")] = 0,
    lock: Annotated[
        list[str] | None, typer.Option("--lock", help="Write lock name:id; can be repeated.")
    ] = None,
    as_of: Annotated[
        int | None, typer.Option("--as-of", min=-1, help="Locks must be untouched since this transaction.")
    ] = None,
    deadline_seconds: Annotated[
        float, typer.Option("--deadline", min=0.1, help="Seconds per append.")
    ] = _CLUSTER_SECONDS,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Append one payload, or every line of standard input, in order; prints each transaction id once it is committed."""
    locks = [_parse_lock(text) for text in lock or []]
    payloads = _stdin_lines() if data is None else iter([data.encode()])

    async def work() -> None:
        async with WaltzClient.connect(config) as client:
            while (payload := await asyncio.to_thread(next, payloads, None)) is not None:
                committed = await client.append(
                    partition=partition,
                    data=payload,
                    header=header,
                    write_locks=locks,
                    as_of=as_of,
                    deadline_seconds=deadline_seconds,
                )
                if output is OutputFormat.JSON:
                    print_json({"partition": partition, "transaction": committed.transaction_id})
                else:
                    print_line(f"{partition} {committed.transaction_id}")

    run(work())


def tail(
    config: ConfigOption,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="Ids and ranges; all without it.")
    ] = None,
    start: Annotated[int | None, typer.Option("--from", min=0, help="First transaction id to show.")] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="The last N of each partition.")] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is appended from now on.")
    ] = False,
    headers_only: Annotated[bool, typer.Option("--headers-only", help="Leave the payload out.")] = False,
) -> None:
    """Print transactions as JSON lines: partition, transaction, header, client, data (data_base64 when it is not text)."""
    chosen = None if partition is None else parse_partitions(partition)
    run(_until_interrupt(_tail(config, chosen, start, last, follow, headers_only)))


async def _tail(
    config: ConfigOption,
    chosen: list[int] | None,
    start: int | None,
    last: int,
    follow: bool,
    headers_only: bool,
) -> None:
    async with WaltzClient.connect(config) as client:
        partitions = list(range(client.num_partitions)) if chosen is None else chosen
        ends = {p: await client.high_water_mark(p, deadline_seconds=_CLUSTER_SECONDS) for p in partitions}
        after = {p: max(end - last, -1) if start is None else start - 1 for p, end in ends.items()}
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
                if start is None or transaction.transaction_id >= start:
                    print_line(json.dumps(describe(transaction)))


async def _until_interrupt(work: asyncio.Future[None] | object) -> None:
    """Run; Ctrl-C and SIGTERM end it without an error."""
    if not asyncio.iscoroutine(work):
        raise TypeError("not a coroutine")
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)


def describe(transaction: FeedTransaction) -> dict[str, object]:
    """One transaction as a JSON object."""
    line: dict[str, object] = {
        "partition": transaction.partition_id,
        "transaction": transaction.transaction_id,
        "header": transaction.header,
        "client": transaction.req_id.client_id,
    }
    if transaction.data is not None:
        try:
            line["data"] = transaction.data.decode()
        except UnicodeDecodeError:
            line["data_base64"] = base64.b64encode(transaction.data).decode()
    return line


def _parse_lock(text: str) -> LockId:
    name, colon, number = text.rpartition(":")
    try:
        if not colon or not name:
            raise ValueError(text)
        return LockId(name, int(number))
    except ValueError:
        raise UsageError(f"a lock is name:id, such as account:42, not {text!r}") from None


def _stdin_lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.rstrip(b"\r\n")
