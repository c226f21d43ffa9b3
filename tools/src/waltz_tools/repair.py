"""Two repairs that an administrator asks for by name, because no process may do them by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from waltz_cluster.cluster_params import read_params
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.types import Endpoint
from waltz_tools.errors import ToolError, UsageError


async def forget_replica(
    store: ZooKeeperStore, root: str, node: Endpoint, partitions: Sequence[int]
) -> list[int]:
    """Remove a node from the old quorum of partitions whose recovery is undecidable; the partitions changed.

    Each partition's metadata is written under its version check: a server that goes on meanwhile wins, and the error says
    so. Transactions that only the forgotten replica holds are lost. ToolError when a partition has no metadata;
    UnknownReplicaError, LastReplicaError from the store's rules.
    """
    from waltz_server.store.replica_states import forget_replica as without  # installed where servers are

    _, params = await read_params(store, root)
    wrong = [partition for partition in partitions if partition >= params.num_partitions]
    if wrong:
        raise UsageError(f"there is no partition {wrong[0]}: the cluster has {params.num_partitions}")
    metadata = StoreMetadata(store, root)
    changes = []
    for partition in partitions:
        current, version = await metadata.read_partition(partition)
        if current is None:
            raise ToolError(f"partition {partition} has no metadata: nothing can be forgotten")
        changes.append((partition, without(current, str(node)), version))
    for partition, changed, version in changes:
        await metadata.write_partition(partition, changed, version)
    return [partition for partition, _, _ in changes]


def restore_reset(directory: Path, partitions: Sequence[int] | None) -> list[int]:
    """Reset what the control file of a restored storage directory says of store sessions; the partitions reset.

    The node must be stopped (its lock is taken); None = all assigned partitions. Doing it twice is fine.
    """
    from waltz_storage.engine.storage_manager import reset_for_restore  # installed where storage nodes are

    return reset_for_restore(str(directory), partitions)
