"""`waltz zk`: the cluster's records in ZooKeeper. Storage nodes are changed by `waltz storage`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from waltz_admin import assignments, nodes, seeding
from waltz_admin.accept_restored import accept_restored
from waltz_admin.dry_run import DryRunStore
from waltz_admin.restored_metadata import Rebuilt
from waltz_admin.tree import read_maps
from waltz_admin.view import ClusterView, read_view
from waltz_admin.waiting import wait_complete
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    LoggerOption,
    LostOption,
    OutputFormat,
    OutputOption,
    PartitionsOption,
    known_node,
    parse_endpoint,
    parse_group,
    parse_new_endpoint,
    parse_partitions,
    render_listings,
    render_result,
    run_admin,
)
from waltz_tools.cli.confirmation import DryRunOption, YesOption, confirm
from waltz_tools.cli.progress import progress
from waltz_tools.cli.zk_tree import add_commands

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
add_commands(app)

NameOption = Annotated[str, typer.Option("--name", "-n", help="Name of the cluster.", show_default=False)]
StorageOption = Annotated[
    str, typer.Option("--storage", "-s", help="host:port of the node's storage port.", show_default=False)
]
GroupOption = Annotated[
    int, typer.Option("--group", "-g", help="Group of nodes that together hold one copy.", show_default=False)
]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait", min=0, help="Wait up to this many seconds until every replica takes part; 0 = do not wait."
    ),
]
PauseOption = Annotated[
    bool,
    typer.Option("--allow-pause", help="Accept that writes wait until the new replica has caught up."),
]


@app.command()
def create(
    config: ConfigOption,
    name: NameOption,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=0, help="Number of partitions; it can never be changed.")
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create a cluster; fails when there is one."""
    result = run_admin(config, lambda c: seeding.create(c.store, c.root, name, partitions))
    key = result.params.cluster_key
    render_result(
        output,
        f"created {name} with {partitions} partitions, key {key}",
        name=name,
        key=key,
        partitions=partitions,
    )


@app.command()
def delete(
    config: ConfigOption,
    name: NameOption,
    force: Annotated[
        bool,
        typer.Option(
            "--force", "-f", help="Whatever the name of the cluster is, and with what else is below its root."
        ),
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete a cluster's records, if the name is right and no server is registered. There is no way back.

    --force does not skip the check for servers: they have to be stopped; one that was killed is registered
    until its ZooKeeper session ends.
    """

    async def work(c: Context) -> None:
        await seeding.delete(_store(c, dry_run), c.root, name, force=force)

    if force:
        name = run_admin(config, lambda c: seeding.name_of(c.store, c.root)) or "without a name"
    if not dry_run:
        confirm(f"all records of cluster {name} in ZooKeeper are deleted permanently", yes)
    run_admin(config, work)
    line = f"would delete {name}" if dry_run else f"deleted {name}"
    render_result(output, line, name=name, deleted=not dry_run, dry_run=dry_run)


@app.command("show-cluster-key")
def show_cluster_key(config: ConfigOption, output: OutputOption = OutputFormat.TABLE) -> None:
    """Print the key that storage nodes and servers prove to each other."""
    key = run_admin(config, lambda c: seeding.show_key(c.store, c.root))
    render_result(output, str(key), key=key)


@app.command("list")
def list_(
    config: ConfigOption, output: OutputOption = OutputFormat.TABLE, logger: LoggerOption = False
) -> None:
    """Print everything; changes nothing."""
    view = run_admin(config, lambda c: read_view(c.store, c.root))
    render_listings(output, _listings(view))


@app.command("add-storage-node")
def add_storage_node(
    config: ConfigOption,
    storage: StorageOption,
    admin_port: Annotated[
        int,
        typer.Option(
            "--storage-admin-port", "-a", min=1, max=65535, help="Its admin port.", show_default=False
        ),
    ],
    group: GroupOption,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make a storage node known, without partitions; refused where it is known under another name."""
    endpoint = str(parse_new_endpoint(storage))
    parse_group("--group", group)

    async def work(c: Context) -> bool:
        return await nodes.add_storage_node(c.store, c.root, endpoint, admin_port, group, tls=c.tls)

    added = run_admin(config, work)
    line = f"added {endpoint} to group {group}" if added else f"{endpoint} was known already"
    render_result(output, line, node=endpoint, group=group, changed=added)


@app.command("remove-storage-node")
def remove_storage_node(
    config: ConfigOption,
    storage: StorageOption,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Forget a storage node that has no partitions."""

    async def work(c: Context) -> str:
        endpoint = await known_node(c, storage)
        await nodes.remove_storage_node(_store(c, dry_run), c.root, endpoint)
        return endpoint

    endpoint = run_admin(config, work)
    line = f"would remove {endpoint}" if dry_run else f"removed {endpoint}"
    render_result(output, line, node=endpoint, removed=not dry_run, dry_run=dry_run)


@app.command("assign-partition")
def assign_partition(
    config: ConfigOption,
    partition: PartitionsOption,
    storage: StorageOption,
    allow_pause: PauseOption = False,
    wait_seconds: WaitOption = 0.0,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Assign partitions to a storage node (after a check that nothing can be lost)."""
    endpoint, chosen = str(parse_endpoint(storage)), parse_partitions(partition)

    async def work(c: Context) -> tuple[int, ...]:
        return await assignments.assign(
            _store(c, dry_run), c.root, chosen, endpoint, tls=c.tls, allow_pause=allow_pause
        )

    added = run_admin(config, work)
    _wait(config, chosen, wait_seconds, dry_run)
    line = f"{'would assign' if dry_run else 'assigned'} {_ids(added)} to {endpoint}"
    render_result(output, line, node=endpoint, assigned=added, dry_run=dry_run)


@app.command("unassign-partition")
def unassign_partition(
    config: ConfigOption,
    partition: PartitionsOption,
    storage: StorageOption,
    drop_group_copy: Annotated[
        bool,
        typer.Option("--drop-group-copy", help="Also when the node's group would hold no other copy."),
    ] = False,
    wait_seconds: WaitOption = 0.0,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Unassign partitions from a storage node (after a check that nothing can be lost)."""
    chosen = parse_partitions(partition)

    async def work(c: Context) -> tuple[str, tuple[int, ...]]:
        endpoint = await known_node(c, storage)
        return endpoint, await assignments.unassign(
            _store(c, dry_run), c.root, chosen, endpoint, tls=c.tls, keep_group_copy=not drop_group_copy
        )

    endpoint, removed = run_admin(config, work)
    _wait(config, chosen, wait_seconds, dry_run)
    line = f"{'would unassign' if dry_run else 'unassigned'} {_ids(removed)} from {endpoint}"
    render_result(output, line, node=endpoint, unassigned=removed, dry_run=dry_run)


@app.command("auto-assign")
def auto_assign(
    config: ConfigOption,
    group: GroupOption,
    allow_pause: PauseOption = False,
    wait_seconds: WaitOption = 0.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Spread one copy of every partition over the nodes of a group.

    --wait waits for all that the group has, so also for what an earlier run assigned.
    """

    async def work(c: Context) -> tuple[dict[str, tuple[int, ...]], list[int]]:
        given = await assignments.auto_assign(c.store, c.root, group, tls=c.tls, allow_pause=allow_pause)
        maps = await read_maps(c.store, ClusterPaths(c.root))
        held = [p for node, has in maps.partitions.items() if maps.groups.get(node) == group for p in has]
        return {node: tuple(partitions) for node, partitions in given.items()}, sorted({*held})

    given, held = run_admin(config, work)
    _wait(config, held, wait_seconds, False)
    text = "; ".join(f"{node}: {_ids(partitions)}" for node, partitions in given.items())
    render_result(output, text or "nothing to assign", assigned=given)


@app.command("accept-restored")
def accept_restored_(
    config: ConfigOption,
    partition: PartitionsOption,
    lost: LostOption = None,
    removed: Annotated[
        list[str] | None,
        typer.Option(
            "--removed",
            help="host:port of a storage node that was taken out of these partitions since the copy was made; may be repeated.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Rebuild the metadata of partitions from what their storage nodes hold, after ZooKeeper was restored
    from an older copy.

    All storage nodes must answer, or be named as lost or removed; nodes that this copy does not know must be
    added first. Then nothing that a quorum holds is lost: the next recovery decides among the nodes that
    completed the last session.
    """
    chosen = parse_partitions(partition)

    async def work(c: Context) -> tuple[list[Rebuilt], list[int]]:
        gone = [await known_node(c, node) for node in lost or ()]
        out = [await known_node(c, node) for node in removed or ()]
        return await accept_restored(_store(c, dry_run), c.root, chosen, tls=c.tls, lost=gone, removed=out)

    found, fine = run_admin(config, work)
    listing = Listing(
        "partitions",
        "would be written" if dry_run else "written",
        ["Partition", "Session before", "Session", "Node", "Node session", "Closing high-water mark", "Why"],
    )
    for one in found:
        for node, state in sorted(one.after.replicas.items()):
            closing: object = state.closing_high_water_mark if state.resolved else "UNRESOLVED"
            why = one.reasons[node] + ("; assigned again" if node in one.reassign else "")
            listing.add(
                one.partition_id,
                one.before.session_id,
                one.after.session_id,
                node,
                state.session_id,
                closing,
                why,
            )
        for node in one.unassign:
            listing.add(one.partition_id, None, None, node, None, None, "was taken out: no longer assigned")
    for number in fine:
        listing.add(number, None, None, None, None, None, "nothing is wrong with it")
    render_listings(output, [listing])


def _wait(config: Path, partitions: list[int], wait_seconds: float, dry_run: bool) -> None:
    """Until the change is complete; nothing is waited for without --wait."""
    if not wait_seconds or dry_run:
        return
    with progress("waiting") as advance:

        async def work(c: Context) -> None:
            await wait_complete(
                c.store,
                c.root,
                partitions,
                tls=c.tls,
                timeout_seconds=wait_seconds,
                report=lambda text: advance(0, text=text),
            )

        run_admin(config, work)


def _store(c: Context, dry_run: bool) -> ZooKeeperStore:
    return DryRunStore(c.store) if dry_run else c.store


def _ids(partitions: tuple[int, ...]) -> str:
    return ",".join(str(partition) for partition in partitions) or "nothing new"


def _listings(view: ClusterView) -> list[Listing]:
    cluster = Listing("cluster", "Cluster", ["Name", "Partitions", "Key", "Assignment current", "Cversion"])
    cluster.add(
        view.params.name,
        view.params.num_partitions,
        str(view.store.cluster_key),
        view.assignment_current,
        view.assignment.cversion,
    )
    servers = Listing("servers", "Servers", ["Id", "Endpoint", "Preferred partitions"])
    for descriptor in view.servers:
        servers.add(descriptor.server_id, str(descriptor.endpoint), list(descriptor.preferred))
    owners = Listing("assignment", "Partitions of servers", ["Partition", "Server", "Generation"])
    for server_id, partitions in sorted(view.assignment.servers.items()):
        for partition_id, generation in sorted(partitions):
            owners.add(partition_id, server_id, generation)
    owners.rows.sort(key=lambda row: str(row[0]).rjust(10))
    nodes_table = Listing("storage_nodes", "Storage nodes", ["Node", "Admin port", "Group", "Partitions"])
    maps = view.nodes
    for node in sorted({*maps.groups, *maps.partitions, *maps.admin_ports}):
        nodes_table.add(
            node, maps.admin_ports.get(node), maps.groups.get(node), list(maps.partitions.get(node, ()))
        )
    return [cluster, servers, owners, nodes_table, _replica_listing(view)]


def _replica_listing(view: ClusterView) -> Listing:
    listing = Listing(
        "replicas",
        "Replicas",
        ["Partition", "Generation", "Session", "Node", "Node session", "Closing high-water mark"],
    )
    for partition_id, metadata in sorted(view.metadata.items()):
        if not isinstance(metadata, PartitionMetadata):
            listing.add(partition_id, None, None, metadata or "no metadata yet", None, None)
            continue
        for node, state in sorted(metadata.replicas.items()):
            closing: object = state.closing_high_water_mark if state.resolved else "UNRESOLVED"
            listing.add(
                partition_id, metadata.generation, metadata.session_id, node, state.session_id, closing
            )
    return listing
