"""Store metadata: parameters, versions, proof of a fresh partition, following the replica assignments."""

import asyncio
import uuid

import pytest

from cluster_tests.manager_helpers import seed, until
from waltz_cluster.cluster_params import read_cluster_params, read_params, read_store_params
from waltz_cluster.errors import (
    ClusterMismatchError,
    ClusterNotFoundError,
    NodeExistsError,
    SerializationError,
    VersionConflictError,
)
from waltz_cluster.memory_store import Fault, MemoryZooKeeper
from waltz_cluster.partition_metadata import NO_VERSION, StoreMetadata
from waltz_cluster.serializers import (
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
    StoreParams,
)
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.types import PartitionId

KEY = uuid.UUID(int=7)
P0 = PartitionId(0)


async def full(store: ZooKeeperStore, root: str) -> StoreMetadata:
    await seed(store, root, 2)
    await store.set(f"{root}/store", StoreParams(KEY, 2).to_bytes())
    await store.create(f"{root}/store/assignment", ReplicaAssignments({"a:1": (P0,)}).to_bytes())
    await store.create(f"{root}/store/group", GroupDescriptor({"a:1": 0}).to_bytes())
    await store.create(f"{root}/store/connection", ConnectionMetadata({"a:1": 2}).to_bytes())
    return StoreMetadata(store, root)


async def test_reading_the_maps(store: ZooKeeperStore, root: str) -> None:
    metadata = await full(store, root)
    assert await metadata.store_params() == StoreParams(KEY, 2)
    assert (await metadata.replica_assignments()).replicas_of(0) == ("a:1",)
    assert (await metadata.groups()).groups == {"a:1": 0}
    assert (await metadata.connections()).admin_ports == {"a:1": 2}
    assert await read_params(store, root) == (ClusterParams("test", 2), StoreParams(KEY, 2))


async def test_partition_metadata_under_version_checks(store: ZooKeeperStore, root: str) -> None:
    metadata = await full(store, root)
    assert await metadata.read_partition(0) == (None, NO_VERSION)
    await metadata.create_partition(0, PartitionMetadata())
    with pytest.raises(NodeExistsError):
        await metadata.create_partition(0, PartitionMetadata())
    assert await metadata.read_partition(0) == (PartitionMetadata(), 0)
    value = PartitionMetadata(1, 0, {"a:1": ReplicaState(P0, "a:1", 0)})
    assert await metadata.write_partition(0, value, 0) == 1
    with pytest.raises(VersionConflictError):
        await metadata.write_partition(0, value, 0)
    assert await metadata.read_partition(0) == (value, 1)
    for version in (-1, NO_VERSION):
        with pytest.raises(ValueError, match="version check"):
            await metadata.write_partition(0, value, version)
    await store.set(f"{root}/store/partition/0", b"")
    with pytest.raises(SerializationError):
        await metadata.read_partition(0)


async def test_zookeeper_6_11_lost_metadata_is_told_from_a_fresh_partition(
    store: ZooKeeperStore, root: str
) -> None:
    metadata = await full(store, root)
    assert await metadata.never_started(0)
    await metadata.create_partition(0, PartitionMetadata())
    assert not await metadata.never_started(0)
    assert await metadata.never_started(1)
    await store.delete(f"{root}/store/partition/0")
    assert not await metadata.never_started(0)
    assert not await metadata.never_started(1)  # which one was deleted is not known: unknown means no


async def test_what_is_missing_is_one_clear_line(store: ZooKeeperStore, root: str) -> None:
    with pytest.raises(ClusterNotFoundError, match="there is no cluster at"):
        await read_cluster_params(store, root)
    await store.create(root, None)
    with pytest.raises(ClusterNotFoundError, match="is not the root of a cluster"):
        await read_cluster_params(store, root)
    with pytest.raises(ClusterNotFoundError, match="there is no store"):
        await read_store_params(store, root)
    await store.create(f"{root}/store", None)
    with pytest.raises(ClusterNotFoundError, match="does not hold store parameters"):
        await read_store_params(store, root)
    await store.set(root, ClusterParams("x", 3).to_bytes())
    await store.set(f"{root}/store", StoreParams(KEY, 4).to_bytes())
    with pytest.raises(ClusterMismatchError, match="3 partitions, its store 4"):
        await read_params(store, root)


async def test_following_the_replica_assignments(store: ZooKeeperStore, root: str) -> None:
    metadata = await full(store, root)
    seen: list[ReplicaAssignments] = []
    watcher = metadata.watch_replica_assignments(seen.append)
    async with asyncio.TaskGroup() as group:
        group.create_task(watcher.run())
        await until(lambda: len(seen) == 1)
        await store.set(f"{root}/store/assignment", ReplicaAssignments({}).to_bytes())
        await until(lambda: len(seen) == 2)
        await store.set(f"{root}/store/assignment", ReplicaAssignments({}).to_bytes())
        await store.set(f"{root}/store/assignment", ReplicaAssignments({"b:1": ()}).to_bytes())
        await until(lambda: len(seen) == 3)
        watcher.close()
    assert [list(one.nodes) for one in seen] == [["a:1"], [], ["b:1"]]


@pytest.mark.looptime
async def test_following_survives_errors_and_session_loss() -> None:
    zookeeper = MemoryZooKeeper()
    store = zookeeper.session()
    metadata = await full(store, "/w")
    faults = [Fault.LOSE_REPLY, Fault.LOSE_REQUEST]
    store.fault = lambda name, path: faults.pop() if faults else None
    seen: list[ReplicaAssignments] = []
    watcher = metadata.watch_replica_assignments(seen.append)
    async with asyncio.TaskGroup() as group:
        group.create_task(watcher.run())
        await until(lambda: len(seen) == 1)
        store.expire(reconnect_after_seconds=5.0)
        await zookeeper.session().set("/w/store/assignment", b"broken")
        await asyncio.sleep(10.0)
        assert len(seen) == 1
        await zookeeper.session().set("/w/store/assignment", ReplicaAssignments({"b:1": ()}).to_bytes())
        await until(lambda: len(seen) == 2)
        watcher.close()
