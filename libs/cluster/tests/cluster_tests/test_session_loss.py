"""Losing ZooKeeper: SUSPENDED, LOST, the server's own clock, stale events. On simulated time."""

import asyncio
import random

import pytest

from cluster_tests.manager_helpers import ROOT, memory_cluster, start_server, until
from waltz_cluster.manager import ClusterManager, Endpoints
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.session import OneShotWatch, SessionTracker
from waltz_cluster.store import SessionEvent, SessionState
from waltz_protocol.aio.tasks import spawn

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_safety_d8_suspended_keeps_serving_until_the_session_may_be_over() -> None:
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001, timeout_seconds=6.0)
    await until(lambda: len(server.partitions) == 2)
    await asyncio.sleep(1.0)
    cut_at = now()
    server.memory.suspend(noticed_after_seconds=4.0)
    await asyncio.sleep(5.9)
    assert server.store.state is SessionState.SUSPENDED
    assert len(server.partitions) == 2
    await asyncio.sleep(0.2)
    assert server.partitions == {}
    assert now() - cut_at < 6.2
    await server.stop()


async def test_safety_d8_the_clock_counts_from_the_last_contact_not_from_the_notice() -> None:
    """The client may notice the cut only after the session is over: it must have closed its partitions
    before."""
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001, timeout_seconds=6.0)
    await until(lambda: len(server.partitions) == 2)
    await asyncio.sleep(20.0)  # the lease was renewed many times meanwhile
    assert len(server.partitions) == 2
    server.memory.suspend(noticed_after_seconds=100.0)
    await asyncio.sleep(5.9)
    assert len(server.partitions) == 2
    await asyncio.sleep(0.2)
    assert server.store.state is SessionState.CONNECTED
    assert server.partitions == {}
    await server.stop()


async def test_safety_d8_a_short_cut_changes_nothing() -> None:
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001, timeout_seconds=6.0)
    await until(lambda: len(server.partitions) == 2)
    for _ in range(4):
        server.memory.suspend()
        await asyncio.sleep(4.0)
        server.memory.resume()
        await asyncio.sleep(4.0)
    assert len(server.history) == 1
    await server.stop()


async def test_safety_d8_lost_closes_at_once_and_the_server_returns_with_its_id() -> None:
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 2)
    server_id = server.joined.server_id
    server.memory.expire(reconnect_after_seconds=3.0)
    assert server.partitions == {}
    await asyncio.sleep(2.9)
    assert server.partitions == {}
    await until(lambda: len(server.partitions) == 2)
    assert server.joined.server_id == server_id
    assert set(server.partitions.values()) == {1}
    assert server.store.epoch == 2
    await server.stop()


async def test_safety_d8_partitions_come_back_when_the_cut_was_too_long_but_the_session_lived() -> None:
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001, timeout_seconds=6.0)
    await until(lambda: len(server.partitions) == 2)
    server.memory.suspend(server_keeps_session=True)
    await asyncio.sleep(7.0)
    assert server.partitions == {}
    server.memory.resume()
    await until(lambda: len(server.partitions) == 2)
    await server.stop()


async def test_safety_d8_what_was_read_before_the_loss_is_not_adopted_after_it() -> None:
    """The answers of the old session arrive, then the session is lost, then the evaluation goes on."""
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 2)
    original = server.manager._reader.snapshot

    async def snapshot_then_loss(*, watch: bool = True) -> object:
        result = await original(watch=watch)
        server.manager._reader.snapshot = original  # type: ignore[method-assign]
        server.memory.expire(reconnect_after_seconds=50.0)
        return result

    server.manager._reader.snapshot = snapshot_then_loss  # type: ignore[method-assign, assignment]
    server.manager._wake.set()
    await asyncio.sleep(40.0)
    assert server.partitions == {}
    await until(lambda: len(server.partitions) == 2, timeout_seconds=60.0)
    await server.stop()


async def test_zookeeper_6_05_a_server_cut_off_has_stopped_when_others_take_over() -> None:
    zookeeper = await memory_cluster(4)
    first = await start_server(zookeeper, 8001, timeout_seconds=6.0)
    second = await start_server(zookeeper, 8002, timeout_seconds=6.0)
    await until(lambda: len(first.partitions) == 2 and len(second.partitions) == 2)
    kept = dict(first.partitions)
    first.memory.suspend()
    while len(second.partitions) != 4:
        still_served = dict(first.partitions)
        await asyncio.sleep(0)
        assert len(second.partitions) != 4 or not still_served
        await asyncio.sleep(0.01)
    assert first.partitions == {}
    assert all(second.partitions[p] == kept[p] + 1 for p in kept)
    first.memory.resume()
    await until(lambda: len(first.partitions) == 2 and len(second.partitions) == 2)
    assert all(first.partitions[p] > 1 for p in first.partitions)
    await first.stop()
    await second.stop()


async def test_clients_keep_the_last_endpoints_while_zookeeper_is_away() -> None:
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001)
    store = zookeeper.session()
    seen: list[Endpoints] = []
    async with ClusterManager(store, ROOT, rng=random.Random(0)) as client:
        client.add_endpoints_listener(seen.append)
        await until(lambda: len(seen[-1]) == 1)
        count = len(seen)
        store.expire(reconnect_after_seconds=30.0)
        await asyncio.sleep(60.0)
        assert len(seen) == count
        await server.stop()
        await until(lambda: seen[-1] == {})


async def test_a_restart_of_zookeeper_is_survived() -> None:
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 2)
    zookeeper.restart(down_seconds=5.0)
    await asyncio.sleep(20.0)
    assert len(server.history) == 1
    other = await start_server(zookeeper, 8002)
    await until(lambda: len(other.partitions) == 1 and len(server.partitions) == 1)
    await server.stop()
    await other.stop()


async def test_leaving_without_zookeeper_ends_in_time() -> None:
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 2)
    server.memory.suspend()
    started = now()
    await server.joined.unregister(timeout_seconds=3.0)
    assert now() - started <= 3.1
    assert server.partitions == {}
    await server.stop()


async def test_leaving_while_zookeeper_answers_nothing_ends_in_time() -> None:
    """It is connected, as far as anybody knows, and an evaluation waits for an answer too."""
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001)
    await until(lambda: len(server.partitions) == 2)
    server.memory.suspend(noticed_after_seconds=9.0)
    server.manager._wake.set()
    await asyncio.sleep(0.1)
    started = now()
    await server.joined.unregister(timeout_seconds=3.0)
    assert now() - started <= 3.1
    assert server.partitions == {}
    await server.stop()


async def test_safety_d8_a_server_that_leaves_gives_up_its_partitions_with_its_session() -> None:
    """Its leaving waits for an answer of ZooKeeper meanwhile."""
    zookeeper = await memory_cluster(2)
    server = await start_server(zookeeper, 8001, 10.0)
    await until(lambda: len(server.partitions) == 2)
    server.memory.suspend(noticed_after_seconds=50.0)
    leaving = spawn(server.joined.unregister(timeout_seconds=40.0), "leaving")
    await asyncio.sleep(5.0)
    assert len(server.partitions) == 2
    await asyncio.sleep(6.0)
    assert server.partitions == {}
    await leaving
    await server.stop()


def test_safety_d8_events_of_an_older_session_are_dropped() -> None:
    tracker = SessionTracker()
    seen: list[tuple[SessionState, int]] = []
    tracker.add_listener(lambda event: seen.append((event.state, event.epoch)))
    c, s, x = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST
    events = [
        (c, 1),
        (s, 1),
        (s, 1),
        (c, 1),
        (x, 1),
        (c, 1),
        (s, 1),
        (c, 2),
        (x, 1),
        (s, 1),
        (c, 1),
        (s, 2),
        (x, 1),
    ]
    for state, epoch in events:
        tracker.deliver(SessionEvent(state, epoch, 0.0))
    assert seen == [(c, 1), (s, 1), (c, 1), (x, 1), (c, 2), (s, 2)]
    assert (tracker.state, tracker.epoch) == (s, 2)


def test_a_watch_fires_once_and_its_failure_is_contained() -> None:
    fired: list[int] = []

    def callback() -> None:
        fired.append(1)
        raise RuntimeError("on purpose")

    watch = OneShotWatch(callback)
    watch.fire()
    watch.fire()
    cancelled = OneShotWatch(callback)
    cancelled.cancel()
    cancelled.fire()
    assert fired == [1]


async def test_a_suspended_memory_store_fires_its_watches() -> None:
    zookeeper = MemoryZooKeeper()
    store = zookeeper.session()
    await store.create("/a", None)
    fired = asyncio.Event()
    await store.get("/a", fired.set)
    store.suspend()
    async with asyncio.timeout(1):
        await fired.wait()
    await store.close()
