"""`waltz server`: servers, through their client and HTTP ports."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from waltz_admin import server_admin
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    LoggerOption,
    OutputFormat,
    OutputOption,
    PartitionsOption,
    ServerOption,
    parse_endpoint,
    parse_partitions,
    render_listings,
    render_result,
    run,
    run_admin,
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    server: Annotated[
        str, typer.Option("--server", "-s", help="host:port of its HTTP port.", show_default=False)
    ],
    output: OutputOption = OutputFormat.TABLE,
    logger: LoggerOption = False,
) -> None:
    """List the partitions of a server and the storage nodes of each."""
    endpoint = parse_endpoint(server)
    count, replicas = run(server_admin.list_server(endpoint))
    listing = Listing("partitions", f"{endpoint}: {count} partitions", ["Partition", "Storage nodes"])
    if isinstance(replicas, dict):
        for partition, nodes in sorted(replicas.items(), key=_by_number):
            listing.add(int(partition), nodes)
    render_listings(output, [listing])


def _by_number(item: tuple[str, Any]) -> int:
    return int(item[0])


@app.command("add-preferred-partition")
def add_preferred_partition(
    config: ConfigOption,
    server: ServerOption,
    partition: PartitionsOption,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make a server prefer partitions: they move to it."""
    _change(config, server, partition, output, preferred=True)


@app.command("remove-preferred-partition")
def remove_preferred_partition(
    config: ConfigOption,
    server: ServerOption,
    partition: PartitionsOption,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make a server no longer prefer partitions."""
    _change(config, server, partition, output, preferred=False)


def _change(
    config: ConfigOption, server: str, partition: str, output: OutputFormat, *, preferred: bool
) -> None:
    endpoint, chosen = parse_endpoint(server), parse_partitions(partition)

    async def work(c: Context) -> None:
        await server_admin.change_preferred(c.store, c.root, endpoint, chosen, preferred=preferred, tls=c.tls)

    run_admin(config, work)
    word = "prefers" if preferred else "no longer prefers"
    render_result(
        output, f"{endpoint} {word} {partition}", server=endpoint, partitions=chosen, preferred=preferred
    )
