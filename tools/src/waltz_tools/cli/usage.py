"""`waltz storage usage`: the disks of the storage nodes, whose logs only grow."""

from __future__ import annotations

from typing import Annotated

import typer

from waltz_admin import storage_admin
from waltz_tools.cli.common import (
    ConfigOption,
    Listing,
    OutputFormat,
    OutputOption,
    parse_endpoint,
    render_listings,
    run_admin,
)
from waltz_tools.cli.figures import Seconds, days_or_none, size_or_none
from waltz_tools.errors import DegradedError


def usage(
    config: ConfigOption,
    storage: Annotated[
        str | None, typer.Option("--storage", "-s", help="host:admin_port; all nodes without it.")
    ] = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Show the bytes of each partition too.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the bytes of the logs, how fast they grow, and when the disks are full. Exit code 3 when one is,
    or a node is silent.

    Growth is that of the last 24 hours, or since the node's start. The log is kept forever: a disk that
    fills up must be enlarged.
    """
    admin = None if storage is None else parse_endpoint(storage)
    statuses = run_admin(config, lambda c: storage_admin.list_nodes(c.store, c.root, c.tls, admin=admin))
    listings = [_disks(statuses)]
    if partitions:
        listings.append(_partitions(statuses))
    render_listings(output, listings)
    silent = [str(status.admin) for status in statuses if status.error is not None]
    full = [str(status.admin) for status in statuses if status.disk is not None and status.disk.full]
    if full:
        raise DegradedError(
            f"the disk of {', '.join(full)} is full: it accepts no appends until there is free space"
        )
    if silent:
        raise DegradedError(
            f"{len(silent)} of {len(statuses)} storage nodes did not answer: {', '.join(silent)}"
        )


def _disks(statuses: list[storage_admin.NodeStatus]) -> Listing:
    columns = [
        "Node",
        "Log bytes",
        "Growth per day",
        "Measured over",
        "Disk size",
        "Free",
        "Reserve",
        "Days to full",
        "Full",
        "Problem",
    ]
    listing = Listing("disks", "Disks of storage nodes", columns)
    for status in statuses:
        disk = status.disk
        if disk is None:
            problem = status.error or "not reported (release 0.13.2)"
            listing.add(str(status.admin), *[None] * (len(columns) - 2), problem)
            continue
        listing.add(
            str(status.admin),
            size_or_none(disk.log_bytes),
            size_or_none(disk.growth_bytes_per_day),
            None if disk.window_seconds is None else Seconds(round(disk.window_seconds, 1)),
            size_or_none(disk.size_bytes),
            size_or_none(disk.free_bytes),
            size_or_none(disk.reserve_bytes),
            days_or_none(disk.days_to_full),
            disk.full,
            "its disk is full" if disk.full else None,
        )
    return listing


def _partitions(statuses: list[storage_admin.NodeStatus]) -> Listing:
    listing = Listing("partitions", "Partitions", ["Node", "Partition", "Log bytes", "Last transaction"])
    for status in statuses:
        for p in status.partitions:
            listing.add(str(status.admin), p.partition_id, size_or_none(p.log_bytes), p.max_transaction_id)
    return listing
