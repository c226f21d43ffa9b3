"""What ZooKeeper, storage nodes and servers said, turned into the values of `snapshot`."""

from __future__ import annotations

from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_admin.load import ServerLoad
from waltz_admin.reports import DOES_NOT_REPORT, ServerReport
from waltz_admin.server_admin import ServerInspection
from waltz_admin.storage_admin import NodeInspection
from waltz_admin.view import ClusterView
from waltz_cluster.replica_rules import NeverStarted
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.model.snapshot import (
    NOT_ASKED,
    NodeReplica,
    NodeView,
    ServerView,
    TreeView,
    Unknown,
)
from waltz_protocol.types import PartitionId


def tree_view(found: ClusterView | NoTree | BrokenTree) -> TreeView | NoTree | BrokenTree:
    """All three are positive answers of ZooKeeper."""
    if not isinstance(found, ClusterView):
        return found
    registered = {server.server_id: str(server.endpoint) for server in found.servers}
    owners = {}
    if found.assignment_current:
        for partition_id in range(found.params.num_partitions):
            servers = found.owners(partition_id)
            if len(servers) == 1 and servers[0] in registered:
                owners[partition_id] = servers[0]
    return TreeView(
        found.params.name,
        found.store.cluster_key,
        found.params.num_partitions,
        dict(found.nodes.groups),
        {node: tuple(int(p) for p in held) for node, held in found.nodes.partitions.items()},
        dict(found.nodes.admin_ports),
        found.nodes.versions,
        {int(p): _record(found, p) for p in found.metadata},
        registered,
        owners,
        {server.server_id: server for server in found.servers},
        found.assignment if found.assignment_current else None,
    )


def _record(found: ClusterView, partition_id: PartitionId) -> PartitionMetadata | NeverStarted | Unknown:
    metadata = found.metadata[partition_id]
    if isinstance(metadata, PartitionMetadata):
        return metadata
    if metadata is None:
        if partition_id in found.never_started:
            return NeverStarted()
        return Unknown(f"the metadata of partition {partition_id} existed and is missing")
    return Unknown(f"the metadata of partition {partition_id} cannot be read: {metadata}")


def node_view(found: NodeInspection, observed_at: float) -> NodeView:
    """Only partitions that are assigned on the node."""
    return NodeView(
        {
            int(p.partition_id): NodeReplica(
                p.available,
                int(p.session_id),
                int(p.low_water_mark),
                int(p.local_low_water_mark),
                p.max_transaction_id,
                p.partition_id in found.holds_mark,
                "it is out of service" if p.partition_id in found.out_of_service else "",
                found.log_bytes.get(p.partition_id),
            )
            for p in found.partitions
            if p.assigned
        },
        observed_at,
        found.disk_size_bytes,
        found.disk_free_bytes,
        found.certificate,
    )


def server_view(
    found: ServerInspection, observed_at: float, load: ServerLoad | Unknown = NOT_ASKED
) -> ServerView:
    return ServerView(
        found.partitions, dict(found.healthy), dict(found.reaches), observed_at, found.certificate, load
    )


def load_of(report: ServerReport) -> ServerLoad | Unknown:
    """A server of release 0.13.2, or of an earlier one of ours, reports none."""
    return report.load or Unknown(report.problem or DOES_NOT_REPORT)
