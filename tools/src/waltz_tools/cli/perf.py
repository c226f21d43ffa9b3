"""`waltz perf`: load on a running cluster, and rough figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from waltz_client import WaltzClient
from waltz_client.settings import ClientSettings
from waltz_tools.cli.common import ConfigOption, OutputFormat, OutputOption, render_result, run_until
from waltz_tools.cli.progress import progress
from waltz_tools.errors import UsageError
from waltz_tools.load_test import performance
from waltz_tools.load_test.validate import MAX_CLIENTS

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

SizeOption = Annotated[
    int, typer.Option("--txn-size", "-s", min=0, help="Bytes of data per transaction.", show_default=False)
]
ActiveOption = Annotated[
    int,
    typer.Option(
        "--num-active-partitions", "-ap", min=1, help="How many partitions are used, from the first on."
    ),
]
LatestOption = Annotated[
    bool,
    typer.Option(
        "--mount-from-latest",
        "--mount_from_latest",
        "-ml",
        help="Accepted for compatibility: old transactions are never read.",
    ),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for the whole command.")]


@app.command("test-producers")
def producers(
    config: ConfigOption,
    txn_size: SizeOption,
    txn_per_thread: Annotated[
        int,
        typer.Option("--txn-per-thread", "-p", min=0, help="Transactions per client.", show_default=False),
    ],
    num_thread: Annotated[
        int, typer.Option("--num-thread", "-t", min=1, max=MAX_CLIENTS, help="Clients.", show_default=False)
    ],
    interval: Annotated[
        int,
        typer.Option(
            "--interval",
            "-i",
            min=0,
            help="Mean milliseconds between two transactions of a client.",
            show_default=False,
        ),
    ],
    num_active_partitions: ActiveOption = 1,
    lock_pool_size: Annotated[
        int, typer.Option("--lock-pool-size", "-l", min=0, help="Write locks to choose from; 0 = none.")
    ] = 0,
    mount_from_latest: LatestOption = False,
    timeout_seconds: TimeoutOption = 600.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Measure how fast clients can append. One unmeasured transaction per client and partition comes
    first."""
    settings = _settings(config, txn_size)
    test = performance.ProducerTest(
        txn_size,
        txn_per_thread,
        num_thread,
        interval / 1000,
        num_active_partitions,
        lock_pool_size,
        settings.max_concurrent_transactions,
    )
    with progress("appending", txn_per_thread * num_thread) as advance:
        work = performance.produce(lambda: WaltzClient.connect(settings), test, advance)
        done = run_until(work, timeout_seconds, "the test")
    _show(output, done.facts())


@app.command("test-consumers")
def consumers(
    config: ConfigOption,
    txn_size: SizeOption,
    num_txn: Annotated[int, typer.Option("--num-txn", "-t", min=0, help="Transactions.", show_default=False)],
    num_active_partitions: ActiveOption = 1,
    mount_from_latest: LatestOption = False,
    timeout_seconds: TimeoutOption = 600.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Measure how fast one client reads back, with data, what is written first."""
    settings = _settings(config, txn_size)
    with progress("reading back", num_txn) as advance:
        work = performance.consume(
            lambda: WaltzClient.connect(settings), txn_size, num_txn, num_active_partitions, advance
        )
        done = run_until(work, timeout_seconds, "the test")
    _show(output, done.facts())


def _settings(config: Path, size_bytes: int) -> ClientSettings:
    """Those of the clients; UsageError for a payload that they would never send."""
    settings = ClientSettings.load(config)
    if size_bytes > settings.max_transaction_bytes:
        raise UsageError(
            f"--txn-size {size_bytes} is above client.maxTransactionBytes, {settings.max_transaction_bytes}"
        )
    return settings


def _show(output: OutputFormat, facts: dict[str, object]) -> None:
    render_result(output, *(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()), **facts)
