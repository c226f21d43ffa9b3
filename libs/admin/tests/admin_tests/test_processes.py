"""Admin ports, storage ports and client ports over real sockets: storage_admin, server_admin, verify, rule
A6's probe."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import pytest

from admin_tests.fake_processes import FakeNode, FakeServer
from waltz_admin import (
    assignments,
    node_state,
    nodes,
    offline_copy,
    seeding,
    server_admin,
    storage_admin,
    verify,
)
from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, UnreachableError, UnsafeChangeError
from waltz_admin.offline_copy import Progress
from waltz_admin.server_admin import ServerAdminConnection
from waltz_admin.tree_copy import in_memory, read_tree
from waltz_admin.tree_file import PARTITIONS
from waltz_admin.verify import Check
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.replica_rules import Answer, ReplicaAnswer
from waltz_cluster.serializers import (
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
    ServerDescriptor,
)
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.errors import TlsSettingsError
from waltz_protocol.types import Endpoint, Generation, PartitionId, Record, ReqId, SessionInfo, data_checksum

ROOT = "/waltz"
PLAIN = TlsSettings(enabled=False)
SESSION = SessionInfo(2**40, 9, 9)


def records(count: int) -> list[Record]:
    return [Record(i, ReqId(1, 1, 0, i), 0, b"x" * i, data_checksum(b"x" * i)) for i in range(count)]


@dataclass
class World:
    """Two partitions, three nodes, one server, everything in order."""

    store: MemoryStore
    nodes: list[FakeNode]
    server: FakeServer

    async def report(self, partition: int | None = None, timeout_seconds: float = 2.0) -> verify.VerifyReport:
        return await verify.verify_cluster(
            self.store, ROOT, partition=partition, timeout_seconds=timeout_seconds, tls=PLAIN
        )

    async def failed(self) -> dict[int, set[Check]]:
        report = await self.report()
        assert len(report.results) == 14
        assert report.passed == (not report.failures)
        found: dict[int, set[Check]] = {}
        for failure in report.failures:
            assert failure.reason
            found.setdefault(failure.partition_id, set()).add(failure.check)
        return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    store = MemoryZooKeeper().session()
    key = (await seeding.create(store, ROOT, "demo", 2)).params.cluster_key
    async with AsyncExitStack() as stack:
        fakes = [
            await stack.enter_async_context(FakeNode(key, {0: True, 1: True}, SESSION, records(12)).running())
            for _ in range(3)
        ]
        server = await stack.enter_async_context(FakeServer().running())
        for group, node in enumerate(fakes):
            await nodes.add_storage_node(store, ROOT, node.connect_string, node.admin_port, group)
            await assignments.assign(store, ROOT, [0, 1], node.connect_string)
        server.partitions = (0, 1)
        server.connectivity = {node.connect_string: True for node in fakes}
        server.health = {0: True, 1: True}
        await register(store, server, 1)
        metadata = StoreMetadata(store, ROOT)
        for p in (PartitionId(0), PartitionId(1)):
            states = {n.connect_string: ReplicaState(p, n.connect_string, SESSION.session_id) for n in fakes}
            await metadata.create_partition(p, PartitionMetadata(1, SESSION.session_id, states))
        yield World(store, fakes, server)


async def register(store: MemoryStore, server: FakeServer, server_id: int) -> None:
    path = f"{ROOT}/serverDescriptors"
    descriptor = ServerDescriptor(server_id, server.endpoint).to_bytes()
    await store.create(f"{path}/s_", descriptor, ephemeral=True, sequential=True)
    cversion = (await store.get(path))[1].cversion
    given = ((PartitionId(0), Generation(1)), (PartitionId(1), Generation(1)))
    await store.set(path, PartitionAssignment(cversion, 2, {server_id: given}).to_bytes())


async def test_verify_passes_on_a_healthy_cluster(world: World) -> None:
    assert await world.failed() == {}
    report = await world.report(partition=1)
    assert report.passed
    assert len(report.results) == 7
    with pytest.raises(AdminError, match="there is no partition 2"):
        await world.report(partition=2)


async def test_zookeeper_6_18_verify_says_when_it_failed(world: World) -> None:
    world.server.partitions = (0,)
    assert await world.failed() == {1: {Check.SERVER_CONSISTENCY}}
    world.server.partitions = (0, 1)
    world.server.health = {0: True, 1: False}
    assert await world.failed() == {1: {Check.HEALTH}}
    world.server.health = {0: True, 1: True}
    world.server.connectivity[world.nodes[2].connect_string] = False
    assert await world.failed() == {0: {Check.STORAGE_CONNECTIVITY}, 1: {Check.STORAGE_CONNECTIVITY}}


async def test_zookeeper_6_18_the_quorum_is_that_of_the_replicas_of_the_partition(world: World) -> None:
    """Partitions on a subset of the nodes: 0.13.2 counted all nodes of the cluster."""
    for port in (1, 3, 5, 7):
        await nodes.add_storage_node(world.store, ROOT, f"127.0.0.1:{port}", port + 1, 9)
    assert await world.failed() == {}
    world.nodes[0].status[0] = False
    assert await world.failed() == {0: {Check.RECOVERY}}
    world.nodes[1].status[0] = False
    assert await world.failed() == {0: {Check.QUORUM, Check.HEALTH, Check.RECOVERY}}


async def test_zookeeper_6_18_health_that_stays_true_without_a_quorum_is_not_believed(world: World) -> None:
    for node in world.nodes[:2]:
        node.refuse = "out of order"
    failed = await world.failed()
    assert {Check.QUORUM, Check.HEALTH, Check.STORAGE_CONSISTENCY} <= failed[0]
    for check in (Check.STORAGE_CONSISTENCY, Check.RECOVERY):
        reasons = [f.reason for f in (await world.report()).failures if f.check is check]
        assert reasons[0].count(": out of order") == 2


async def test_zookeeper_6_18_a_partition_without_a_replica_is_a_failure_not_a_crash(world: World) -> None:
    maps = {node.connect_string: (PartitionId(0),) for node in world.nodes}
    await world.store.set(f"{ROOT}/store/assignment", ReplicaAssignments(maps).to_bytes())
    failed = await world.failed()
    assert set(failed) == {1}
    assert {Check.QUORUM, Check.RECOVERY, Check.STORAGE_CONSISTENCY} <= failed[1]


async def test_verify_sees_unfinished_recovery_and_lost_metadata(world: World) -> None:
    metadata = StoreMetadata(world.store, ROOT)
    state, version = await metadata.read_partition(0)
    assert state is not None
    first = world.nodes[0].connect_string
    behind = {**state.replicas, first: ReplicaState(PartitionId(0), first, 3, 7)}
    await metadata.write_partition(0, PartitionMetadata(1, state.session_id, behind), version)
    await world.store.delete(f"{ROOT}/store/partition/1")
    assert await world.failed() == {0: {Check.RECOVERY}, 1: {Check.RECOVERY}}


async def test_zookeeper_6_18_a_replica_that_was_set_back_within_the_session_is_not_believed(
    world: World,
) -> None:
    """ZooKeeper lists it as good until the next session; its own last session says that it was emptied or
    restored."""
    a, b, c = world.nodes
    for older in (SessionInfo(-1, -1, -1), SessionInfo(SESSION.session_id - 1, 9, 9)):
        b.other_sessions[1] = older
        assert await world.failed() == {1: {Check.RECOVERY}}
        (failure,) = (await world.report()).failures
        assert failure.reason == f"{b.connect_string}: its disk was lost or is an older copy"
    # A late joiner was refilled before it was listed; whoever has the next session already took part in this
    # one.
    b.other_sessions[1] = SessionInfo(SESSION.session_id, 0, 0)
    c.other_sessions[1] = SessionInfo(SESSION.session_id + 1, -1, -1)
    assert await world.failed() == {}
    # A replica that cannot say it fails its own partition only.
    a.other_sessions[0] = None
    assert await world.failed() == {0: {Check.RECOVERY}}
    reason = (await world.report()).failures[0].reason
    assert reason.startswith(f"{a.connect_string}: it is out of service: ")


async def test_verify_asks_a_node_only_for_sessions_of_partitions_it_has(world: World) -> None:
    """A node of 0.13.2 closes the connection when it is asked for another one."""
    node = world.nodes[0]
    del node.status[1]
    assert await world.failed() == {1: {Check.STORAGE_CONSISTENCY, Check.RECOVERY}}
    assert node.asked == [0]
    await world.report(partition=0)
    assert world.nodes[1].asked == [0, 1, 0]


async def test_verify_without_a_server_or_with_a_silent_one(world: World) -> None:
    world.server.silent = True
    report = await world.report(timeout_seconds=2)
    assert {f.check for f in report.failures} == {
        Check.SERVER_CONSISTENCY,
        Check.STORAGE_CONNECTIVITY,
        Check.HEALTH,
    }
    assert all(f.reason.endswith("does not answer: no answer within 2 s") for f in report.failures)
    await world.store.delete(f"{ROOT}/serverDescriptors/s_0000000000")
    report = await world.report()
    assert Check.ZK_VALIDITY in {f.check for f in report.failures}


async def test_two_servers_that_claim_one_partition(world: World) -> None:
    async with FakeServer(partitions=(1,)).running() as other:
        await register(world.store, other, 2)
        await register(world.store, world.server, 1)  # the assignment names server 1 again
        failed = await world.failed()
        assert failed == {1: {Check.SERVER_CONSISTENCY}}


async def test_safety_a6_asks_the_admin_ports(world: World) -> None:
    async def unassign(node: FakeNode) -> tuple[PartitionId, ...]:
        return await assignments.unassign(
            world.store, ROOT, [0], node.connect_string, tls=PLAIN, keep_group_copy=False
        )

    a, b, c = world.nodes
    for breakage in ("unavailable", "older session", "record gone", "refusing", "not assigned"):
        saved = (dict(b.status), b.session, list(b.records), b.refuse)
        if breakage == "unavailable":
            b.status[0] = False
        elif breakage == "older session":
            b.session = SessionInfo(3, 9, 9)
        elif breakage == "record gone":
            b.records = b.records[:9]
        elif breakage == "refusing":
            b.refuse = "no"
        else:
            del b.status[0]
        with pytest.raises(UnsafeChangeError, match="1 are proven"):
            await unassign(c)
        b.status, b.session, b.records, b.refuse = saved
    with pytest.raises(TlsSettingsError):
        await assignments.unassign(world.store, ROOT, [0], a.connect_string, keep_group_copy=False)
    assert await unassign(c) == (0,)


async def test_zookeeper_6_22_list_shows_all_64_bits(world: World) -> None:
    world.nodes[0].status[1] = False
    everybody = await storage_admin.list_nodes(world.store, ROOT, PLAIN)
    assert len(everybody) == 3
    (one,) = await storage_admin.list_nodes(world.store, ROOT, PLAIN, admin=world.nodes[0].admin)
    assert one.partitions == (
        NodePartition(PartitionId(0), 2**40, 9, 9, True, True),
        NodePartition(PartitionId(1), 2**40, 9, 9, True, False),
    )
    (gone,) = await storage_admin.list_nodes(world.store, ROOT, PLAIN, admin=Endpoint("127.0.0.1", 1))
    assert gone.error is not None
    assert gone.error == "storage node 127.0.0.1:1: cannot connect: connection refused"


async def test_a_node_that_hangs_is_waited_for_as_long_as_was_said(world: World) -> None:
    """Its port is open, and nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        endpoint = Endpoint("127.0.0.1", hanging.getsockname()[1])
        (found,) = await storage_admin.list_nodes(
            world.store, ROOT, PLAIN, admin=endpoint, timeout_seconds=0.2
        )
    assert found.error == f"storage node {endpoint}: no answer within 0.2 s"


def test_metrics_that_are_something_else() -> None:
    gauges = {"waltz-storage.waltz-storage-partition-ids": {"value": 7}}
    wrongs: list[dict[str, object]] = [{}, {"gauges": []}, {"gauges": gauges}]
    for wrong in wrongs:
        with pytest.raises(AdminError):
            node_state.parse_metrics(wrong)


async def test_assignment_and_availability_on_nodes(world: World) -> None:
    node = world.nodes[0]
    await storage_admin.set_availability(world.store, ROOT, node.admin, [1, 0], False, tls=PLAIN)
    assert node.status == {0: False, 1: False}
    await storage_admin.set_assignment(
        world.store, ROOT, node.admin, [1], False, tls=PLAIN, delete_files=True
    )
    await storage_admin.set_assignment(world.store, ROOT, node.admin, [1], False, tls=PLAIN)
    assert node.status == {0: False}
    assert [order.delete_files for order in node.orders[1:]] == [True]
    # A node that died while it deleted has files of a partition that it does not have any longer: asking
    # again ends the work.
    await storage_admin.set_assignment(
        world.store, ROOT, node.admin, [1], False, tls=PLAIN, delete_files=True
    )
    assert [order.delete_files for order in node.orders[1:]] == [True, True]
    with pytest.raises(AdminError, match="there is no partition 2"):
        await storage_admin.set_assignment(world.store, ROOT, node.admin, [2], True, tls=PLAIN)
    node.refuse = "disk full"
    with pytest.raises(UnreachableError, match="disk full"):
        await storage_admin.set_availability(world.store, ROOT, node.admin, [0], True, tls=PLAIN)


async def test_zookeeper_6_17_sync_goes_on_and_keeps_surplus(world: World) -> None:
    a, b, c = world.nodes
    await nodes.add_storage_node(world.store, ROOT, "127.0.0.1:1", 2, 9)
    a.refuse = "broken"
    del b.status[1]
    await assignments.unassign(
        world.store, ROOT, [1], c.connect_string, keep_group_copy=False, probe=AllWell()
    )
    report = await storage_admin.sync_partitions(world.store, ROOT, tls=PLAIN)
    assert set(report.failed) == {a.connect_string, "127.0.0.1:1"}
    assert not report.complete
    assert report.assigned == {b.connect_string: (1,)}
    assert report.surplus == {c.connect_string: (1,)}
    assert report.unassigned == {}
    again = await storage_admin.sync_partitions(world.store, ROOT, tls=PLAIN, remove_surplus=True)
    assert again.surplus == {c.connect_string: (1,)}  # the last session still counts it among its replicas
    metadata = StoreMetadata(world.store, ROOT)
    state, version = await metadata.read_partition(1)
    assert state is not None
    without = {n: s for n, s in state.replicas.items() if n != c.connect_string}
    assert c.session is not None
    later = c.session.session_id
    await metadata.write_partition(1, PartitionMetadata(1, later - 1, without), version)
    kept = await storage_admin.sync_partitions(world.store, ROOT, tls=PLAIN, remove_surplus=True)
    assert kept.surplus == {
        c.connect_string: (1,)
    }  # it knows of a later session than ZooKeeper: it may be the witness (A8)
    await metadata.write_partition(1, PartitionMetadata(1, later, without), version + 1)
    final = await storage_admin.sync_partitions(world.store, ROOT, tls=PLAIN, remove_surplus=True)
    assert final.unassigned == {c.connect_string: (1,)}
    assert c.status == {0: True}


async def test_safety_a8_a_surplus_copy_of_a_later_session_stays_where_zookeeper_knows_none(
    world: World,
) -> None:
    """ZooKeeper was restored from a copy of before the first session: the node that has replaced another one
    since is not assigned, and may be the only one that has the data."""
    out, *others = world.nodes
    both = (PartitionId(0), PartitionId(1))
    given = dict.fromkeys((n.connect_string for n in others), both) | {out.connect_string: ()}
    await world.store.set(ClusterPaths(ROOT).assignment, ReplicaAssignments(given).to_bytes())
    tree = await read_tree(world.store, ROOT, "2026-01-01T00:00:00+00:00")
    before = {path: znode for path, znode in tree.znodes.items() if not path.startswith(f"{PARTITIONS}/")}
    copy = await in_memory(replace(tree, znodes=before), ROOT)
    out.other_sessions = {1: SessionInfo(-1, -1, -1)}
    report = await storage_admin.sync_partitions(copy, ROOT, tls=PLAIN, remove_surplus=True)
    assert report.surplus == {out.connect_string: (0,)}
    assert report.unassigned == {out.connect_string: (1,)}
    assert out.status == {0: True}


class AllWell:
    async def ask(self, connect_string: str, partition_id: int) -> Answer:
        return ReplicaAnswer(SESSION.session_id, True, True)


async def test_validate_and_max_transaction_id(world: World) -> None:
    result = await storage_admin.validate(world.store, ROOT, tls=PLAIN)
    assert len(result) == 6
    assert set(result.values()) == {None}
    await nodes.add_storage_node(world.store, ROOT, "127.0.0.1:1", 2, 9)
    broken = {e for e, text in (await storage_admin.validate(world.store, ROOT, tls=PLAIN)).items() if text}
    assert broken == {"127.0.0.1:1", "127.0.0.1:2"}
    node = world.nodes[0]
    found = await storage_admin.max_transaction_id(
        world.store, ROOT, node.admin, node.storage_port, 0, tls=PLAIN
    )
    assert found == 11


async def test_recover_partition_over_the_wire(world: World) -> None:
    a, b, _ = world.nodes
    b.status[0], b.records, b.session = False, [], SessionInfo(4, -1, -1)
    seen: list[Progress] = []
    done = await offline_copy.recover_partition(
        world.store,
        ROOT,
        source_admin=a.admin,
        destination_admin=b.admin,
        destination_storage_port=b.storage_port,
        partition_id=0,
        batch_size=4,
        source_tls=PLAIN,
        destination_tls=PLAIN,
        progress=seen.append,
    )
    assert done == Progress(10, 9, 9)
    assert b.records == a.records[:10]
    assert len(seen) == 4
    with pytest.raises(UnreachableError, match="the copy of partition 0 stopped"):
        await offline_copy.recover_partition(
            world.store,
            ROOT,
            source_admin=Endpoint("127.0.0.1", 1),
            destination_admin=b.admin,
            destination_storage_port=b.storage_port,
            partition_id=0,
            source_tls=PLAIN,
            destination_tls=PLAIN,
        )


async def test_servers_are_asked(world: World) -> None:
    answers = await server_admin.check_connectivity(world.store, ROOT, tls=PLAIN)
    assert answers == {world.server.endpoint: world.server.connectivity}
    await server_admin.change_preferred(
        world.store, ROOT, world.server.endpoint, [1, 0], preferred=True, tls=PLAIN
    )
    assert world.server.preferred == {0, 1}
    assert world.server.req_ids[-1] == ReqId(-1, 0, 0, 0)
    await server_admin.change_preferred(
        world.store, ROOT, world.server.endpoint, [1], preferred=False, tls=PLAIN
    )
    assert world.server.preferred == {0}
    assert world.server.req_ids[-1] == ReqId(-1, 0, 1, 0)
    for chosen, problem in (([7], "there is no partition 7"), ([], "at least one")):
        with pytest.raises(AdminError, match=problem):
            await server_admin.change_preferred(
                world.store, ROOT, world.server.endpoint, chosen, preferred=True, tls=PLAIN
            )
    world.server.silent = True
    answers = await server_admin.check_connectivity(world.store, ROOT, tls=PLAIN, timeout_seconds=0.2)
    assert answers == {world.server.endpoint: f"server {world.server.endpoint} did not answer within 0.2 s"}


async def test_a_server_that_refuses_or_is_too_old() -> None:
    async with (
        FakeServer(versions=(0, 1)).running() as old,
        ServerAdminConnection(old.endpoint, PLAIN) as asked,
    ):
        assert await asked.storage_connectivity() == {}
        with pytest.raises(UnreachableError, match="too old for this question"):
            await asked.health()
    async with FakeServer().running() as server, ServerAdminConnection(server.endpoint, PLAIN) as asked:
        assert await asked.add_preferred((3,)) is False
    with pytest.raises(UnreachableError, match=r"server 127\.0\.0\.1:1:"):
        async with ServerAdminConnection(Endpoint("127.0.0.1", 1), PLAIN):
            raise RuntimeError("not reached")
    with pytest.raises(TlsSettingsError):
        await ServerAdminConnection(Endpoint("127.0.0.1", 1), TlsSettings()).__aenter__()


async def test_a_server_that_hangs_up_fails_the_question() -> None:
    server = FakeServer(silent=True)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server.running())
        asked = await stack.enter_async_context(ServerAdminConnection(server.endpoint, PLAIN))
        question = asyncio.gather(asked.health(), return_exceptions=True)
        await asyncio.sleep(0.05)
        asked._handler.channel_closed(asked._channel, "gone")  # type: ignore[arg-type]
        (outcome,) = await question
        assert isinstance(outcome, UnreachableError)
        with pytest.raises(UnreachableError):
            await asked.health()


async def test_zookeeper_6_13_tools_write_no_ids(world: World) -> None:
    before = [(await world.store.get(f"{ROOT}/ids/{kind}"))[1].version for kind in ("client", "server")]
    await world.report()
    await server_admin.check_connectivity(world.store, ROOT, tls=PLAIN)
    after = [(await world.store.get(f"{ROOT}/ids/{kind}"))[1].version for kind in ("client", "server")]
    assert before == after == [0, 0]


async def test_http_metrics_of_a_server() -> None:
    body = (
        b'{"gauges": {"waltz-server.waltz-server-num-partitions": {"value": 2},'
        b' "waltz-server.replica-info": {"value": {"0": ["h1:6000"]}}}}'
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        assert await server_admin.list_server(endpoint) == (2, {"0": ["h1:6000"]})
    with pytest.raises(UnreachableError, match="no metrics"):
        await server_admin.http_metrics(Endpoint("127.0.0.1", 1))
