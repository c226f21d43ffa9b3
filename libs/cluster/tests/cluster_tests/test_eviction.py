"""Taking a server out of the cluster: challenge, answer, eviction; on both stores where it fits (rules G1 to
G3 and G6 of docs/safety.md)."""

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
from waltz_cluster.errors import VersionConflictError
from waltz_cluster.eviction import Challenges, members_without, write_eviction
from waltz_cluster.manager import ClusterManager
from waltz_cluster.membership import MembershipReader
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ServerDescriptor
from waltz_protocol.aio.tasks import spawn

DESCRIPTORS = f"{ROOT}/serverDescriptors"


async def name_of(server: Server, root: str) -> str:
    """Its descriptor."""
    reader = MembershipReader(server.store, ClusterPaths(root), lambda: None)
    found = [each for each in await reader.descriptors() if each.descriptor.endpoint == server.endpoint]
    return found[-1].name


def descriptors(zookeeper: MemoryZooKeeper) -> list[int]:
    found = [
        ServerDescriptor.from_bytes(data)
        for path, (data, _) in zookeeper.tree().items()
        if path.startswith(f"{DESCRIPTORS}/")
    ]
    return sorted(each.server_id for each in found)


async def test_an_unanswered_challenge_ends_with_the_partitions_at_the_others(
    new_session: NewSession, root: str
) -> None:
    await seed(await new_session(), root, 4)
    first = await Server(await new_session(), root, 8001).start()
    second = await Server(await new_session(), root, 8002).start()
    await until(lambda: len(first.partitions) == 2 == len(second.partitions))
    before = dict(second.partitions)
    challenges = Challenges(first.store, root)
    name = await name_of(second, root)
    await challenges.create(name)
    await challenges.create(name)  # another one may have created it
    assert await first.manager.evict(name)
    await until(lambda: {} in second.history and len(second.partitions) == 2)  # it is back on its own
    await until(lambda: len(first.partitions) == 2)
    now = first.partitions | second.partitions
    assert all(now[each] > generation for each, generation in before.items())
    assert await name_of(second, root) != name
    await second.stop()
    await first.stop()


async def test_safety_g1_a_challenge_of_another_judge_begins_the_time_anew(
    new_session: NewSession, root: str
) -> None:
    """Two judges that do not hear each other: what the second one asks is not what the first one asked."""
    await seed(await new_session(), root, 4)
    first, second = Challenges(await new_session(), root), Challenges(await new_session(), root)
    suspect = Challenges(await new_session(), root)
    assert not await first.unanswered("s_0000000007")
    await first.create("s_0000000007")
    await second.create("s_0000000007")  # it is there: what it says counts for both
    for judge in (first, second, first):
        assert await judge.unanswered("s_0000000007")
    assert await suspect.delete("s_0000000007")
    await second.create("s_0000000007")
    assert not await first.unanswered("s_0000000007")
    assert await second.unanswered("s_0000000007")
    assert await suspect.delete("s_0000000007")
    assert not await second.unanswered("s_0000000007")


async def test_safety_g1_an_answer_prevents_the_eviction(new_session: NewSession, root: str) -> None:
    await seed(await new_session(), root, 4)
    first = await Server(await new_session(), root, 8001).start()
    second = await Server(await new_session(), root, 8002).start()
    await until(lambda: len(first.partitions) == 2 == len(second.partitions))
    name = await name_of(second, root)
    challenges = Challenges(first.store, root)
    assert not await first.manager.evict(name), "without a challenge"
    answering = spawn(Challenges(second.store, root).answer(name), "answers")
    await challenges.create(name)
    async with asyncio.timeout(10):
        while await first.store.exists(ClusterPaths(root).challenge(name)) is not None:
            await asyncio.sleep(0.005)
    assert not await first.manager.evict(name)
    await challenges.create(name)  # each one is answered
    async with asyncio.timeout(10):
        while await first.store.exists(ClusterPaths(root).challenge(name)) is not None:
            await asyncio.sleep(0.005)
    answering.cancel()
    assert {} not in second.history
    assert await name_of(second, root) == name
    await second.stop()
    await first.stop()


async def test_safety_g2_a_later_registration_at_the_same_address_is_not_touched() -> None:
    zookeeper = await memory_cluster(4)
    first = await start_server(zookeeper, 8001)
    crashed = await start_server(zookeeper, 8002)
    name = await name_of(crashed, ROOT)
    await Challenges(first.store, ROOT).create(name)
    crashed.memory.suspend(server_keeps_session=True)
    back = await start_server(zookeeper, 8002)  # it deletes what the earlier process left
    await until(lambda: descriptors(zookeeper) == [1, 3])
    assert not await first.manager.evict(name)
    await asyncio.sleep(0.05)
    assert descriptors(zookeeper) == [1, 3]
    for server in (back, first, crashed):
        await server.stop()


async def test_safety_g2_of_two_evictions_by_one_view_one_fails() -> None:
    """Two servers suspect each other at once: one of them stays in, whoever is first."""
    zookeeper = await memory_cluster(4)
    servers = [await start_server(zookeeper, port) for port in (8001, 8002, 8003)]
    await until(lambda: assignment_of(zookeeper).cversion == zookeeper.tree()[DESCRIPTORS][1].cversion)
    paths = ClusterPaths(ROOT)
    store = zookeeper.session()
    snapshot = await MembershipReader(store, paths, lambda: None).snapshot(watch=False)
    assert set(members_without(snapshot, snapshot.znodes[0].name)) == {2, 3}
    challenges = Challenges(store, ROOT)
    for znode in snapshot.znodes[:2]:
        await challenges.create(znode.name)
    assignment = snapshot.assignment
    assert await write_eviction(store, paths, snapshot, snapshot.znodes[0], assignment)
    with pytest.raises(VersionConflictError):
        await write_eviction(store, paths, snapshot, snapshot.znodes[1], assignment)
    assert f"{DESCRIPTORS}/{snapshot.znodes[1].name}" in zookeeper.tree()
    await store.close()
    for server in servers:
        await server.stop()


async def test_safety_g3_only_a_registered_server_evicts() -> None:
    """So one always stays."""
    zookeeper = await memory_cluster(4)
    only = await start_server(zookeeper, 8001)
    name = await name_of(only, ROOT)
    await Challenges(only.store, ROOT).create(name)
    assert not await only.manager.evict(name), "itself"
    async with ClusterManager(zookeeper.session(), ROOT, rng=random.Random(0)) as stranger:
        assert not await stranger.evict(name)
    assert descriptors(zookeeper) == [1]
    await only.stop()


async def test_safety_g6_an_evicted_server_gives_up_its_partitions_before_it_registers_again() -> None:
    """Others have them: what it answered meanwhile could be old."""
    zookeeper = await memory_cluster(4)
    first = await start_server(zookeeper, 8001)
    second = await start_server(zookeeper, 8002)
    await until(lambda: len(first.partitions) == 2 == len(second.partitions))
    seen: list[tuple[int, bool]] = []
    report = second.history.append

    def remember(partitions: dict[object, object]) -> None:
        seen.append((len(partitions), 2 in descriptors(zookeeper)))
        report(partitions)  # type: ignore[arg-type]

    second.joined._on_partitions = remember  # type: ignore[assignment]
    name = await name_of(second, ROOT)
    await Challenges(first.store, ROOT).create(name)
    assert await first.manager.evict(name)
    await until(lambda: len(seen) == 2)
    assert seen == [(0, False), (2, True)]
    await second.stop()
    await first.stop()


async def test_safety_g2_two_living_servers_of_one_address_leave_each_other_alone() -> None:
    """By mistake; the second could open the port, on another machine."""
    zookeeper = await memory_cluster(4)
    first = await start_server(zookeeper, 8001)
    await until(lambda: len(first.partitions) == 4)
    answering = spawn(Challenges(first.store, ROOT).answer(await name_of(first, ROOT)), "answers")
    second = await start_server(zookeeper, 8001)
    await until(lambda: len(first.partitions) == 2 == len(second.partitions))
    assert descriptors(zookeeper) == [1, 2]
    assert {} not in first.history
    assert not [path for path in zookeeper.tree() if path.startswith(f"{ROOT}/serverChallenges/")]
    answering.cancel()
    for server in (second, first):
        await server.stop()


async def test_a_descriptor_that_goes_with_its_session_meanwhile_leaves_no_challenge_behind() -> None:
    zookeeper = await memory_cluster(4)
    first = await start_server(zookeeper, 8001)
    name = await name_of(first, ROOT)
    store = zookeeper.session()
    asking = spawn(Challenges(store, ROOT).delete_unanswered(name, 0.3), "asks")
    await asyncio.sleep(0.05)
    await first.stop()
    assert await asking
    assert not [path for path in zookeeper.tree() if path.startswith(f"{ROOT}/serverChallenges/")]
    await store.close()


async def test_the_coordinator_can_be_evicted_and_the_next_one_continues() -> None:
    zookeeper = await memory_cluster(4)
    servers = [await start_server(zookeeper, port) for port in (8001, 8002, 8003)]
    first, second, third = servers
    await until(lambda: sum(len(server.partitions) for server in servers) == 4)
    first.memory.suspend(server_keeps_session=True)  # frozen, its session lives
    name = await name_of(second, ROOT)
    assert name.endswith("1")
    await Challenges(second.store, ROOT).create("s_0000000000")
    assert await second.manager.evict("s_0000000000")
    await until(lambda: len(second.partitions) + len(third.partitions) == 4)
    fourth = await start_server(zookeeper, 8004)
    await until(lambda: len(fourth.partitions) >= 1)
    for server in (fourth, third, second):
        await server.stop()
    first.memory.expire()
    await first.stop()


async def test_an_eviction_that_was_decided_while_others_came_is_repaired_by_the_coordinator() -> None:
    """The assignment in the transaction is made for one member less; one more changes the child version."""
    zookeeper = await memory_cluster(4)
    servers = [await start_server(zookeeper, port) for port in (8001, 8002, 8003)]
    await until(lambda: assignment_of(zookeeper).cversion == zookeeper.tree()[DESCRIPTORS][1].cversion)
    store, paths = zookeeper.session(), ClusterPaths(ROOT)
    snapshot = await MembershipReader(store, paths, lambda: None).snapshot(watch=False)
    await Challenges(store, ROOT).create(snapshot.znodes[2].name)
    await store.create(
        paths.new_server_descriptor,
        ServerDescriptor(77, servers[0].endpoint).to_bytes(),
        ephemeral=True,
        sequential=True,
    )
    try:
        await write_eviction(store, paths, snapshot, snapshot.znodes[2], snapshot.assignment)
    except VersionConflictError:
        pass  # the coordinator was faster
    await until(lambda: assignment_of(zookeeper).cversion == zookeeper.tree()[DESCRIPTORS][1].cversion)
    assert set(assignment_of(zookeeper).servers) == set(descriptors(zookeeper))
    await store.close()
    for server in servers:
        await server.stop()
