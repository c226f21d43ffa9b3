"""ZooKeeper was restored from an older copy: who is listed again, who is asked, and what is refused (rule
A8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from admin_tests.fake_processes import FakeNode, FakeServer
from waltz_admin import assignments, nodes, seeding
from waltz_admin.accept_restored import PartlyAcceptedError, _write, accept_restored, lowest_free_session
from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, StorageNodeError, UnsafeChangeError
from waltz_admin.restored_metadata import Nodes, NothingToAcceptError, Rebuilt, rebuild
from waltz_admin.same_node import check_distinct
from waltz_admin.tree import NodeMaps, read_maps
from waltz_admin.view import ClusterView, read_view
from waltz_cluster.memory_store import Fault, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import (
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
    ServerDescriptor,
    StoreParams,
)
from waltz_cluster.store import CreateOp, ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import UNRESOLVED, PartitionId, Record, ReqId, SessionInfo

ROOT = "/test"
P = PartitionId(0)
NO_TLS = TlsSettings(enabled=False)


def copy(
    session: int, low: int, last: int | None, local: int | None = None, fence: int | None = None
) -> NodePartition:
    return NodePartition(
        P,
        session,
        low,
        low if local is None else local,
        True,
        True,
        last,
        0,
        session if fence is None else fence,
    )


def recorded(session: int, **states: tuple[int, int]) -> PartitionMetadata:
    return PartitionMetadata(
        1, session, {name: ReplicaState(P, name, *state) for name, state in states.items()}
    )


ALL = (0, UNRESOLVED)
ABC = recorded(0, A=ALL, B=ALL, C=ALL)


def written(
    before: PartitionMetadata,
    assigned: str,
    held: dict[str, NodePartition],
    *,
    answering: str = "ABCDE",
    lost: Collection[str] = (),
    removed: Collection[str] = (),
) -> dict[str, tuple[int, int]]:
    found = rebuild(0, before, Nodes("ABCDE", assigned, answering, held, lost, removed))
    return {
        name: (state.session_id, state.closing_high_water_mark)
        for name, state in found.after.replicas.items()
    }


def test_safety_a8_who_was_taken_out_since_the_copy_has_no_voice() -> None:
    """Five replicas became three; 12 records are acknowledged by two of them, and the other three would be a
    majority of five."""
    five = recorded(0, **dict.fromkeys("ABCDE", ALL))
    old = copy(0, -1, 5)
    held = {"A": copy(1, 5, 12), "B": copy(1, 5, 12), "C": copy(1, 5, 9), "D": old, "E": old}
    assert written(five, "ABCDE", held) == dict.fromkeys("ABC", (1, UNRESOLVED))


def test_safety_a8_a_silent_node_may_know_of_a_later_session() -> None:
    """Replicas ABC became ABD, D holds an acknowledged record that B does not hold, and is down."""
    held = {"A": copy(1, 5, 12), "B": copy(1, 5, 9), "C": copy(0, -1, 5)}
    with pytest.raises(UnsafeChangeError, match="bring back: D, or name it with --lost"):
        written(ABC, "ABC", held, answering="ABCE")
    with pytest.raises(UnsafeChangeError, match="bring back: A"):  # it is not said what it holds
        written(ABC, "ABC", held | {"A": copy(1, 5, None)})
    assert written(ABC, "ABC", held, answering="ABCE", lost="D") == dict.fromkeys("ABD", (1, UNRESOLVED))


def test_safety_a8_a_copy_that_was_marked_and_not_filled_does_not_say_which_session_was_the_last() -> None:
    held = {"A": copy(1, 5, 12), "B": copy(1, 5, 12), "C": copy(2, 12, 5, 5)}
    before = recorded(1, A=(1, UNRESOLVED), B=(1, UNRESOLVED), C=(0, 5))
    found = rebuild(0, before, Nodes("ABC", "ABC", "ABC", held))
    assert {name: state.session_id for name, state in found.after.replicas.items()} == {"A": 1, "B": 1}
    assert found.after.session_id == 2


def test_safety_a8_one_that_took_part_alone_gets_another_beside_it() -> None:
    """An interrupted recovery marked A only. If its disk is lost now, another one still counts with all that
    it holds."""
    held = {"A": copy(3, 12, 12), "B": copy(1, 5, 12), "C": copy(1, 5, 11)}
    before = recorded(1, **dict.fromkeys("ABC", (1, UNRESOLVED)))
    assert written(before, "ABC", held) == {"A": (3, UNRESOLVED), "B": (1, UNRESOLVED)}
    del held["C"]
    listed = written(before, "ABC", held, answering="ABDE", lost="C")
    assert listed == {"A": (3, UNRESOLVED), "B": (1, 5), "C": (3, UNRESOLVED)}


def test_safety_a8_a_rolled_back_copy_counts_as_absent() -> None:
    """It is whole, and of an earlier session than even the older copy of ZooKeeper lists it for."""
    held = {"A": copy(2, 5, 12), "B": copy(2, 5, 12), "C": copy(0, -1, 5)}
    before = recorded(1, **dict.fromkeys("ABC", (1, UNRESOLVED)))
    assert written(before, "ABC", held) == dict.fromkeys("ABC", (2, UNRESOLVED))
    assert written(ABC, "ABC", held) == dict.fromkeys("AB", (2, UNRESOLVED))


def test_safety_a8_a_copy_that_lost_its_end_counts_as_absent() -> None:
    """It ends below the mark of its own node, so it cannot say what was acknowledged."""
    whole, cut = copy(2, 5, 12), copy(2, 5, 7, local=9)
    with pytest.raises(UnsafeChangeError, match=r"bring back: B, C\."):
        written(ABC, "ABC", {"A": whole, "C": cut}, lost="B", answering="ACDE")
    marked = copy(2, 9, 7, local=8)  # nor is it one that was only marked: it had been filled up to 8
    assert written(ABC, "ABC", {"A": whole, "B": whole, "C": marked}) == dict.fromkeys("ABC", (2, UNRESOLVED))


def test_safety_a8_a_damaged_copy_of_the_last_session_counts_whoever_zookeeper_lists() -> None:
    """ABC became ABD, A and D acknowledged up to 12, and D lost its end: B is needed, up to its mark only."""
    held = {"A": copy(2, 5, 12), "B": copy(1, 5, 9), "C": copy(0, -1, 5), "D": copy(2, 5, 4)}
    assert written(ABC, "ABC", held) == {"A": (2, UNRESOLVED), "B": (1, 5), "D": (2, UNRESOLVED)}


def test_safety_a8_of_those_who_join_the_latest_session_comes_first() -> None:
    held = {"A": copy(4, 12, 12), "B": copy(2, 8, 14), "C": copy(3, 9, 11)}
    assert written(ABC, "ABC", held) == {"A": (4, UNRESOLVED), "C": (3, UNRESOLVED)}


def test_safety_a8_session_ids_that_nodes_are_fenced_off_from_are_not_given_out_again() -> None:
    """But no session ever had a fence out of reach."""
    held = {"A": copy(2, 5, 12), "B": copy(2, 5, 12, fence=7), "C": copy(2, 5, 12, fence=2**40)}
    assert rebuild(0, ABC, Nodes("ABC", "ABC", "ABC", held)).after.session_id == 7


def test_what_is_named_and_is_not_so_is_refused() -> None:
    held = {"A": copy(1, 5, 12), "B": copy(1, 5, 9)}
    with pytest.raises(UnsafeChangeError, match="A is named as lost or removed, and answers with a copy"):
        written(ABC, "ABC", held, lost="A")
    with pytest.raises(UnsafeChangeError, match="C is named as lost or removed"):  # one of the first session
        written(ABC, "ABC", held | {"C": copy(0, -1, 5)}, lost="C")
    with pytest.raises(
        UnsafeChangeError, match="Z is not known to ZooKeeper: `waltz zk add-storage-node` first"
    ):
        written(ABC, "ABC", held, removed="Z")
    assert written(ABC, "ABC", held, removed="C") == dict.fromkeys("AB", (1, UNRESOLVED))


def test_too_few_that_know_anything_are_refused_with_what_to_do() -> None:
    held = {"A": copy(1, 5, 12)}
    with pytest.raises(UnsafeChangeError, match=r"bring back: B, C\. Name with --removed"):
        written(ABC, "ABC", held)
    with pytest.raises(UnsafeChangeError, match="bring back"):
        written(ABC, "ABC", held | {"B": copy(0, 3, 2), "C": copy(-1, -1, -1)}, lost="DE")
    with pytest.raises(NothingToAcceptError):
        written(ABC, "ABC", {"A": copy(0, -1, 5)})


def test_copies_that_were_only_marked_decide_nothing_alone() -> None:
    """A recovery marked B and C and did not fill them, and whoever held the records is gone."""
    held = {name: copy(5, 3, 0, local=0) for name in "BC"}
    with pytest.raises(UnsafeChangeError, match=r"it is not known what was acknowledged; bring back: A$"):
        written(ABC, "ABC", held)
    with pytest.raises(UnsafeChangeError, match=r"bring back: an earlier replica$"):
        written(ABC, "ABC", held | {"A": copy(5, 3, 0, local=0)})


def test_safety_a1_copies_that_were_all_reset_are_listed_and_decide_nothing() -> None:
    """As `waltz zk rebuild` finds them: the tree is there again, and each of them counts as absent."""
    held = {"A": copy(-1, -1, 7, fence=4), "B": copy(-1, -1, 9, fence=4), "C": copy(-1, -1, -1)}
    before = recorded(-1)
    assert written(before, "ABC", held) == dict.fromkeys("ABC", (0, UNRESOLVED))
    assert rebuild(0, before, Nodes("ABC", "ABC", "ABC", held)).after.session_id == 4
    with pytest.raises(UnsafeChangeError, match="it is not known what was acknowledged"):
        written(before, "ABC", held | {"C": copy(2, 5, 3)})


# ---- the command


@dataclass
class Cluster:
    store: ZooKeeperStore
    nodes: list[FakeNode]
    metadata: StoreMetadata


@asynccontextmanager
async def running(count: int = 3, assigned: int = 3, partitions: int = 1) -> AsyncIterator[Cluster]:
    store = MemoryZooKeeper().session()
    params = (await seeding.create(store, ROOT, "demo", partitions)).params
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(FakeNode(params.cluster_key).running()) for _ in range(count)
        ]
        for number, node in enumerate(found):
            await nodes.add_storage_node(store, ROOT, node.connect_string, node.admin_port, 0)
            if number < assigned:
                await assignments.assign(store, ROOT, [0], node.connect_string, tls=NO_TLS)
                node.status[0] = True
        yield Cluster(store, found, StoreMetadata(store, ROOT))


def records(count: int, client: int = 1, first: int = 0) -> list[Record]:
    return [Record(n, ReqId(client, 0, 0, n), 0, b"", 0) for n in range(first, count)]


async def test_safety_a8_what_changed_since_it_was_read_is_not_written_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as cluster:
        await cluster.metadata.create_partition(0, PartitionMetadata(1, 0))
        for node in cluster.nodes:
            node.session, node.records = SessionInfo(1, 5, 5), records(8)
        newer = PartitionMetadata(1, 7)

        async def read_before_a_write(store: ZooKeeperStore, root: str) -> ClusterView:
            view = await read_view(store, root)
            await cluster.metadata.write_partition(0, newer, view.metadata_versions[P])
            return view

        monkeypatch.setattr("waltz_admin.accept_restored.read_view", read_before_a_write)
        with pytest.raises(UnsafeChangeError, match="was changed meanwhile: nothing was written"):
            await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)
        assert (await cluster.metadata.read_partition(0))[0] == newer


async def test_safety_a8_a_copy_of_before_the_first_session_has_a_way_out() -> None:
    """It has no metadata of the partition; another one of which that is so and no node knows more is well."""
    async with running(partitions=2) as cluster:
        for node in cluster.nodes[:2]:
            node.session, node.records = SessionInfo(1, 5, 5), records(8)
        found, fine = await accept_restored(cluster.store, ROOT, [0, 1], tls=NO_TLS)
        assert fine == [1]
        assert found[0].after.session_id >= 1
        written, _ = await cluster.metadata.read_partition(0)
        assert written == found[0].after
        assert set(written.replicas) >= {node.connect_string for node in cluster.nodes[:2]}
        assert await cluster.metadata.never_started(1)
        with pytest.raises(NothingToAcceptError):
            await accept_restored(cluster.store, ROOT, [0, 1], tls=NO_TLS)


async def test_safety_a8_metadata_that_were_deleted_are_not_those_of_a_new_partition() -> None:
    async with running() as cluster:
        await cluster.metadata.create_partition(0, PartitionMetadata(1, 0))
        await cluster.store.delete(ClusterPaths(ROOT).partition(0))
        for node in cluster.nodes:
            node.session, node.records = SessionInfo(1, 5, 5), records(8)
        with pytest.raises(AdminError, match="has no metadata that can be read: restore any older copy"):
            await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)


async def test_safety_a8_a_first_session_that_begins_meanwhile_is_not_written_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as cluster:
        for node in cluster.nodes:
            node.session, node.records = SessionInfo(1, 5, 5), records(8)
        newer = PartitionMetadata(1, 7)

        async def read_before_a_write(store: ZooKeeperStore, root: str) -> ClusterView:
            view = await read_view(store, root)
            await cluster.metadata.create_partition(0, newer)
            return view

        monkeypatch.setattr("waltz_admin.accept_restored.read_view", read_before_a_write)
        with pytest.raises(UnsafeChangeError, match="was changed meanwhile: nothing was written"):
            await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)
        assert (await cluster.metadata.read_partition(0))[0] == newer


async def test_safety_a8_nothing_is_written_under_a_server_that_serves_the_partition() -> None:
    async with running() as cluster, FakeServer().running() as server:
        await cluster.metadata.create_partition(0, PartitionMetadata(1, 0))
        for node in cluster.nodes:
            node.session, node.records = SessionInfo(1, 5, 5), records(8)
        descriptor = ServerDescriptor(1, server.endpoint).to_bytes()
        await cluster.store.create(f"{ROOT}/serverDescriptors/s_", descriptor, ephemeral=True)
        server.health = {0: True}
        with pytest.raises(
            UnsafeChangeError, match="is serving it in a session that ZooKeeper has forgotten"
        ):
            await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)
        server.health = {0: False}
        assert (await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS))[0]


async def forgotten_session_of_two(cluster: Cluster) -> list[FakeNode]:
    """All three are listed for session 0; the first two hold records of session 1."""
    states = {n.connect_string: ReplicaState(P, n.connect_string, 0) for n in cluster.nodes}
    await cluster.metadata.create_partition(0, PartitionMetadata(1, 0, states))
    for node in cluster.nodes[:2]:
        node.session, node.records = SessionInfo(1, 5, 5), records(8)
    return cluster.nodes


async def test_safety_a8_a_partition_that_is_not_assigned_to_a_node_is_no_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as cluster:
        out = (await forgotten_session_of_two(cluster))[2]
        shown = out.metrics()
        shown["gauges"]["waltz-storage.partition-0.flags"]["value"] = 0
        monkeypatch.setattr(out, "metrics", lambda: shown)
        found, _ = await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)
        assert found[0].reasons[out.connect_string] == "does not hold the partition: counts as absent"


async def test_safety_a8_nodes_of_0_13_2_are_asked_for_their_last_record() -> None:
    """Their metrics do not name it, and their mark is -1 in the first session: it looks as if nothing was
    written."""
    async with running() as cluster:
        await cluster.metadata.create_partition(0, PartitionMetadata(1, 0))
        for node in cluster.nodes:
            node.session, node.records = SessionInfo(0, -1, -1), records(10)
        found, fine = await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)
        assert not fine
        assert [state.session_id for state in found[0].after.replicas.values()] == [0, 0, 0]


async def test_safety_a8_a_node_of_0_13_2_that_does_not_say_what_it_holds_counts_as_silent() -> None:
    async with running() as cluster:
        await cluster.metadata.create_partition(0, PartitionMetadata(1, 0))
        for node in cluster.nodes:
            node.session, node.records = SessionInfo(1, -1, -1), records(10)
        mute = cluster.nodes[1]
        mute.refuse_storage = "not now"
        with pytest.raises(
            UnsafeChangeError, match=f"bring back: {mute.connect_string} with its storage port, or stop"
        ):
            await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)


async def test_safety_a8_one_node_under_two_names_does_not_speak_twice() -> None:
    async with running(1) as cluster:
        (node,) = cluster.nodes
        other_name = f"localhost:{node.storage_port}"
        await cluster.metadata.create_partition(0, PartitionMetadata(1, 0))
        node.session, node.records = SessionInfo(1, 5, 5), records(8)
        await nodes.add_storage_node(cluster.store, ROOT, other_name, node.admin_port, 1)
        with pytest.raises(StorageNodeError, match="are one storage node under two names"):
            await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)
        with pytest.raises(StorageNodeError, match="are one storage node under two names"):
            await lowest_free_session(cluster.store, ROOT, 0, tls=NO_TLS)
        assert (await cluster.metadata.read_partition(0))[0] == PartitionMetadata(1, 0)


async def test_safety_a8_a_node_that_could_not_be_compared_counts_as_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answered when it was asked for its copies, and not when its process was asked for."""
    async with running() as cluster:
        node = (await forgotten_session_of_two(cluster))[2]

        async def compared(maps: NodeMaps, params: StoreParams, tls: TlsSettings) -> frozenset[str]:
            return await check_distinct(maps, params, tls) - {node.connect_string}

        monkeypatch.setattr("waltz_admin.accept_restored.check_distinct", compared)
        with pytest.raises(UnsafeChangeError, match=f"{node.connect_string} does not answer"):
            await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)


async def test_a_node_that_was_taken_out_is_no_longer_assigned() -> None:
    async with running() as cluster:
        a, b, out = await forgotten_session_of_two(cluster)
        out.status.clear()
        removed = [out.connect_string]
        found, _ = await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS, removed=removed)
        assert set(found[0].after.replicas) == {a.connect_string, b.connect_string}
        maps = await read_maps(cluster.store, ClusterPaths(ROOT))
        assert not maps.partitions[out.connect_string]


async def test_a_fence_is_lowered_only_while_no_other_node_is_silent() -> None:
    """The stopped node is not known as a replica, and another one is down: that one may know of a later
    session."""
    async with running(4) as cluster:
        states = {n.connect_string: ReplicaState(P, n.connect_string, 0) for n in cluster.nodes[:3]}
        await cluster.metadata.create_partition(0, PartitionMetadata(1, 4, states))
        for node in cluster.nodes:
            node.session, node.records = SessionInfo(0, -1, -1), records(3)
        assert await lowest_free_session(cluster.store, ROOT, 0, tls=NO_TLS) == 5
        cluster.nodes[1].session = SessionInfo(5, 2, 2)
        with pytest.raises(
            UnsafeChangeError, match=r"ZooKeeper is older than .*: run `waltz zk accept-restored`"
        ):
            await lowest_free_session(cluster.store, ROOT, 0, tls=NO_TLS)
        cluster.nodes[1].session = SessionInfo(0, -1, -1)
        cluster.nodes[3].refuse = "stopped"
        assert await lowest_free_session(cluster.store, ROOT, 0, tls=NO_TLS) == 5
        cluster.nodes[0].refuse = "down"
        with pytest.raises(UnsafeChangeError, match="all storage nodes but the stopped one must"):
            await lowest_free_session(cluster.store, ROOT, 0, tls=NO_TLS)


# ---- many partitions


async def older(store: ZooKeeperStore, root: str, count: int, name: str) -> list[Rebuilt]:
    """A cluster of so many partitions on three nodes; what is to be written: the first two nodes in every
    partition, and every second partition is taken from the third node."""
    paths, found = ClusterPaths(root), list[Rebuilt]()
    await seeding.create(store, root, "demo", count)
    all_three = [f"{name}{number}:1" for number in range(3)]
    for node in all_three:
        await nodes.add_storage_node(store, root, node, 2, 0)
    partitions = tuple(PartitionId(number) for number in range(count))
    await store.set(paths.assignment, ReplicaAssignments(dict.fromkeys(all_three, partitions)).to_bytes())
    for start in range(0, count, 100):
        chosen = partitions[start : start + 100]
        await store.transaction(
            [CreateOp(paths.partition(p), PartitionMetadata().to_bytes()) for p in chosen]
        )
    for partition in partitions:
        states = {node: ReplicaState(partition, node, 5) for node in all_three[:2]}
        out = tuple(all_three[2:]) if partition % 2 else ()
        found.append(
            Rebuilt(partition, PartitionMetadata(), PartitionMetadata(1, 6, states), {}, (), unassign=out)
        )
    return found


async def test_as_many_partitions_as_there_are_fit_into_transactions(
    store: ZooKeeperStore, root: str
) -> None:
    """More than ZooKeeper takes at once."""
    found = await older(store, root, 1200, "n" * 500)
    assert sum(len(one.after.to_bytes()) for one in found) > 2**20
    await _write(store, root, await read_view(store, root), found)
    view = await read_view(store, root)
    assert {p: view.metadata[PartitionId(p)] for p in range(1200)} == {
        one.partition_id: one.after for one in found
    }
    kept = [len(partitions) for _, partitions in sorted(view.nodes.partitions.items())]
    assert kept == [1200, 1200, 600]


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_what_was_written_before_an_error_is_named_and_the_rest_follows(
    fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltz_admin.accept_restored.BATCH_OPS", 2)
    store = MemoryZooKeeper().session()
    found = await older(store, ROOT, 6, "n")
    view = await read_view(store, ROOT)
    if fault is None:
        await store.set(ClusterPaths(ROOT).partition(3), PartitionMetadata(9, 9).to_bytes())
    else:
        store.fault = lambda operation, path: fault if store_writes(operation) == 2 else None
    writes = 0

    def store_writes(operation: str) -> int:
        nonlocal writes
        writes += operation == "transaction"
        return writes if operation == "transaction" else 0

    with pytest.raises(
        PartlyAcceptedError, match="2 of 6 partitions were written before, up to partition 1:"
    ):
        await _write(store, ROOT, view, found)
    store.fault = None
    view = await read_view(store, ROOT)
    left = [one for one in found if view.metadata[PartitionId(one.partition_id)] != one.after]
    assert len(left) == (2 if fault is Fault.LOSE_REPLY else 4)
    await _write(store, ROOT, view, left)
    view = await read_view(store, ROOT)
    assert all(view.metadata[PartitionId(one.partition_id)] == one.after for one in found)
    assert view.nodes.partitions["n2:1"] == (0, 2, 4)
