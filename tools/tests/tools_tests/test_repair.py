"""Repairs that lose data only when asked to, and never by accident."""

import pytest

from waltz_admin import seeding
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import Endpoint, Generation, PartitionId, SessionId
from waltz_tools.errors import ToolError, UsageError
from waltz_tools.repair import forget_replica

ROOT = "/test"
LOST = Endpoint("h", 3)


def _metadata(*ports: int) -> PartitionMetadata:
    replicas = {f"h:{port}": ReplicaState(PartitionId(0), f"h:{port}", SessionId(4)) for port in ports}
    return PartitionMetadata(Generation(2), SessionId(4), replicas)


async def test_forgotten_replica_leaves_the_metadata_of_the_named_partitions_only() -> None:
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 3)
    metadata = StoreMetadata(store, ROOT)
    for partition in (0, 1):
        await metadata.create_partition(partition, _metadata(1, 2, 3))
    assert await forget_replica(store, ROOT, LOST, [0]) == [0]
    assert (await metadata.read_partition(0))[0] == _metadata(1, 2)
    assert (await metadata.read_partition(1))[0] == _metadata(1, 2, 3)


async def test_nothing_is_forgotten_when_one_partition_cannot_be_changed() -> None:
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 4)
    metadata = StoreMetadata(store, ROOT)
    await metadata.create_partition(0, _metadata(1, 2, 3))
    await metadata.create_partition(1, _metadata(3))
    with pytest.raises(Exception, match="last replica"):
        await forget_replica(store, ROOT, LOST, [0, 1])
    with pytest.raises(ToolError, match="partition 2 has no metadata"):
        await forget_replica(store, ROOT, LOST, [0, 2])
    with pytest.raises(Exception, match="h:9 is not a replica"):
        await forget_replica(store, ROOT, Endpoint("h", 9), [0])
    with pytest.raises(UsageError, match="no partition 4"):
        await forget_replica(store, ROOT, LOST, [0, 4])
    assert (await metadata.read_partition(0))[0] == _metadata(1, 2, 3)
