"""One storage node under two names is never taken for two, and two nodes never for one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import UUID, uuid4

import pytest

from admin_tests.fake_processes import FakeNode
from waltz_admin import assignments, nodes, seeding, storage_admin
from waltz_admin.errors import AdminError, StorageNodeError, UnsafeChangeError
from waltz_admin.replace import NodeReplacement
from waltz_admin.same_node import NodeProcess, check_new_node
from waltz_admin.tree import read_maps
from waltz_admin.verify import Check, verify_cluster
from waltz_cluster.cluster_params import read_params
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import UNRESOLVED, Endpoint, PartitionId, SessionInfo

ROOT = "/waltz"
NO_TLS = TlsSettings(enabled=False)


class Cluster:
    """Storage nodes, each known and with a current copy of partition 0, and ZooKeeper."""

    def __init__(self, store: MemoryStore, key: UUID, stack: AsyncExitStack) -> None:
        self.store = store
        self.key = key
        self.known: list[FakeNode] = []
        self._stack = stack

    async def start(self, process_id: UUID | None) -> FakeNode:
        node = FakeNode(self.key, {0: True}, SessionInfo(3, -1, -1), process_id=process_id)
        return await self._stack.enter_async_context(node.running())

    async def add(self, node: FakeNode) -> FakeNode:
        await nodes.add_storage_node(self.store, ROOT, node.connect_string, node.admin_port, len(self.known))
        self.known.append(node)
        return node

    async def session(self, *replicas: FakeNode) -> None:
        """Assign the partition to these, and write down a session of theirs."""
        for node in replicas:
            await assignments.assign(self.store, ROOT, [0], node.connect_string, tls=NO_TLS)
        states = {
            node.connect_string: ReplicaState(PartitionId(0), node.connect_string, 3, UNRESOLVED)
            for node in replicas
        }
        await StoreMetadata(self.store, ROOT).create_partition(0, PartitionMetadata(1, 3, states))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 1)
    _, params = await read_params(store, ROOT)
    async with AsyncExitStack() as stack:
        yield Cluster(store, params.cluster_key, stack)


def replacement(cluster: Cluster, old: FakeNode, new: str, admin_port: int) -> NodeReplacement:
    return NodeReplacement(cluster.store, ROOT, old.connect_string, new, admin_port, tls=NO_TLS)


@pytest.mark.parametrize("process_id", [uuid4(), None])
@pytest.mark.parametrize("run", [False, True])
async def test_a_node_is_not_replaced_with_itself_under_another_name(
    cluster: Cluster, run: bool, process_id: UUID | None
) -> None:
    old = await cluster.add(await cluster.start(process_id))
    await cluster.session(old)
    old.orders.clear()
    alias = replacement(cluster, old, f"localhost:{old.storage_port}", old.admin_port)
    with pytest.raises(StorageNodeError, match=f"is the storage node {old.connect_string}, which is known"):
        await (alias.run() if run else alias.plan())
    assert (old.orders, old.status) == ([], {0: True})
    assert list((await read_maps(cluster.store, ClusterPaths(ROOT))).groups) == [old.connect_string]


async def test_a_name_of_a_node_that_does_not_answer_is_known_by_its_address(cluster: Cluster) -> None:
    await nodes.add_storage_node(cluster.store, ROOT, "127.0.0.1:1", 2, 0)
    for name, admin_port in (("localhost:1", 2), ("localhost:1", 3), ("LOCALHOST:3", 2), ("localhost:3", 1)):
        with pytest.raises(StorageNodeError, match=r"is the storage node 127\.0\.0\.1:1"):
            await check_new_node(cluster.store, ROOT, NO_TLS, name, admin_port)
    await check_new_node(cluster.store, ROOT, NO_TLS, "localhost:3", 4)
    await check_new_node(cluster.store, ROOT, NO_TLS, "127.0.0.1:1", 2)  # itself: the same call again
    await check_new_node(cluster.store, ROOT, NO_TLS, "no-such-host.invalid:1", 2)


async def test_two_who_add_one_node_under_two_names_at_once_add_it_once(cluster: Cluster) -> None:
    node = await cluster.start(uuid4())

    async def added(name: str) -> bool:
        store = cluster.store._server.session()
        return await nodes.add_storage_node(store, ROOT, name, node.admin_port, 1, tls=NO_TLS)

    names = (node.connect_string, f"localhost:{node.storage_port}")
    found = await asyncio.gather(*map(added, names), return_exceptions=True)
    assert {type(one) for one in found} == {StorageNodeError, bool}
    assert len((await read_maps(cluster.store, ClusterPaths(ROOT))).names) == 1


async def test_a_node_behind_another_address_is_known_by_its_process(cluster: Cluster) -> None:
    """As behind NAT, or on a machine with two addresses."""
    known = await cluster.add(await cluster.start(uuid4()))
    alias, other = await cluster.start(known.process_id), await cluster.start(uuid4())
    with pytest.raises(StorageNodeError, match=f"is the storage node {known.connect_string}"):
        await check_new_node(cluster.store, ROOT, NO_TLS, alias.connect_string, alias.admin_port)
    await check_new_node(cluster.store, ROOT, NO_TLS, other.connect_string, other.admin_port)


async def test_a_storage_port_and_an_admin_port_of_two_processes_are_no_node(cluster: Cluster) -> None:
    known = await cluster.add(await cluster.start(uuid4()))
    one, other = await cluster.start(uuid4()), await cluster.start(uuid4())
    for admin_port in (other.admin_port, known.admin_port):
        with pytest.raises(StorageNodeError, match="belong to two processes"):
            await check_new_node(cluster.store, ROOT, NO_TLS, one.connect_string, admin_port)


def test_nodes_that_state_different_processes_are_never_the_same() -> None:
    """A name in the DNS may still lead to the address of a pod that is gone, which another one has by now."""
    address = frozenset({("10.0.0.1", 7000)})
    one, other = (NodeProcess(address, frozenset({uuid4()})) for _ in range(2))
    assert not one.is_same(other)
    assert one.is_same(one)
    assert one.is_same(NodeProcess(address, frozenset()))
    assert not one.is_same(NodeProcess(frozenset({("10.0.0.1", 7001)}), frozenset()))


@pytest.mark.parametrize(("name", "admin_port"), [("h:3", 2), ("h:2", 4), ("h:4", 1)])
async def test_two_nodes_do_not_have_one_port(cluster: Cluster, name: str, admin_port: int) -> None:
    await nodes.add_storage_node(cluster.store, ROOT, "h:1", 2, 0)
    with pytest.raises(StorageNodeError, match="is a port of the storage node h:1 already"):
        await nodes.add_storage_node(cluster.store, ROOT, name, admin_port, 1)
    assert await nodes.add_storage_node(cluster.store, ROOT, "g:1", 2, 1)


async def aliased(cluster: Cluster, process_id: UUID) -> tuple[FakeNode, FakeNode]:
    """A node with the partition, and a second name of it that became known while it was stopped."""
    first, second = await cluster.start(process_id), await cluster.start(process_id)
    for node in (first, second):
        await cluster.add(node)
    return first, second


async def test_safety_a6_one_node_under_two_names_is_no_proof(cluster: Cluster) -> None:
    first, second = await aliased(cluster, uuid4())
    third = await cluster.add(await cluster.start(uuid4()))
    await cluster.session(first, third)
    with pytest.raises(UnsafeChangeError, match="are one storage node under two names"):
        await assignments.assign(cluster.store, ROOT, [0], second.connect_string, tls=NO_TLS)


async def test_one_of_two_names_is_given_up(cluster: Cluster) -> None:
    """What the refusal advises."""
    first, second = await aliased(cluster, uuid4())
    others = [await cluster.add(await cluster.start(uuid4())) for _ in range(3)]
    await cluster.session(first, second, *others)
    await assignments.unassign(
        cluster.store, ROOT, [0], second.connect_string, tls=NO_TLS, keep_group_copy=False
    )


async def test_safety_a6_a_copy_is_not_removed_under_another_name(cluster: Cluster) -> None:
    first, second = await aliased(cluster, uuid4())
    third = await cluster.add(await cluster.start(uuid4()))
    await cluster.session(first, third)
    for dry_run in (True, False):
        with pytest.raises(UnsafeChangeError, match="are one storage node under two names"):
            await storage_admin.remove_replica(
                cluster.store, ROOT, second.connect_string, 0, tls=NO_TLS, delete_files=True, dry_run=dry_run
            )
    assert (first.orders, second.orders) == ([], [])


async def test_verification_names_one_node_under_two_names(cluster: Cluster) -> None:
    first, second = await aliased(cluster, uuid4())
    await cluster.session(first, second)
    found = await verify_cluster(cluster.store, ROOT, tls=NO_TLS)
    (reason,) = {r.reason for r in found.failures if r.check is Check.STORAGE_CONSISTENCY}
    names = sorted((first.connect_string, second.connect_string))
    assert reason == f"{names[0]} and {names[1]} are one storage node under two names"


async def test_what_two_names_lead_to_is_no_surplus(cluster: Cluster) -> None:
    first, second = await aliased(cluster, uuid4())
    await cluster.session(first)
    report = await storage_admin.sync_partitions(cluster.store, ROOT, tls=NO_TLS)
    assert report.surplus == {second.connect_string: (0,)}
    with pytest.raises(AdminError, match="are one storage node under two names"):
        await storage_admin.sync_partitions(cluster.store, ROOT, tls=NO_TLS, remove_surplus=True)
    assert (first.orders, second.orders) == ([], [])


async def test_who_is_at_a_port_that_is_not_the_admin_port_of_this_cluster(cluster: Cluster) -> None:
    node = await cluster.start(uuid4())
    (found,) = await storage_admin.list_nodes(
        cluster.store, ROOT, NO_TLS, admin=Endpoint("127.0.0.1", node.storage_port)
    )
    assert (found.error or "").endswith("the peer closed the connection: is this the admin port?")
    assert not found.refused
    node.key = uuid4()
    (found,) = await storage_admin.list_nodes(cluster.store, ROOT, NO_TLS, admin=node.admin)
    assert "refused to open: wrong key" in (found.error or "")
    assert found.refused
