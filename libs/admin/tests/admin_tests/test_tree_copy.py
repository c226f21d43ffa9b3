"""The tree as a file and back, an import that dies at any write, and a tree made from what the nodes hold."""

from __future__ import annotations

import json
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from admin_tests.fake_processes import FakeNode
from waltz_admin import seeding
from waltz_admin.errors import AdminError, ClusterExistsError, StorageNodeError, UnsafeChangeError
from waltz_admin.found_tree import BrokenTree
from waltz_admin.rebuild_tree import ClusterGiven, NodeGiven, RebuiltTree, begun_number, rebuild_tree
from waltz_admin.tree_copy import behind, in_memory, read_tree, write_tree
from waltz_admin.tree_file import ClusterTree, Znode, decode, encode
from waltz_admin.view import ClusterView, probe
from waltz_cluster.errors import ConnectionLostError, ZnodeTooLargeError
from waltz_cluster.memory_store import Fault, MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.producers import ZooKeeperProducers
from waltz_cluster.request_size import BATCH_BYTES, MAX_REQUEST_BYTES, size_of
from waltz_cluster.serializers import (
    Checkpoint,
    Counter,
    PartitionAssignment,
    PartitionMetadata,
    ProducerRecord,
    ReplicaState,
    ServerDescriptor,
)
from waltz_cluster.store import CreateOp, Watch, ZnodeStat, ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import UNRESOLVED, Endpoint, Generation, PartitionId, Record, ReqId, SessionInfo

ROOT = "/waltz/n/c"
PATHS = ClusterPaths(ROOT)
AT = "2026-01-01T00:00:00+00:00"
NO_TLS = TlsSettings(enabled=False)
P = PartitionId(0)


async def test_a_copy_without_checkpoints_has_all_producers() -> None:
    store = await used()
    producers = ZooKeeperProducers(store, PATHS, random.Random(0))
    await producers.create("orders", ProducerRecord(7, 3, {0: Checkpoint(1, 2, 3), 1: Checkpoint(4, 5)}))
    await store.create(PATHS.producer("damaged"), b"\x09")
    tree = await read_tree(store, ROOT, AT)
    small = decode(encode(tree.without_checkpoints()))
    assert ProducerRecord.from_bytes(small.znodes["/producers/orders"].data) == ProducerRecord(7, 3)
    assert {path for path in tree.znodes if small.znodes[path] != tree.znodes[path]} == {"/producers/orders"}


async def used() -> MemoryStore:
    """A cluster of two partitions, the first of which ran session 7."""
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 2)
    metadata = StoreMetadata(store, ROOT)
    await metadata.create_partition(0, PartitionMetadata(-1, -1))
    states = {"a:1": ReplicaState(P, "a:1", 7, UNRESOLVED)}
    await metadata.write_partition(0, PartitionMetadata(4, 7, states), 0)
    await store.set(PATHS.server_ids, Counter(3).to_bytes())
    descriptor = ServerDescriptor(3, Endpoint("h", 1)).to_bytes()
    await store.create(PATHS.new_server_descriptor, descriptor, ephemeral=True, sequential=True)
    served = PartitionAssignment(1, 2, {3: ((P, Generation(4)), (PartitionId(1), Generation(2)))})
    await store.set(PATHS.server_descriptors, served.to_bytes())
    return store


async def exported() -> ClusterTree:
    return decode(encode(await read_tree(await used(), ROOT, AT)))


def empty() -> MemoryStore:
    return MemoryZooKeeper().session()


@pytest.mark.looptime
async def test_what_was_exported_is_there_again_and_belongs_to_no_server() -> None:
    tree = await exported()
    assert not [path for path in tree.znodes if path.startswith("/serverDescriptors/")], (
        "servers are not part"
    )
    store = empty()
    assert await write_tree(store, ROOT, tree)
    found = await probe(store, ROOT)
    assert isinstance(found, ClusterView)
    assert found.store == tree.params
    assert found.metadata[P] == PartitionMetadata(4, 7, {"a:1": ReplicaState(P, "a:1", 7, UNRESOLVED)})
    assert found.never_started == {PartitionId(1)}
    data, stat = await store.get(PATHS.server_descriptors)
    kept = PartitionAssignment.from_bytes(data)
    assert kept.servers[3] == ((P, Generation(4)), (PartitionId(1), Generation(2)))
    assert kept.cversion == -1, "made for no number of servers that may come"
    assert (await store.get(PATHS.server_ids))[1].version > 0, "it is known that it was used"
    assert stat.num_children == 0
    assert not await write_tree(store, ROOT, tree), "again: nothing to do"
    assert (await read_tree(store, ROOT, AT)).same_as(tree)


@pytest.mark.looptime
async def test_a_named_producer_is_part_of_an_export_and_keeps_its_client_id() -> None:
    store = await used()
    name, record = "orders", ProducerRecord(7, 2, {0: Checkpoint(-1, 40, 9)})
    await ZooKeeperProducers(store, PATHS, random.Random(0)).create(name, record)
    tree, target = decode(encode(await read_tree(store, ROOT, AT))), empty()
    assert await write_tree(target, "/elsewhere", tree)
    there = ZooKeeperProducers(target, ClusterPaths("/elsewhere"), random.Random(0))
    assert await there.find(name) == record
    (server,), _ = await store.get_children(PATHS.server_descriptors)
    await store.delete(f"{PATHS.server_descriptors}/{server}")
    await seeding.delete(store, ROOT, "demo", force=True)
    assert await store.exists(ROOT) is None


@pytest.mark.looptime
async def test_a_cluster_with_busy_producers_can_be_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is written each time the tree is read."""
    store, get, mark = await used(), MemoryStore.get, 0
    await ZooKeeperProducers(store, PATHS, random.Random(0)).create("orders", ProducerRecord(7, 1))

    async def busy(
        self: MemoryStore, path: str, watch: Watch | None = None
    ) -> tuple[bytes | None, ZnodeStat]:
        nonlocal mark
        if path == ROOT:
            mark += 1
            record = ProducerRecord(7, 1, {0: Checkpoint(0, mark)})
            await store.set(PATHS.producer("orders"), record.to_bytes())
        return await get(self, path, watch)

    monkeypatch.setattr(MemoryStore, "get", busy)
    await read_tree(store, ROOT, AT)


@pytest.mark.looptime
async def test_metadata_that_were_deleted_do_not_become_those_of_a_new_partition() -> None:
    store = await used()
    await store.delete(PATHS.partition(0))
    tree = decode(encode(await read_tree(store, ROOT, AT)))
    other = empty()
    await write_tree(other, ROOT, tree)
    metadata = StoreMetadata(other, ROOT)
    assert not await metadata.never_started(0)
    assert not await metadata.never_started(1)
    assert (await read_tree(other, ROOT, AT)).same_as(tree)


class Dying:
    """An empty ZooKeeper whose client loses the connection at a write."""

    def __init__(self, at: int, fault: Fault) -> None:
        self.store, self.writes = empty(), 0
        self._at, self._fault = at, fault
        self.store.fault = self._hook

    def _hook(self, operation: str, path: str) -> Fault | None:
        self.writes += operation in ("create", "set", "delete", "transaction")
        return self._fault if self.writes == self._at else None


@pytest.mark.looptime
@pytest.mark.parametrize("fault", list(Fault))
async def test_an_import_that_dies_at_any_write_is_no_cluster_and_can_be_repeated(fault: Fault) -> None:
    store = await used()
    await store.delete(PATHS.partition(0))
    for tree in (await exported(), await read_tree(store, ROOT, AT)):
        for died in range(1, 100):
            target = Dying(died, fault)
            with suppress(ConnectionLostError):
                await write_tree(target.store, ROOT, tree)
            target.store.fault = None
            if target.writes < died:
                assert died > 3, "it is more than one write"
                break
            if not isinstance(await probe(target.store, ROOT), ClusterView):
                await write_tree(target.store, ROOT, tree)
            assert (await read_tree(target.store, ROOT, AT)).same_as(tree)


@pytest.mark.looptime
async def test_half_an_import_is_completed_by_this_file_alone() -> None:
    tree, target = await exported(), empty()
    await target.create(f"{ROOT}/ids", None, make_parents=True)
    await target.create(f"{ROOT}/ids/server", Counter(9).to_bytes())
    with pytest.raises(ClusterExistsError, match="not part of the tree to be written"):
        await write_tree(target, ROOT, tree)
    assert isinstance(await probe(target, ROOT), BrokenTree)


@pytest.mark.looptime
async def test_nothing_is_written_over_another_state_of_the_cluster() -> None:
    store = await used()
    tree = await read_tree(store, ROOT, AT)
    await StoreMetadata(store, ROOT).write_partition(0, PartitionMetadata(5, 8), 1)
    with pytest.raises(ClusterExistsError, match="in another state: nothing was changed"):
        await write_tree(store, ROOT, tree)
    assert (await StoreMetadata(store, ROOT).read_partition(0))[0] == PartitionMetadata(5, 8)


@pytest.mark.looptime
async def test_an_export_is_of_one_moment() -> None:
    store = await used()
    changes = 0

    def change(operation: str, path: str) -> Fault | None:
        nonlocal changes
        if operation == "get" and path == PATHS.client_ids and changes < 3:
            changes += 1
            store._server.set(PATHS.client_ids, Counter(100 + changes).to_bytes(), -1)
        return None

    store.fault = change
    tree = await read_tree(store, ROOT, AT)
    assert Counter.from_bytes(tree.znodes["/ids/client"].data).value == 103


@pytest.mark.looptime
async def test_a_file_that_is_damaged_foreign_or_of_another_version_is_refused() -> None:
    content = encode(await exported())
    body = json.loads(content)
    with pytest.raises(AdminError, match="checksum"):
        decode(json.dumps(body | {"noneDeleted": False}).encode())
    with pytest.raises(AdminError, match="not all of it"):
        decode(content[:-20])
    with pytest.raises(AdminError, match="no export"):
        decode(b"[]")
    with pytest.raises(AdminError, match="version 2"):
        decode(json.dumps(body | {"version": 2}).encode())
    tree = await exported()
    for path in ("/a/b", "ids", "/../x", "/store//x"):
        with pytest.raises(AdminError, match="no place"):
            decode(encode(replace(tree, znodes={**tree.znodes, path: tree.znodes["/ids"]})))


# ---- what the nodes know


def records(count: int) -> list[Record]:
    return [Record(n, ReqId(1, 0, 0, n), 0, b"", 0) for n in range(count)]


class Nodes:
    """Storage nodes that hold partition 0 of a cluster of one partition, in session 5 with 8 records."""

    def __init__(self, store: ZooKeeperStore, found: list[FakeNode]) -> None:
        self.found, self.store = found, store

    def given(self, *numbers: int) -> list[NodeGiven]:
        return [NodeGiven(self.found[n].connect_string, self.found[n].admin_port, n) for n in numbers]

    async def rebuilt(
        self, *numbers: int, lost: tuple[int, ...] = (), copies: int = 3, first: int = 1000
    ) -> RebuiltTree:
        key = self.found[0].key
        given = ClusterGiven("demo", key, 1, copies, first)
        gone = [self.found[n].connect_string for n in lost]
        return await rebuild_tree(given, self.given(*numbers), gone, tls=NO_TLS, root=ROOT, at=AT)


async def nodes(stack: AsyncExitStack, count: int = 3) -> Nodes:
    store = empty()
    params = (await seeding.create(store, ROOT, "demo", 1)).params
    found = [await stack.enter_async_context(FakeNode(params.cluster_key).running()) for _ in range(count)]
    for node in found:
        node.status[0] = True
        node.session, node.records = SessionInfo(5, 5, 5), records(8)
    return Nodes(store, found)


async def test_safety_a8_an_older_tree_is_named_before_it_is_imported() -> None:
    async with AsyncExitStack() as stack:
        there = await nodes(stack)
        made = (await there.rebuilt(0, 1, 2)).tree
        store = await in_memory(made, ROOT)
        metadata = StoreMetadata(store, ROOT)
        states = {n.connect_string: ReplicaState(P, n.connect_string, 3) for n in there.found}
        await metadata.write_partition(
            0, PartitionMetadata(1, 3, states), (await metadata.read_partition(0))[1]
        )
        older = await read_tree(store, ROOT, AT)
        late = await behind(older, ROOT, NO_TLS)
        assert late.partitions[0].keys() == set(states)
        assert "session 5" in next(iter(late.partitions[0].values()))
        assert (await behind(made, ROOT, NO_TLS)).partitions == {}


async def test_safety_a8_a_tree_made_from_the_nodes_lets_those_of_the_last_session_decide() -> None:
    async with AsyncExitStack() as stack:
        there = await nodes(stack)
        there.found[2].session = SessionInfo(4, 2, 2)
        made = await there.rebuilt(0, 1, 2)
        (one,) = made.partitions
        assert set(one.after.replicas) == {there.found[n].connect_string for n in (0, 1)}
        assert one.after.session_id >= 5
        store = await in_memory(made.tree, ROOT)
        found = await probe(store, ROOT)
        assert isinstance(found, ClusterView)
        assert found.metadata[P] == one.after
        assert Counter.from_bytes((await store.get(PATHS.client_ids))[0]).value == 1000
        assert found.assignment.servers[0] == ((P, Generation(1000)),)


async def test_safety_a8_a_silent_or_forgotten_node_stops_a_rebuild() -> None:
    async with AsyncExitStack() as stack:
        there = await nodes(stack)
        with pytest.raises(UnsafeChangeError, match="3 copies are to be found"):
            await there.rebuilt(0, 1)
        gone = FakeNode(there.found[0].key)
        async with gone.running():
            there.found.append(gone)
        with pytest.raises(UnsafeChangeError, match="does not answer"):
            await there.rebuilt(0, 1, 3)
        assert (await there.rebuilt(0, 1, 3, lost=(3,))).partitions, "two of three decide"
        with pytest.raises(UnsafeChangeError):
            await there.rebuilt(0, 3, lost=(3,))
        with pytest.raises(UnsafeChangeError, match="answers with a copy"):
            await there.rebuilt(0, 1, 2, lost=(2,))


@pytest.mark.parametrize("process_id", [uuid4(), None])
async def test_safety_a8_a_node_under_two_names_is_not_counted_for_a_forgotten_one(
    process_id: UUID | None,
) -> None:
    """Record 8 is on the third node, which is forgotten, and was on the second, which is lost."""
    async with AsyncExitStack() as stack:
        key = uuid4()
        known, forgotten = [
            await stack.enter_async_context(
                FakeNode(
                    key, {0: True}, SessionInfo(5, 5, 5), records(count), process_id=process_id
                ).running()
            )
            for count in (8, 9)
        ]
        first = NodeGiven(known.connect_string, known.admin_port, 0)
        other_name = NodeGiven(f"localhost:{known.storage_port}", known.admin_port, 1)
        wrong_port = replace(other_name, admin_port=1)
        lost = NodeGiven("127.0.0.1:2", 3, 2)
        given = ClusterGiven("demo", key, 1, 3, 1000)

        async def rebuilt(*named: NodeGiven, gone: tuple[NodeGiven, ...] = (lost,)) -> RebuiltTree:
            names = [one.connect_string for one in gone]
            return await rebuild_tree(given, named, names, tls=NO_TLS, root=ROOT, at=AT)

        with pytest.raises(StorageNodeError, match="are one storage node under two names"):
            await rebuilt(first, other_name, lost)
        with pytest.raises(StorageNodeError, match="are one storage node under two names"):
            await rebuilt(first, wrong_port, lost, gone=(lost, wrong_port))
        lost_again = NodeGiven("localhost:2", 4, 1)
        with pytest.raises(StorageNodeError, match="are one storage node under two names"):
            await rebuilt(first, lost, lost_again, gone=(lost, lost_again))
        third = NodeGiven(forgotten.connect_string, forgotten.admin_port, 1)
        if process_id is None:
            (one,) = (await rebuilt(first, third, lost)).partitions
            assert third.connect_string in one.after.replicas


async def test_safety_a8_two_nodes_of_a_rebuild_have_no_port_in_common() -> None:
    async with AsyncExitStack() as stack:
        there = await nodes(stack)
        first, second, third = there.given(0, 1, 2)
        given = ClusterGiven("demo", there.found[0].key, 1, 2, 1000)

        async def rebuilt(*named: NodeGiven) -> RebuiltTree:
            return await rebuild_tree(given, named, (), tls=NO_TLS, root=ROOT, at=AT)

        with pytest.raises(StorageNodeError, match="is a port of the storage node"):
            await rebuilt(first, NodeGiven("127.0.0.1:9", first.admin_port, 2))
        with pytest.raises(StorageNodeError, match="the admin port must differ"):
            await rebuilt(first, NodeGiven("h:9", 9, 2))
        with pytest.raises(AdminError, match="named twice"):
            await rebuilt(first, first)
        with pytest.raises(StorageNodeError, match="belong to two processes"):
            await rebuilt(first, replace(second, admin_port=third.admin_port))


async def test_a_node_that_refuses_the_key_is_not_to_be_named_as_lost() -> None:
    async with AsyncExitStack() as stack:
        there = await nodes(stack, 2)
        wrong = ClusterGiven("demo", uuid4(), 1, 2, 1000)
        with pytest.raises(UnsafeChangeError, match="answers, and is not of this cluster") as refusal:
            await rebuild_tree(wrong, there.given(0, 1), (), tls=NO_TLS, root=ROOT, at=AT)
        assert "do not name it with --lost" in str(refusal.value)
        assert "bring it back" not in str(refusal.value)


async def test_safety_a2_that_a_partition_was_never_used_needs_a_majority() -> None:
    async with AsyncExitStack() as stack:
        there = await nodes(stack)
        for node in there.found:
            node.session, node.records = SessionInfo(-1, -1, -1), []
        made = await there.rebuilt(0, 1, 2)
        assert made.unused == (0,)
        gone = [FakeNode(there.found[0].key) for _ in range(2)]
        for one in gone:
            async with one.running():
                there.found.append(one)
        assert (await there.rebuilt(0, 1, 3, lost=(3,))).unused == (0,)
        with pytest.raises(UnsafeChangeError, match="not proven that it never"):
            await there.rebuilt(0, 3, 4, lost=(3, 4))


@pytest.mark.looptime
@pytest.mark.parametrize("fault", list(Fault))
async def test_a_rebuild_that_dies_at_any_write_is_completed_later(fault: Fault) -> None:
    """Its numbers come from the clock: the tree that has begun says which they were."""
    async with AsyncExitStack() as stack:
        there = await nodes(stack)
        made = {first: (await there.rebuilt(0, 1, 2, first=first)).tree for first in (1000, 1005)}
        for died in range(1, 100):
            target = Dying(died, fault)
            with suppress(ConnectionLostError):
                await write_tree(target.store, ROOT, made[1000])
            target.store.fault = None
            begun = await begun_number(target.store, ROOT)
            assert begun in (None, 1000)
            written = await write_tree(target.store, ROOT, made[begun or 1005])
            assert (await read_tree(target.store, ROOT, AT)).same_as(made[begun or 1005])
            if target.writes < died:
                assert not written
                return
    raise AssertionError("it never ends")


async def test_the_numbers_of_a_tree_that_was_used_or_not_rebuilt_are_not_taken() -> None:
    store = empty()
    assert await begun_number(store, ROOT) is None
    await seeding.create(store, ROOT, "demo", 1)
    assert await begun_number(store, ROOT) is None, "counters that begin at 0"
    await store.set(PATHS.client_ids, Counter(1000).to_bytes())
    await store.set(PATHS.server_ids, Counter(1001).to_bytes())
    assert await begun_number(store, ROOT) is None
    await store.set(PATHS.client_ids, Counter(1001).to_bytes())
    assert await begun_number(store, ROOT) is None, "it was counted up"


async def test_a_tree_that_is_in_use_after_its_rebuild_stays_without_advice_to_delete_it() -> None:
    async with AsyncExitStack() as stack:
        there = await nodes(stack)
        made = (await there.rebuilt(0, 1, 2)).tree
        store = empty()
        await write_tree(store, ROOT, made)
        await store.set(PATHS.client_ids, Counter(1001).to_bytes())
        with pytest.raises(ClusterExistsError, match="If it works it has to stay as it is"):
            await write_tree(store, ROOT, made)
        with pytest.raises(ClusterExistsError, match="there is another cluster at"):
            await write_tree(store, ROOT, await exported())


@pytest.mark.looptime
async def test_an_import_of_a_znode_that_zookeeper_does_not_take_writes_nothing() -> None:
    """As from an ensemble that is configured to take more."""
    tree, target = await exported(), empty()
    producers = tree.znodes | {"/producers": Znode(b"", False)}
    large = replace(tree, znodes=producers | {"/producers/orders": Znode(bytes(MAX_REQUEST_BYTES), False)})
    with pytest.raises(
        ZnodeTooLargeError, match=f"{ROOT}/producers/orders would have {MAX_REQUEST_BYTES} bytes"
    ):
        await write_tree(target, ROOT, large)
    assert await target.get_children("/") == ([], ZnodeStat(0, 0, 0))
    path = (
        f"{ROOT}/producers/orders"  # just what a write takes, and it is made empty and written in one request
    )
    most = bytes(MAX_REQUEST_BYTES - size_of([CreateOp(path, b"")]))
    large = replace(tree, znodes=producers | {"/producers/orders": Znode(most, True)})
    with pytest.raises(ZnodeTooLargeError, match="2 changes"):
        await write_tree(target, ROOT, large)
    assert await target.get_children("/") == ([], ZnodeStat(0, 0, 0))


@pytest.mark.looptime
async def test_an_import_never_joins_more_than_zookeeper_takes() -> None:
    tree, target = await exported(), empty()
    sizes = (BATCH_BYTES - 1000, MAX_REQUEST_BYTES - 10_000, 5, MAX_REQUEST_BYTES - 10_000, 5)
    made = {f"/producers/p{number}": Znode(bytes(size), False) for number, size in enumerate(sizes)}
    assert await write_tree(
        target, ROOT, replace(tree, znodes=tree.znodes | {"/producers": Znode(b"", False)} | made)
    )
    for path, znode in made.items():
        assert (await target.get(ROOT + path))[0] == znode.data
