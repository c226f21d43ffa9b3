"""Membership and assignment: registration, coordinator, adoption, orderly leave, clients; on both stores
where it fits."""

import asyncio
import random

import pytest

from cluster_tests.conftest import NewSession
from cluster_tests.manager_helpers import (
    ROOT,
    Server,
    assignment_of,
    memory_cluster,
    seed,
    start_server,
    until,
)
from waltz_cluster.errors import (
    ClusterError,
    ClusterNotFoundError,
    IdsExhaustedError,
    InsufficientPartitionsError,
    VersionConflictError,
)
from waltz_cluster.manager import ClusterManager, Endpoints
from waltz_cluster.membership import MembershipReader
from waltz_cluster.memory_store import Fault, FaultHook, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import Counter, PartitionAssignment, PartitionMetadata, ServerDescriptor
from waltz_protocol.types import Endpoint, Generation, PartitionId

DESCRIPTORS = f"{ROOT}/serverDescriptors"


async def test_servers_come_and_go(new_session: NewSession, root: str) -> None:
    await seed(await new_session(), root, 4)
    first = await Server(await new_session(), root, 8001).start()
    await until(lambda: len(first.partitions) == 4)
    assert set(first.partitions.values()) == {1}
    second = await Server(await new_session(), root, 8002).start()
    await until(lambda: len(first.partitions) == 2 and len(second.partitions) == 2)
    assert set(first.partitions.values()) == {1}
    assert set(second.partitions.values()) == {2}
    assert not set(first.partitions) & set(second.partitions)
    seen: list[Endpoints] = []
    async with ClusterManager(await new_session(), root, rng=random.Random(0)) as client:
        client.add_endpoints_listener(seen.append)
        assert seen == [{first.endpoint: first.partitions, second.endpoint: second.partitions}]
        await first.joined.unregister()
        assert first.partitions == {}
        await until(lambda: len(second.partitions) == 4)
        await until(lambda: list(seen[-1]) == [second.endpoint] and len(seen[-1][second.endpoint]) == 4)
        await second.stop()
        await until(lambda: seen[-1] == {})
        assert await client.new_client_id() == 1
        assert await client.new_client_id() == 2
    await first.stop()


async def test_a_lost_session_moves_partitions_and_the_server_returns_with_its_id(
    new_session: NewSession, root: str
) -> None:
    await seed(await new_session(), root, 2)
    first_store = await new_session()
    first = await Server(first_store, root, 8001).start()
    second = await Server(await new_session(), root, 8002).start()
    await until(lambda: len(first.partitions) == 1 and len(second.partitions) == 1)
    await first_store.close()  # the process is gone
    await until(lambda: len(second.partitions) == 2)
    await second.stop()
    await first.stop()


async def test_a_crashed_server_that_is_back_does_not_wait_for_its_own_session_to_end() -> None:
    """Its descriptor lives as long as its session, and half of the partitions would belong to nobody for that
    long."""
    zookeeper = await memory_cluster(4)
    other = await start_server(zookeeper, 8001)
    crashed = await start_server(zookeeper, 8002)
    await until(lambda: len(other.partitions) == 2 == len(crashed.partitions))
    crashed.memory.suspend(server_keeps_session=True)  # no word of it reaches ZooKeeper any more
    back = await start_server(zookeeper, 8002)
    await until(lambda: len(back.partitions) == 2 == len(other.partitions), 5.0)
    descriptors = [ServerDescriptor.from_bytes(d) for p, (d, _) in zookeeper.tree().items() if "/s_" in p]
    assert sorted(one.server_id for one in descriptors) == [1, 3]
    for server in (other, back, crashed):
        await server.stop()


async def test_two_servers_that_were_given_one_endpoint_do_not_go_on_deleting_each_other() -> None:
    zookeeper = await memory_cluster(4)
    first = await start_server(zookeeper, 8001)
    second = await start_server(zookeeper, 8001)
    other = await start_server(zookeeper, 8003)

    def ids() -> list[int]:
        found = [ServerDescriptor.from_bytes(d) for p, (d, _) in zookeeper.tree().items() if "/s_" in p]
        return sorted(one.server_id for one in found)

    await until(lambda: ids() == [1, 2, 3])  # the first has put its own back
    await until(lambda: assignment_of(zookeeper).cversion == zookeeper.tree()[DESCRIPTORS][1].cversion)
    settled = zookeeper.tree()[DESCRIPTORS][1].cversion
    first.memory.expire()  # a new session, a new descriptor: the second's stays
    await until(lambda: zookeeper.tree()[DESCRIPTORS][1].cversion > settled + 1)
    await until(lambda: ids() == [1, 2, 3])
    await until(lambda: sum(len(server.partitions) for server in (first, second, other)) == 4)
    for server in (first, second, other):
        await server.stop()


async def test_the_data_is_that_of_the_layout() -> None:
    zookeeper = await memory_cluster(1)
    server = await start_server(zookeeper, 8000)
    await until(lambda: server.partitions == {0: 1})
    data, stat = zookeeper.tree()[f"{DESCRIPTORS}/s_0000000000"]
    assert data == ServerDescriptor(1, Endpoint("h", 8000)).to_bytes()
    assert stat.ephemeral_owner == server.store.session_id
    assert assignment_of(zookeeper) == PartitionAssignment(1, 1, {1: ((PartitionId(0), Generation(1)),)})
    await server.stop()


async def test_a_foreign_assignment_of_a_lower_id_is_obeyed() -> None:
    zookeeper = await memory_cluster(2)
    foreign = zookeeper.session()
    descriptor = ServerDescriptor(0, Endpoint("foreign", 1))
    await foreign.create(f"{DESCRIPTORS}/s_", descriptor.to_bytes(), ephemeral=True, sequential=True)
    server = await start_server(zookeeper, 8000)
    await asyncio.sleep(0.05)
    assert server.partitions == {}  # passive: it is not the coordinator
    stat = (await foreign.get_children(DESCRIPTORS))[1]
    given = ((PartitionId(1), Generation(5)),)
    written = PartitionAssignment(stat.cversion, 2, {0: ((PartitionId(0), Generation(5)),), 1: given})
    await foreign.set(DESCRIPTORS, written.to_bytes())
    await until(lambda: server.partitions == {1: 5})
    await foreign.close()
    await until(lambda: server.partitions == {0: 6, 1: 5})
    await server.stop()


async def test_without_a_cluster_there_is_one_clear_line() -> None:
    manager = ClusterManager(MemoryZooKeeper().session(), "/nothing", rng=random.Random(0))
    with pytest.raises(ClusterNotFoundError, match="there is no cluster at /nothing"):
        await manager.__aenter__()


async def test_listeners_can_be_removed_and_may_fail() -> None:
    zookeeper = await memory_cluster()
    seen: list[Endpoints] = []

    def failing(endpoints: Endpoints) -> None:
        raise RuntimeError("on purpose")

    async with ClusterManager(zookeeper.session(), ROOT, rng=random.Random(0)) as client:
        client.add_endpoints_listener(failing)
        remove = client.add_endpoints_listener(seen.append)
        server = await start_server(zookeeper, 8000)
        await until(lambda: len(seen) == 2 and len(seen[-1]) == 1)
        remove()
        remove()
        await server.stop()
        await asyncio.sleep(0.05)
        assert len(seen) == 2


async def test_zookeeper_6_02_a_failing_policy_neither_spins_nor_blocks() -> None:
    """More partitions in the old assignment than the cluster has: the policy refuses, at a growing
    distance."""
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8000)
    await until(lambda: server.partitions == {0: 1, 1: 1})
    outside = zookeeper.session()
    calls = 0

    def count(name: str, path: str) -> Fault | None:
        nonlocal calls
        calls += 1
        return None

    server.memory.fault = count
    await outside.set(DESCRIPTORS, PartitionAssignment(-1, 9, {}).to_bytes())
    await asyncio.sleep(0.5)
    assert 3 <= calls < 100
    known = PartitionAssignment(-1, 2, {9: ((PartitionId(0), Generation(4)),)})
    await outside.set(DESCRIPTORS, known.to_bytes())  # and it is not deaf
    await until(lambda: server.partitions == {0: 5, 1: 1})
    await server.stop()


async def test_a_registration_that_fails_leaves_nothing_behind() -> None:
    zookeeper = await memory_cluster(2)
    await zookeeper.session().set(DESCRIPTORS, PartitionAssignment(-1, 9, {}).to_bytes())
    server = Server(zookeeper.session(), ROOT, 8000)
    with pytest.raises(InsufficientPartitionsError):
        await server.start()
    assert not [p for p in zookeeper.tree() if p.startswith(f"{DESCRIPTORS}/")]
    await server.stop()


async def test_zookeeper_6_02_a_version_conflict_while_preferring_is_tried_again() -> None:
    zookeeper = await memory_cluster(4)
    first, second = await start_server(zookeeper, 8001), await start_server(zookeeper, 8002)
    await until(lambda: len(first.partitions) == 2 and len(second.partitions) == 2)
    rival = zookeeper.session()
    conflicts = 0

    def interfere(name: str, path: str) -> Fault | None:
        nonlocal conflicts
        if (name, path) == ("set", DESCRIPTORS) and conflicts < 3:
            conflicts += 1
            data, _ = zookeeper.tree()[DESCRIPTORS]
            zookeeper.set(DESCRIPTORS, data, -1)
        return None

    second.memory.fault = interfere
    async with asyncio.timeout(10):
        await second.joined.add_preferred({0, 1, 2})
    assert conflicts == 3
    await until(lambda: set(second.partitions) >= {0, 1, 2})
    await until(lambda: len(first.partitions) == 1)
    await rival.close()
    await first.stop()
    await second.stop()


async def test_zookeeper_6_02_preferences_give_up_in_time() -> None:
    zookeeper = await memory_cluster(4)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 4)
    other = await start_server(zookeeper, 8002)
    await until(lambda: len(server.partitions) == 2)

    def always(name: str, path: str) -> Fault | None:
        if (name, path) == ("set", DESCRIPTORS):
            zookeeper.set(DESCRIPTORS, zookeeper.tree()[DESCRIPTORS][0], -1)
        return None

    server.memory.fault = always
    with pytest.raises(VersionConflictError):
        await server.joined.add_preferred({0, 1, 2, 3}, timeout_seconds=0.5)
    server.memory.fault = None
    await server.stop()
    await other.stop()


async def test_zookeeper_6_03_preferences_survive_a_restart_and_are_serialised() -> None:
    zookeeper = await memory_cluster(6)
    first, second = await start_server(zookeeper, 8001), await start_server(zookeeper, 8002)
    await until(lambda: len(second.partitions) == 3)
    await asyncio.gather(
        second.joined.add_preferred([0]),
        second.joined.add_preferred([1]),
        second.joined.add_preferred([2, 3]),
        second.joined.remove_preferred([0]),
    )
    assert second.joined.preferred == {1, 2, 3}
    await until(lambda: set(second.partitions) == {1, 2, 3})
    await second.stop()
    await until(lambda: len(first.partitions) == 6)
    again = await start_server(zookeeper, 8002)
    assert again.joined.server_id != second.joined.server_id
    assert again.joined.preferred == {1, 2, 3}
    await until(lambda: set(again.partitions) == {1, 2, 3})
    await again.joined.remove_preferred([1, 2, 3])
    assert f"{ROOT}/preferredPartitions/h:8002" not in zookeeper.tree()
    await first.stop()
    await again.stop()


async def test_unknown_preferences_are_refused() -> None:
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001)
    with pytest.raises(ClusterError, match="there is no partition 2"):
        await server.joined.add_preferred({1, 2})
    assert server.joined.preferred == frozenset()
    await server.stop()


async def test_zookeeper_6_04_members_and_child_version_are_read_together() -> None:
    """A server that appears between the reading of the children and of the data is never left out of a
    recorded child version."""
    zookeeper = await memory_cluster(4)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 4)
    outside = zookeeper.session()
    intruder = ServerDescriptor(99, Endpoint("late", 1)).to_bytes()
    once = True

    def between(name: str, path: str) -> Fault | None:
        nonlocal once
        if (name, path) == ("get", DESCRIPTORS) and once:
            once = False
            zookeeper.create(f"{DESCRIPTORS}/s_", intruder, outside.session_id, True)
        return None

    server.memory.fault = between
    server.manager._wake.set()
    await until(lambda: len(server.partitions) == 2)
    written = assignment_of(zookeeper)
    assert set(written.servers) == {1, 99}
    assert written.cversion == zookeeper.tree()[DESCRIPTORS][1].cversion
    await server.stop()


async def test_zookeeper_6_06_an_orderly_leave_deletes_the_descriptor_at_once() -> None:
    zookeeper = await memory_cluster(4)
    first, second = await start_server(zookeeper, 8001), await start_server(zookeeper, 8002)
    await until(lambda: len(second.partitions) == 2)
    await first.joined.unregister()
    await first.joined.unregister()
    assert first.partitions == {}
    await until(lambda: len(second.partitions) == 4)
    assert len([p for p in zookeeper.tree() if p.startswith(f"{DESCRIPTORS}/")]) == 1
    await first.stop()
    await second.stop()


@pytest.mark.parametrize("fault", list(Fault))
async def test_zookeeper_6_07_an_error_of_the_coordinator_is_made_good_by_itself(fault: Fault) -> None:
    zookeeper = await memory_cluster(4)
    server = Server(zookeeper.session(), ROOT, 8001)
    failures = 3

    def fail(name: str, path: str) -> Fault | None:
        nonlocal failures
        if (name, path) == ("set", DESCRIPTORS) and failures:
            failures -= 1
            return fault
        return None

    server.memory.fault = fail
    await server.start()
    await until(lambda: len(server.partitions) == 4)
    await server.stop()


async def test_zookeeper_6_08_a_lost_reply_never_leaves_a_second_descriptor() -> None:
    zookeeper = await memory_cluster(4)
    server = Server(zookeeper.session(), ROOT, 8001)
    lost = 2

    def lose(name: str, path: str) -> Fault | None:
        nonlocal lost
        if name == "create" and path.endswith("/s_") and lost:
            lost -= 1
            return Fault.LOSE_REPLY
        return None

    server.memory.fault = lose
    await server.start()
    await until(lambda: len(server.partitions) == 4)
    assert len([p for p in zookeeper.tree() if p.startswith(f"{DESCRIPTORS}/")]) == 1
    assert lost == 1
    await server.stop()
    assert not [p for p in zookeeper.tree() if p.startswith(f"{DESCRIPTORS}/")]


async def test_zookeeper_6_08_left_over_descriptors_are_cleaned_up() -> None:
    zookeeper = await memory_cluster(4)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 4)
    old = ServerDescriptor(server.joined.server_id, Endpoint("old", 1)).to_bytes()
    await zookeeper.session().create(f"{DESCRIPTORS}/s_", old, ephemeral=True, sequential=True)
    await until(lambda: len([p for p in zookeeper.tree() if p.startswith(f"{DESCRIPTORS}/")]) == 1)
    await until(lambda: assignment_of(zookeeper).cversion == zookeeper.tree()[DESCRIPTORS][1].cversion)
    assert len(server.partitions) == 4
    await server.stop()


async def test_zookeeper_6_09_watches_only_wake_the_manager() -> None:
    """Whatever a watch triggers runs in the manager's own task: a callback that takes long delays no other
    event."""
    zookeeper = await memory_cluster(4)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 4)
    reads: list[str] = []

    def note(name: str, path: str) -> Fault | None:
        task = asyncio.current_task()
        reads.append("?" if task is None else task.get_name())
        return None

    server.memory.fault = note
    other = await start_server(zookeeper, 8002)
    await until(lambda: len(other.partitions) == 2)
    assert set(reads) == {"cluster-manager"}
    server.memory.fault = None
    await server.stop()
    await other.stop()


async def test_zookeeper_6_10_an_assignment_that_names_a_vanished_server_stops_no_client() -> None:
    zookeeper = await memory_cluster(2)
    outside = zookeeper.session()
    gone = PartitionAssignment(0, 2, {77: ((PartitionId(0), Generation(3)),)})
    await outside.set(DESCRIPTORS, gone.to_bytes())
    seen: list[Endpoints] = []
    async with ClusterManager(zookeeper.session(), ROOT, rng=random.Random(0)) as client:
        client.add_endpoints_listener(seen.append)
        assert seen == [{}]


async def test_zookeeper_6_10_empty_descriptors_do_not_crash_and_do_not_restart_generations() -> None:
    zookeeper = await memory_cluster(2)
    outside = zookeeper.session()
    await outside.set(DESCRIPTORS, None)
    await outside.create(f"{ROOT}/store/partition/1", PartitionMetadata(6, 9).to_bytes())
    server = await start_server(zookeeper, 8001)
    await until(lambda: server.partitions == {0: 1, 1: 7})
    await server.stop()


async def test_an_unreadable_assignment_is_never_replaced() -> None:
    zookeeper = await memory_cluster(2)
    outside = zookeeper.session()
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 2)
    await outside.set(DESCRIPTORS, b"\x09garbage")
    other = zookeeper.session()
    await other.create(
        f"{DESCRIPTORS}/s_", ServerDescriptor(5, Endpoint("x", 1)).to_bytes(), ephemeral=True, sequential=True
    )
    await asyncio.sleep(0.2)
    assert zookeeper.tree()[DESCRIPTORS][0] == b"\x09garbage"
    assert len(server.partitions) == 2
    await server.stop()


async def test_zookeeper_6_11_without_servers_there_are_no_endpoints_though_the_assignment_stays() -> None:
    """It must stay: it holds the generations, and a generation that goes back could never start a session."""
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 2)
    await server.stop()
    assert len(assignment_of(zookeeper).servers) == 1
    seen: list[Endpoints] = []
    async with ClusterManager(zookeeper.session(), ROOT, rng=random.Random(0)) as client:
        client.add_endpoints_listener(seen.append)
        assert seen == [{}]
    again = await start_server(zookeeper, 8001)
    await until(lambda: again.partitions == {0: 2, 1: 2})
    await again.stop()


async def test_zookeeper_6_13_ids_are_only_taken_by_who_needs_one_and_end_with_an_error() -> None:
    zookeeper = await memory_cluster(2)
    async with ClusterManager(zookeeper.session(), ROOT, rng=random.Random(0)) as manager:
        assert zookeeper.tree()[f"{ROOT}/ids/client"][1].version == 0
        await zookeeper.session().set(f"{ROOT}/ids/client", Counter(2**31 - 2).to_bytes())
        assert await manager.new_client_id() == 2**31 - 1
        with pytest.raises(IdsExhaustedError):
            await manager.new_client_id()


def fail_once(fault: Fault) -> FaultHook:
    faults = iter([fault])
    return lambda name, path: next(faults, None) if name == "set" else None


@pytest.mark.parametrize("fault", list(Fault))
async def test_safety_a7_an_uncertain_write_burns_the_id(fault: Fault) -> None:
    zookeeper = await memory_cluster(2)
    store = zookeeper.session()
    given = []
    async with ClusterManager(store, ROOT, rng=random.Random(0)) as manager:
        for _ in range(3):
            store.fault = fail_once(fault)
            given.append(await manager.new_client_id())
    assert given == ([2, 4, 6] if fault is Fault.LOSE_REPLY else [1, 2, 3])


async def test_concurrent_ids_are_unique() -> None:
    zookeeper = await memory_cluster(2)
    async with ClusterManager(zookeeper.session(), ROOT, rng=random.Random(0)) as manager:
        ids = await asyncio.gather(*(manager.new_server_id() for _ in range(20)))
    assert sorted(ids) == list(range(1, 21))


async def test_zookeeper_6_04_a_snapshot_holds_the_members_of_its_child_version() -> None:
    zookeeper = await memory_cluster(4)
    store, outside = zookeeper.session(), zookeeper.session()
    late = [ServerDescriptor(server_id, Endpoint("late", server_id)).to_bytes() for server_id in (7, 8)]

    def between(name: str, path: str) -> Fault | None:
        if (name, path) == ("get", DESCRIPTORS) and late:
            zookeeper.create(f"{DESCRIPTORS}/s_", late.pop(), outside.session_id, True)
        return None

    store.fault = between
    snapshot = await MembershipReader(store, ClusterPaths(ROOT), lambda: None).snapshot()
    assert set(snapshot.members) == {7, 8}
    assert snapshot.cversion == zookeeper.tree()[DESCRIPTORS][1].cversion == 2
