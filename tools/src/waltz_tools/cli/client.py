"""`waltz client`: who is connected? Is the log right for clients? And where does it end?"""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from waltz_client import WaltzClient
from waltz_tools.cli.common import (
    ConfigOption,
    OutputFormat,
    OutputOption,
    parse_single_partition,
    render_result,
    run_until,
)
from waltz_tools.cli.progress import progress
from waltz_tools.cli.reports import list_clients
from waltz_tools.errors import DegradedError
from waltz_tools.load_test import validate as load_test
from waltz_tools.load_test.chain import ChainCheck
from waltz_tools.load_test.validate import MAX_CLIENTS

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

app.command("list", help=list_clients.__doc__)(list_clients)

CountOption = Annotated[
    int, typer.Option("--txn-per-client", "-tpc", min=0, help="Transactions per client.", show_default=False)
]
IntervalOption = Annotated[
    int,
    typer.Option(
        "--interval",
        "-i",
        min=0,
        help="Mean milliseconds between two transactions of a client.",
        show_default=False,
    ),
]
ActiveOption = Annotated[
    int,
    typer.Option(
        "--num-active-partitions", "-ap", min=1, help="How many partitions are used, from the first on."
    ),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for the whole command.")]
RunOption = Annotated[str, typer.Option("--run", help="Name that producers and consumers of one run share.")]


@app.command()
def validate(
    config: ConfigOption,
    txn_per_client: CountOption,
    num_clients: Annotated[
        int,
        typer.Option(
            "--num-clients",
            "-nc",
            min=1,
            max=MAX_CLIENTS,
            help="Clients that append at the same time.",
            show_default=False,
        ),
    ],
    interval: IntervalOption,
    num_active_partitions: ActiveOption = 1,
    timeout_seconds: TimeoutOption = 600.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Append from several clients under one lock and check that the log holds exactly that, in order.

    Others may write to the same partitions meanwhile. Exit code 3 when the log differs.
    """
    with progress("validating", 2 * num_clients * txn_per_client) as advance:
        work = load_test.validate(
            lambda: WaltzClient.connect(config),
            uuid.uuid4().hex,
            num_clients,
            txn_per_client,
            interval / 1000,
            num_active_partitions,
            advance,
        )
        check = run_until(work, timeout_seconds, "the validation")
    render_result(output, f"{check.found} transactions are right", transactions=check.found, problems=[])


@app.command("create-producer")
def create_producer(
    config: ConfigOption,
    txn_per_client: CountOption,
    interval: IntervalOption,
    num_active_partitions: ActiveOption = 1,
    run: RunOption = "default",
    timeout_seconds: TimeoutOption = 600.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run one producer of a validation. It reads the partitions from their beginning first, to know the run
    so far."""

    async def work() -> int:
        async with WaltzClient.connect(config) as client:
            partitions = load_test.active_partitions(client, num_active_partitions)
            producer = load_test.Producer(client, run, uuid.uuid4().hex, interval / 1000)
            await producer.produce(txn_per_client, dict.fromkeys(partitions, -1), advance)
            return producer.conflicts

    with progress("appending", txn_per_client) as advance:
        conflicts = run_until(work(), timeout_seconds, "the producer")
    render_result(
        output,
        f"{txn_per_client} transactions, {conflicts} conflicts",
        transactions=txn_per_client,
        conflicts=conflicts,
    )


@app.command("create-consumer")
def create_consumer(
    config: ConfigOption,
    txn_per_client: CountOption,
    num_active_partitions: ActiveOption = 1,
    run: RunOption = "default",
    timeout_seconds: TimeoutOption = 600.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run the consumer of a validation: it reads from the beginning until it has found that many transactions
    of the run."""

    async def work() -> ChainCheck:
        async with WaltzClient.connect(config) as client:
            partitions = load_test.active_partitions(client, num_active_partitions)
            return await load_test.consume(
                client, run, txn_per_client, dict.fromkeys(partitions, -1), advance
            )

    with progress("checking", txn_per_client) as advance:
        check = run_until(work(), timeout_seconds, "the consumer")
    if check.problems:
        raise DegradedError(f"{len(check.problems)} problems: {check.problems[0]}")
    render_result(output, f"{check.found} transactions are right", transactions=check.found, problems=[])


@app.command("high-water-mark")
def high_water_mark(
    config: ConfigOption,
    partition: Annotated[str, typer.Option("--partition", "-p", help="One partition.", show_default=False)],
    timeout_seconds: TimeoutOption = 30.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the id of the last committed transaction of a partition, -1 when it is empty."""
    chosen = parse_single_partition(partition)

    async def work() -> int:
        async with WaltzClient.connect(config) as client:
            return await client.high_water_mark(chosen, deadline_seconds=timeout_seconds)

    mark = run_until(work(), timeout_seconds + 30, "the question")
    render_result(output, f"High-water Mark: {mark}", partition=chosen, high_water_mark=mark)
