"""A copy is deleted with its data only while the others are proven to do without."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from admin_tests.fake_processes import FakeNode
from waltz_admin import assignments, nodes, seeding
from waltz_admin.delete_copies import delete_copies
from waltz_admin.errors import UnsafeChangeError
from waltz_admin.lock import AdminLock
from waltz_admin.verify import Check, verify_cluster
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint, PartitionId, SessionInfo

ROOT = "/waltz"
NO_TLS = TlsSettings(enabled=False)
SESSION = SessionInfo(5, -1, -1)
EMPTY = SessionInfo(-1, -1, -1)


@dataclass
class Cluster:
    """Three nodes with current copies of partition 0, and a fourth one that holds a copy that no list
    names. Partition 1 is assigned to the first three and was never started."""

    store: MemoryStore
    nodes: list[FakeNode]
    spare: FakeNode

    async def delete(self, admin: Endpoint, *partitions: int, dry_run: bool = False) -> None:
        await delete_copies(self.store, ROOT, admin, partitions or [0], tls=NO_TLS, dry_run=dry_run)

    async def refused(self, node: FakeNode, why: str, *partitions: int) -> None:
        """A dry run says the same."""
        held = dict(node.status)
        for dry_run in (True, False):
            with pytest.raises(UnsafeChangeError, match=why) as refusal:
                await self.delete(node.admin, *partitions, dry_run=dry_run)
            assert "--accept-data-loss" in str(refusal.value)
        assert node.status == held


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = MemoryZooKeeper().session()
    key = (await seeding.create(store, ROOT, "demo", 2)).params.cluster_key
    async with AsyncExitStack() as stack:
        fakes = [
            await stack.enter_async_context(FakeNode(key, {0: True, 1: True}, SESSION).running())
            for _ in range(4)
        ]
        *replicas, spare = fakes
        for node in replicas:
            node.other_sessions[1] = EMPTY
        for group, node in enumerate(replicas):
            await nodes.add_storage_node(store, ROOT, node.connect_string, node.admin_port, group)
            await assignments.assign(store, ROOT, [0, 1], node.connect_string)
            node.orders.clear()
        states = {n.connect_string: ReplicaState(PartitionId(0), n.connect_string, 5) for n in replicas}
        await StoreMetadata(store, ROOT).create_partition(0, PartitionMetadata(1, 5, states))
        yield Cluster(store, replicas, spare)


async def test_safety_a6_copies_of_a_majority_are_not_deleted_one_after_another(cluster: Cluster) -> None:
    """All of it within one store session: ZooKeeper still lists three replicas."""
    first, second, _ = cluster.nodes
    await cluster.delete(first.admin, dry_run=True)
    assert 0 in first.status
    await cluster.delete(first.admin)
    assert [order.delete_files for order in first.orders] == [True]
    await cluster.refused(second, f"{first.connect_string}: it does not have the partition")
    first.status[0], first.other_sessions[0] = True, EMPTY  # it is assigned again, and not yet filled
    await cluster.refused(second, f"{first.connect_string}: its disk was lost or is an older copy")
    first.other_sessions[0] = SESSION
    await cluster.delete(second.admin)
    assert 0 not in second.status


async def test_a_damaged_copy_is_deleted_while_the_others_are_current(cluster: Cluster) -> None:
    first, second, _ = cluster.nodes
    first.other_sessions[0] = None
    await cluster.delete(first.admin)
    await cluster.delete(first.admin)  # what a deletion left that did not come to its end
    assert [order.delete_files for order in first.orders] == [True, True]
    second.status[0] = False
    await cluster.refused(first, f"{second.connect_string}: it is switched off")


async def test_partitions_are_deleted_all_or_none(cluster: Cluster) -> None:
    first, second, _ = cluster.nodes
    second.status[0] = False
    await cluster.refused(first, "partition 0: ", 0, 1)
    await cluster.delete(first.admin, 1)  # it was never started: there is nothing to lose
    assert first.status == {0: True}
    second.other_sessions[1] = SessionInfo(3, -1, -1)  # ZooKeeper is an older copy
    await cluster.refused(second, "completed session 3, and ZooKeeper never gave out a session", 1)


async def test_a_node_is_known_by_every_name(cluster: Cluster) -> None:
    first, second, _ = cluster.nodes
    second.status[0] = False
    with pytest.raises(UnsafeChangeError, match="of the replicas that stay 1 are proven to be current"):
        await cluster.delete(Endpoint("localhost", first.admin_port))
    second.status[0] = True
    await cluster.delete(Endpoint("localhost", first.admin_port))
    assert 0 not in first.status


async def test_silent_nodes_are_asked_for_their_name_at_the_same_time(cluster: Cluster) -> None:
    waiting: list[asyncio.StreamWriter] = []
    met = False

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal met
        waiting.append(writer)
        if len(waiting) == 2:
            met = True
            for one in waiting:
                one.close()
        while await reader.read(1000):
            pass
        waiting.remove(writer)
        writer.close()

    async with AsyncExitStack() as stack:
        for number in (1, 2):
            server = await stack.enter_async_context(await asyncio.start_server(silent, "127.0.0.1", 0))
            port = server.sockets[0].getsockname()[1]
            await nodes.add_storage_node(cluster.store, ROOT, f"127.0.0.1:{number}", port, number)
        await cluster.delete(Endpoint("localhost", cluster.spare.admin_port))
    assert met


async def test_a_copy_that_no_list_names_is_deleted_when_it_is_not_needed(cluster: Cluster) -> None:
    for node in cluster.nodes[:2]:
        node.status[0] = False
    await cluster.refused(cluster.spare, "the copy on .* is kept")
    cluster.nodes[0].status[0] = True
    await cluster.delete(cluster.spare.admin)
    assert 0 not in cluster.spare.status


async def test_nobody_else_changes_anything_meanwhile(cluster: Cluster) -> None:
    locked: list[bool] = []
    first = cluster.nodes[0]

    class Orders(list[object]):
        def append(self, order: object) -> None:
            locked.append(ClusterPaths(ROOT).admin_lock in cluster.store._tree.tree())

    first.orders = Orders()
    await cluster.delete(first.admin)
    assert locked == [True]
    async with AdminLock(cluster.store, ClusterPaths(ROOT), wait_seconds=0):
        pass  # and it is given up


async def test_verify_does_not_count_copies_that_were_set_back(cluster: Cluster) -> None:
    """The node serves the partition, and its session is not that of the replica that ZooKeeper lists."""

    async def reason() -> str:
        report = await verify_cluster(cluster.store, ROOT, partition=0, tls=NO_TLS)
        return next(one.reason for one in report.results if one.check is Check.QUORUM)

    cluster.nodes[0].other_sessions[0] = EMPTY
    assert not await reason()
    cluster.nodes[1].other_sessions[0] = EMPTY
    assert (await reason()).startswith("1 of 3 replicas, 2 needed: ")
    assert "its disk was lost or is an older copy" in await reason()
