"""`waltz storage`: storage nodes, through their admin and storage ports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from waltz_admin import offline_copy, storage_admin
from waltz_admin.delete_copies import delete_copies
from waltz_cluster.config.settings import TlsFileSettings
from waltz_protocol.aio.tls import TlsSettings
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    LoggerOption,
    OutputFormat,
    OutputOption,
    PartitionsOption,
    parse_endpoint,
    parse_partitions,
    parse_single_partition,
    parse_truth,
    render_listings,
    render_result,
    run_admin,
)
from waltz_tools.cli.confirmation import DryRunOption, YesOption, confirm
from waltz_tools.cli.figures import SizeBytes, counted, size_or_none
from waltz_tools.cli.progress import Advance, progress
from waltz_tools.cli.replace import replace
from waltz_tools.cli.storage_repairs import forget, lower_fence, restore_reset
from waltz_tools.cli.usage import usage
from waltz_tools.errors import DegradedError, ToolError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("usage")(usage)
app.command("replace")(replace)
app.command("restore-reset")(restore_reset)
app.command("forget")(forget)
app.command("lower-fence")(lower_fence)

AdminOption = Annotated[
    str, typer.Option("--storage", "-s", help="host:admin_port of the node.", show_default=False)
]


@app.command("list")
def list_(
    config: ConfigOption,
    storage: Annotated[
        str | None, typer.Option("--storage", "-s", help="host:admin_port; all nodes without it.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    logger: LoggerOption = False,
) -> None:
    """List the partitions of the nodes: sessions, marks, flags. Exit code 3 when a node does not answer."""
    admin = None if storage is None else parse_endpoint(storage)
    statuses = run_admin(config, lambda c: storage_admin.list_nodes(c.store, c.root, c.tls, admin=admin))
    columns = [
        "Node",
        "Partition",
        "Session",
        "Low-water mark",
        "Local low-water mark",
        "Assigned",
        "Available",
        "Log bytes",
    ]
    partitions = Listing("partitions", "Partitions of storage nodes", columns)
    for status in statuses:
        for p in status.partitions:
            partitions.add(
                str(status.admin),
                p.partition_id,
                p.session_id,
                p.low_water_mark,
                p.local_low_water_mark,
                p.assigned,
                p.available,
                size_or_none(p.log_bytes),
            )
    listings = [partitions]
    silent = [status for status in statuses if status.error is not None]
    if silent:
        failed = Listing("unreachable", "Nodes that did not answer", ["Node", "Reason"])
        for status in silent:
            failed.add(str(status.admin), status.error)
        listings.append(failed)
    render_listings(output, listings)
    if silent:
        raise DegradedError(f"{len(silent)} of {len(statuses)} storage nodes did not answer")


@app.command("add-partition")
def add_partition(
    config: ConfigOption,
    storage: AdminOption,
    partition: PartitionsOption,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Assign partitions to a node."""
    admin, chosen = parse_endpoint(storage), parse_partitions(partition)
    run_admin(config, lambda c: storage_admin.set_assignment(c.store, c.root, admin, chosen, True, tls=c.tls))
    render_result(output, f"{admin} has partitions {partition}", node=admin, assigned=chosen)


@app.command("remove-partition")
def remove_partition(
    config: ConfigOption,
    storage: AdminOption,
    partition: PartitionsOption,
    delete: Annotated[
        bool, typer.Option("--delete-storage-files", "-d", help="Delete the data too.")
    ] = False,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss",
            help="Delete the data also where the other replicas are not proven to have all of it.",
        ),
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Remove partitions from a node.

    Data are deleted only while a quorum of the other replicas is current; nothing is checked where the files
    stay.
    """
    admin, chosen = parse_endpoint(storage), parse_partitions(partition)

    async def delete_proven(c: Context) -> None:
        await delete_copies(c.store, c.root, admin, chosen, tls=c.tls, dry_run=dry_run)

    if dry_run:

        async def look(c: Context) -> storage_admin.NodeStatus:
            await storage_admin.check_partitions(c.store, c.root, chosen)
            (found,) = await storage_admin.list_nodes(c.store, c.root, c.tls, admin=admin)
            return found

        status = run_admin(config, look)
        if status.error is not None:
            raise ToolError(status.error)
        if delete and not accept:
            run_admin(config, delete_proven)
        held = [p for p in status.partitions if p.partition_id in chosen]
        size = SizeBytes(sum(p.log_bytes or 0 for p in held))
        ids = [p.partition_id for p in held]
        render_result(
            output,
            f"would remove partitions {','.join(map(str, ids)) or 'none'} from {admin}"
            + (f" and delete {size} of data" if delete else "; their files stay"),
            dry_run=True,
            node=admin,
            removed=ids,
            deleted=delete,
            bytes=size,
        )
        return
    if delete:
        confirm(f"the data of partitions {partition} on {admin} are deleted", yes)

    async def remove(c: Context) -> None:
        await storage_admin.set_assignment(
            c.store, c.root, admin, chosen, False, tls=c.tls, delete_files=delete
        )

    run_admin(config, delete_proven if delete and not accept else remove)
    render_result(
        output, f"{admin} no longer has partitions {partition}", node=admin, removed=chosen, deleted=delete
    )


@app.command()
def availability(
    config: ConfigOption,
    storage: AdminOption,
    partition: PartitionsOption,
    online: Annotated[str, typer.Option("--online", "-o", help="true or false.", show_default=False)],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make partitions of a node available to servers, or take them offline."""
    admin, chosen = parse_endpoint(storage), parse_partitions(partition)
    available = parse_truth("--online", online)
    run_admin(
        config, lambda c: storage_admin.set_availability(c.store, c.root, admin, chosen, available, tls=c.tls)
    )
    word = "available" if available else "unavailable"
    render_result(
        output,
        f"partitions {partition} of {admin} are {word}",
        node=admin,
        partitions=chosen,
        available=available,
    )


@app.command("sync-partitions")
def sync_partitions(
    config: ConfigOption,
    remove_surplus: Annotated[
        bool,
        typer.Option("--remove-surplus", help="Un-assign what a node has beyond its records (files stay)."),
    ] = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Assign to every node the partitions that ZooKeeper lists for it. Exit code 3 when a node failed."""
    report = run_admin(
        config,
        lambda c: storage_admin.sync_partitions(
            c.store, c.root, tls=c.tls, remove_surplus=remove_surplus, dry_run=dry_run
        ),
    )
    changes = [report.assigned, report.unassigned, report.surplus, report.failed]
    title = "Changes that storage nodes would get" if dry_run else "Changes sent to storage nodes"
    listing = Listing(
        "nodes",
        title
        if any(changes)
        else "nothing to change: every storage node has the partitions that ZooKeeper lists for it",
        ["Node", "Assigned", "Removed", "Surplus", "Failed"],
    )
    for node in sorted({*report.assigned, *report.unassigned, *report.surplus, *report.failed}):
        listing.add(
            node,
            list(report.assigned.get(node, ())),
            list(report.unassigned.get(node, ())),
            list(report.surplus.get(node, ())),
            report.failed.get(node),
        )
    render_listings(output, [listing])
    if not report.complete:
        raise DegradedError(
            f"{counted(len(report.failed), 'storage node')} could not be updated: {', '.join(sorted(report.failed))}"
        )


@app.command("recover-partition")
def recover_partition(
    config: ConfigOption,
    source: Annotated[
        str, typer.Option("--source-storage", "-s", help="host:admin_port.", show_default=False)
    ],
    destination: Annotated[
        str, typer.Option("--destination-storage", "-d", help="host:admin_port.", show_default=False)
    ],
    destination_port: Annotated[
        int, typer.Option("--destination-storage-port", "-dp", help="Its storage port.", show_default=False)
    ],
    partition: PartitionsOption,
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", min=1)] = offline_copy.DEFAULT_BATCH_SIZE,
    source_ssl: Annotated[
        Path | None,
        typer.Option("--source-ssl-config-path", "-sssl", help="A file with the TLS keys for the source."),
    ] = None,
    destination_ssl: Annotated[
        Path | None,
        typer.Option("--destination-ssl-config-path", "-dssl", help="The same for the destination."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Copy a partition to a node where it is unavailable, past the servers."""
    source_admin, destination_admin = parse_endpoint(source), parse_endpoint(destination)
    partition_id = parse_single_partition(partition)

    async def work(c: Context, advance: Advance) -> offline_copy.Progress:
        return await offline_copy.recover_partition(
            c.store,
            c.root,
            source_admin=source_admin,
            destination_admin=destination_admin,
            destination_storage_port=destination_port,
            partition_id=partition_id,
            batch_size=batch_size,
            source_tls=_tls(c, source_ssl),
            destination_tls=_tls(c, destination_ssl),
            progress=lambda p: advance(p.current + 1, p.target + 1),
        )

    with progress(f"copying partition {partition_id}") as advance:
        result = run_admin(config, lambda c: work(c, advance))
    render_result(
        output,
        f"copied {result.copied} records; {destination_admin} holds partition {partition_id} up to {result.current}",
        copied=result.copied,
        current=result.current,
        target=result.target,
    )


def _tls(context: Context, path: Path | None) -> TlsSettings:
    """TLS of a file of its own, or that of the main one."""
    return context.tls if path is None else TlsFileSettings.from_file(path).own_tls()


@app.command("max-transaction-id")
def max_transaction_id(
    config: ConfigOption,
    storage: AdminOption,
    storage_port: Annotated[
        int, typer.Option("--storage-port", "-sp", help="Its storage port.", show_default=False)
    ],
    partition: PartitionsOption,
    offline: Annotated[
        bool, typer.Option("--offline", "-o", help="Needed when the partition is unavailable there.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the highest transaction id that a node holds of a partition."""
    admin, partition_id = parse_endpoint(storage), parse_single_partition(partition)

    async def work(c: Context) -> int:
        return await storage_admin.max_transaction_id(
            c.store, c.root, admin, storage_port, partition_id, tls=c.tls, offline=offline
        )

    highest = run_admin(config, work)
    render_result(
        output, f"Max Transaction ID: {highest}", partition=partition_id, max_transaction_id=highest
    )


@app.command()
def validate(config: ConfigOption, output: OutputOption = OutputFormat.TABLE) -> None:
    """Open the storage port and the admin port of every node. Exit code 3 when one does not answer as it
    should."""
    answers = run_admin(config, lambda c: storage_admin.validate(c.store, c.root, tls=c.tls))
    listing = Listing("ports", "Ports of storage nodes", ["Port", "Works", "Reason"])
    for port, reason in answers.items():
        listing.add(port, reason is None, reason)
    render_listings(output, [listing])
    broken = [port for port, reason in answers.items() if reason is not None]
    if broken:
        raise DegradedError(f"{len(broken)} of {len(answers)} ports do not work: {', '.join(broken)}")
