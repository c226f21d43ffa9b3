"""What a storage node reports about its partitions and its disk: by a node report where the node sends one
(docs/protocol.md), by its metrics and the status of its partitions elsewhere, which are megabytes of text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from waltz_admin.copies import NodePartition
from waltz_admin.disks import NodeDisk, disk_of, parse_disk
from waltz_admin.errors import AdminError
from waltz_admin.report_json import bounded, read_json, whole
from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.types import Endpoint, PartitionId

FLAG_AVAILABLE = 1
FLAG_ASSIGNED = 4


@dataclass(frozen=True, slots=True)
class NodeState:
    """All of a node, or what has changed since the last report on a connection.

    `held`: partition to available or not, also of those that could not be opened, which are not in `open`.
    `gone`: partitions of an earlier report that the node has no longer. `disk`: None where the node does not
    report it (release 0.13.2).
    """

    open: Mapping[int, NodePartition]
    held: Mapping[int, bool]
    gone: tuple[int, ...] = ()
    disk: NodeDisk | None = None

    @property
    def partitions(self) -> tuple[NodePartition, ...]:
        return tuple(self.open[number] for number in sorted(self.open))


async def read_state(connection: StorageAdminConnection) -> NodeState:
    """All of a node; WaltzProtocolError, OSError, or AdminError when it answers something else."""
    if connection.reports:
        return parse_report(connection.endpoint, await connection.report(everything=True))
    metrics = await connection.metrics()
    held = await connection.partition_status()
    return NodeState(
        {int(one.partition_id): one for one in parse_metrics(metrics)}, held, (), _disk(connection, metrics)
    )


def _disk(connection: StorageAdminConnection, metrics: Mapping[str, object]) -> NodeDisk | None:
    try:
        disk = parse_disk(metrics)
    except OverflowError as error:
        raise AdminError(f"storage node {connection.endpoint}: its disk's figures: {error}") from None
    if disk is not None and not all(map(bounded, astuple(disk))):
        raise AdminError(f"storage node {connection.endpoint}: a figure of its disk is beyond 64 bits")
    return disk


def parse_report(endpoint: Endpoint, text: str) -> NodeState:
    """A node report; AdminError when it is something else, or a number in it is beyond 64 bits. Pure."""
    try:
        report = read_json(text)
        partitions = {whole(number): state for number, state in report["partitions"].items()}
        return NodeState(
            {number: _partition(number, state) for number, state in partitions.items() if state is not None},
            {number: state is not None and bool(state[4]) for number, state in partitions.items()},
            tuple(whole(number) for number in report["gone"]),
            disk_of(report["disk"]),
        )
    except (
        ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        raise AdminError(f"storage node {endpoint}: its report cannot be read: {error}") from None


def _partition(number: int, state: list[int]) -> NodePartition:
    session, mark, local, flags, _, last, size, fence = state[:8]
    return NodePartition(
        PartitionId(number),
        whole(session),
        whole(mark),
        whole(local),
        bool(flags & FLAG_ASSIGNED),
        bool(flags & FLAG_AVAILABLE),
        whole(last),
        whole(size),
        whole(fence),
    )


def parse_metrics(metrics: dict[str, object]) -> tuple[NodePartition, ...]:
    """The partitions in the metrics message of the admin port; AdminError when it is something else. Pure."""

    def gauge(name: str) -> object:
        gauges = metrics.get("gauges")
        entry = gauges.get(f"waltz-storage.{name}") if isinstance(gauges, dict) else None
        if not isinstance(entry, dict) or "value" not in entry:
            raise AdminError(f"the storage node's metrics have no gauge {name}")
        return entry["value"]

    def number(name: str) -> int:
        value = gauge(name)
        if not isinstance(value, int) or not bounded(value):
            raise AdminError(f"the storage node's gauge {name} is not a number of 64 bits: {value!r:.40}")
        return value

    def reported(name: str) -> int | None:
        gauges = metrics.get("gauges")
        known = isinstance(gauges, dict) and f"waltz-storage.{name}" in gauges
        return number(name) if known else None

    ids = gauge("waltz-storage-partition-ids")
    if not isinstance(ids, list):
        raise AdminError(f"the storage node's list of partitions is not a list: {ids!r}")
    found = []
    for partition_id in sorted(int(one) for one in ids):
        prefix = f"partition-{partition_id}"
        flags = number(f"{prefix}.flags")
        found.append(
            NodePartition(
                PartitionId(partition_id),
                number(f"{prefix}.session-id"),
                number(f"{prefix}.low-water-mark"),
                number(f"{prefix}.local-low-water-mark"),
                bool(flags & FLAG_ASSIGNED),
                bool(flags & FLAG_AVAILABLE),
                reported(f"{prefix}.max-transaction-id"),
                reported(f"{prefix}.log-bytes"),
                reported(f"{prefix}.fence-session-id"),
            )
        )
    return tuple(found)
