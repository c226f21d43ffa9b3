"""The partition store on in-memory nodes and an in-memory ZooKeeper, on virtual time: service and
failures."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import Cluster, Server, entries, until
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.frames.blocks import stored_of_record
from waltz_protocol.types import UNRESOLVED
from waltz_server.store.api import ReadFailedError, StoreNotOpenError, StoreSettings, StoreState

pytestmark = pytest.mark.looptime


async def keep_appending(server: Server, seconds: float, step_seconds: float = 0.01) -> int:
    """Append small batches for a while, whenever the store is open; returns how many entries were
    accepted."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    accepted = 0
    while loop.time() < ends:
        if server.store.state is StoreState.OPEN and server.store.writable:
            server.store.append(entries(5))
            accepted += 5
        await asyncio.sleep(step_seconds)
    return accepted


async def test_first_session_appends_and_reads() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        assert server.store.session_id == 0
        assert server.listener.events == ["opened -1"]
        batch = entries(10)
        await server.append(batch)
        assert [e.transaction_id for e in batch] == list(range(10))
        assert server.store.high_water_mark == 9
        assert server.store.pending == 0
        assert server.store.pending_bytes == 0
        runs = [await server.store.read(first, count) for first, count in ((3, 4), (4, 3), (6, 1))]
        assert [[int.from_bytes(r[:8], "big") for r in run.records] for run in runs] == [[3], [4, 5], [6]]
        assert not await server.store.read(10, 5)
        await until(lambda: all(n.max_txid == 9 for n in cluster.nodes.values()))
        stored = await cluster.stored()
        assert {s.session_id for s in stored.replicas.values()} == {0}
        assert {s.closing_high_water_mark for s in stored.replicas.values()} == {UNRESOLVED}
        await server.store.confirm_current()
        assert server.store.healthy
        assert [r.state for r in server.store.replicas] == ["voting"] * 3


async def test_append_never_reports_from_inside_the_call() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        before = list(server.listener.events)
        server.store.append(entries(3))
        assert server.listener.events == before
        assert server.store.pending == 3


async def test_close_ends_run_cleanly() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        server.store.close()
        assert server.task is not None
        async with asyncio.timeout(5):
            await server.task
        assert server.store.state is StoreState.CLOSED
        with pytest.raises(StoreNotOpenError):
            server.store.append(entries(1))
        assert all(not link.on_closed for node in cluster.nodes.values() for link in node.links)


async def test_killed_replica_is_closed_in_metadata_and_comes_back() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(20))
        cluster.nodes["c:1"].kill()
        await until(lambda: server.store.session_id == 1 and server.store.state is StoreState.OPEN)
        stored = await cluster.stored()
        assert stored.replicas["c:1"].session_id == 0
        assert stored.replicas["c:1"].closing_high_water_mark == 19
        await server.append(entries(30))
        assert server.store.healthy
        cluster.nodes["c:1"].start()
        await until(lambda: cluster.nodes["c:1"].max_txid == 49, 60)
        await until(lambda: [r.state for r in server.store.replicas] == ["voting"] * 3)
        assert server.store.session_id == 1  # it joined the running session
        stored = await cluster.stored()
        assert stored.replicas["c:1"].session_id == 1
        assert stored.replicas["c:1"].closing_high_water_mark == UNRESOLVED
        cluster.check_equal(49)


async def test_no_entry_fails_when_one_replica_dies_under_load() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        load = spawn(keep_appending(server, 5), "load")
        await asyncio.sleep(1)
        cluster.nodes["b:1"].kill()
        await asyncio.sleep(1)
        cluster.nodes["b:1"].start()
        accepted = await load
        await until(lambda: len(server.listener.committed_entries) == accepted)
        assert server.listener.failed_entries == []
        await until(lambda: cluster.nodes["b:1"].max_txid == accepted - 1, 60)
        cluster.check_equal(accepted - 1)


async def test_late_joiner_catches_up_under_load_without_gap_or_overlap() -> None:
    async with Cluster() as cluster:
        cluster.nodes["c:1"].kill()
        server = cluster.server()
        await server.opened()
        load = spawn(keep_appending(server, 4, 0.003), "load")
        for node in cluster.nodes.values():
            node.delay_seconds = 0.003
        await asyncio.sleep(0.5)
        cluster.nodes["c:1"].start()
        await until(lambda: cluster.nodes["c:1"].max_txid > 0)
        assert server.store.pending > 0  # the load goes on meanwhile
        accepted = await load
        await until(lambda: len(server.listener.committed_entries) == accepted)
        await until(lambda: cluster.nodes["c:1"].max_txid == accepted - 1, 60)
        assert server.store.session_id == 0
        cluster.check_equal(accepted - 1)


async def test_safety_d3_slow_replica_has_a_bounded_backlog_and_catches_up() -> None:
    settings = StoreSettings(replica_backlog_bytes=20_000, max_in_flight_bytes=1_000_000)
    async with Cluster() as cluster:
        server = cluster.server(settings=settings)
        await server.opened()
        cluster.nodes["c:1"].delay_seconds = 0.3
        largest = 0
        for _ in range(300):
            server.store.append(entries(10, 50))
            await asyncio.sleep(0.005)
            run = server.store.current_run
            assert run is not None
            assert run.session is not None
            largest = max(largest, run.session.queue.retained_bytes)
        assert largest <= 20_000 + 2_000
        await until(lambda: len(server.listener.committed_entries) == 3000)
        assert server.store.session_id == 0  # slow is not dead: the session goes on
        assert cluster.nodes["c:1"].max_txid < 2999
        cluster.nodes["c:1"].delay_seconds = 0.0
        await until(lambda: cluster.nodes["c:1"].max_txid == 2999, 60)
        cluster.check_equal(2999)
        assert server.store.session_id == 0


async def test_hanging_replica_times_out_and_its_late_answers_never_count() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        cluster.nodes["a:1"].answers = False
        await server.append(entries(5))
        await until(lambda: server.store.session_id >= 1 and server.store.state is StoreState.OPEN, 60)
        stored = await cluster.stored()
        assert stored.replicas["a:1"].closing_high_water_mark != UNRESOLVED
        cluster.nodes["a:1"].answers = True
        await until(lambda: [r.state for r in server.store.replicas] == ["voting"] * 3, 60)
        await server.append(entries(5))
        await until(lambda: cluster.nodes["a:1"].max_txid == 9)
        cluster.check_equal(9)


async def test_quorum_lost_and_found_settles_what_was_in_flight() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(3))
        cluster.nodes["a:1"].kill()
        cluster.nodes["b:1"].kill()
        batch = entries(4)
        server.store.append(batch)  # reaches c only
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        assert server.store.pending == 4
        assert "a:1" in server.store.state_reason
        assert "b:1" in server.store.state_reason
        assert server.listener.events[-1].startswith("lost")
        cluster.nodes["a:1"].start()
        await until(lambda: server.store.state is StoreState.OPEN, 60)
        assert server.store.pending == 0
        assert server.listener.committed_entries[-4:] == batch  # c had them, a copied them
        cluster.nodes["b:1"].start()
        await until(lambda: cluster.nodes["b:1"].max_txid == 6, 60)
        cluster.check_equal(6)


async def test_storage_7_20_health_is_true_to_the_quorum() -> None:
    async with Cluster() as cluster:
        cluster.nodes["a:1"].kill()
        cluster.nodes["b:1"].kill()
        server = cluster.server()
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        assert not server.store.healthy
        cluster.nodes["a:1"].start()
        await until(lambda: server.store.healthy, 60)
        cluster.nodes["a:1"].kill()
        await until(lambda: not server.store.healthy)


async def test_storage_7_24_only_a_changed_set_restarts_the_session() -> None:
    async with Cluster(("a:1", "b:1", "c:1", "d:1")) as cluster:
        server = cluster.server(replicas=("a:1", "b:1", "c:1"))
        await server.opened()
        await server.append(entries(5))
        server.store.set_replicas(["c:1", "b:1", "a:1"])
        await asyncio.sleep(2)
        assert server.store.session_id == 0
        server.store.set_replicas(["a:1", "b:1", "c:1", "d:1"])
        await until(lambda: server.store.session_id == 1 and server.store.state is StoreState.OPEN)
        await server.append(entries(5))
        await until(lambda: cluster.nodes["d:1"].max_txid == 9)
        cluster.check_equal(9)
        server.store.set_replicas(["a:1", "b:1", "d:1"])
        await until(lambda: server.store.session_id == 2 and server.store.state is StoreState.OPEN)
        assert set((await cluster.stored()).replicas) == {"a:1", "b:1", "d:1"}


async def test_storage_7_23_a_replica_failing_late_in_its_recovery_stops_nobody() -> None:
    async with Cluster() as cluster:
        cluster.nodes["c:1"].refuse = lambda kind, _session: "disk error" if kind == "set_lwm" else None
        server = cluster.server()
        await server.opened()
        await server.append(entries(5))
        assert server.store.session_id == 0
        assert server.store.healthy
        await asyncio.sleep(30)
        assert server.store.session_id == 0  # refused with an answer: it may try again in this session
        cluster.nodes["c:1"].refuse = None
        await until(lambda: cluster.nodes["c:1"].max_txid == 4, 60)
        cluster.check_equal(4)


@pytest.mark.parametrize("change", ["append", "set_lwm"])
async def test_replica_with_a_change_in_doubt_waits_for_the_next_session(change: str) -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(5))
        cluster.nodes["c:1"].kill()
        await until(lambda: server.store.session_id == 1 and server.store.state is StoreState.OPEN)
        await server.append(entries(5))
        server.store.set_generation(2)  # so that the next mark is above what c holds
        await until(lambda: server.store.session_id == 2 and server.store.state is StoreState.OPEN)
        node = cluster.nodes["c:1"]

        hanging: list[str] = []

        def hang(kind: str, session: int) -> str | None:
            node.answers = kind != change or session != 2
            if not node.answers:
                hanging.append(kind)
            return None

        node.calls.clear()
        node.refuse = hang
        node.start()
        await until(lambda: change in node.calls, 60)
        assert server.store.session_id == 2
        await until(lambda: server.store.session_id == 3, 60)
        assert hanging == [change]  # nothing was tried again in the session
        node.refuse, node.answers = None, True
        await until(lambda: node.max_txid == 9, 100)
        cluster.check_equal(9)


async def test_storage_7_29_read_error_tries_another_replica_and_keeps_the_session() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(20))
        await until(lambda: all(n.max_txid == 19 for n in cluster.nodes.values()))
        damaged = bytearray(cluster.nodes["a:1"].log[5])
        damaged[34] ^= 1
        cluster.nodes["a:1"].log[5] = bytes(damaged)
        cluster.nodes["b:1"].refuse = lambda kind, _s: "io error" if kind == "list" else None
        for _ in range(6):
            run = await server.store.read(5, 3)
            assert run.records[0] == stored_of_record(cluster.nodes["c:1"].log[5])
        assert server.store.session_id == 0
        cluster.nodes["c:1"].refuse = lambda kind, _s: "io error" if kind == "list" else None
        with pytest.raises(ReadFailedError, match="checksum"):
            await server.store.read(5, 3)
        assert server.store.session_id == 0
        assert server.store.healthy


async def test_reads_stay_below_the_byte_limit_and_are_never_empty() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(50, 1000))
        asked = [len(await server.store.read(0, 50)) for _ in range(7)]
        assert asked == [1, 2, 4, 8, 16, 32, 50]  # answers teach the size of records
        assert len(await server.store.read(0, 50, 3500)) == 3
        assert len(await server.store.read(0, 50, 10)) == 1
        assert len(await server.store.read(45, 50)) == 5


async def test_checkpoint_interval_replaces_the_session_in_order() -> None:
    async with Cluster() as cluster:
        server = cluster.server(settings=StoreSettings(checkpoint_interval=12))
        await server.opened()
        await server.append(entries(12))
        await until(lambda: server.store.session_id == 1 and server.store.state is StoreState.OPEN)
        assert all(n.info.low_water_mark == 11 for n in cluster.nodes.values())
        accepted = await keep_appending(server, 3)
        await until(lambda: len(server.listener.committed_entries) == 12 + accepted)
        assert server.listener.failed_entries == []
        assert server.store.session_id > 3
        cluster.check_equal(11 + accepted)


async def test_frames_form_batches_and_writable_follows_the_bound() -> None:
    async with Cluster() as cluster:
        server = cluster.server(settings=StoreSettings(max_in_flight_bytes=50_000))
        await server.opened()
        for node in cluster.nodes.values():
            node.delay_seconds = 0.01
        for _ in range(200):
            server.store.append(entries(2, 100))
        full = not server.store.writable
        await until(lambda: len(server.listener.committed_entries) == 400)
        assert full
        assert server.store.writable
        assert server.listener.writable_calls == 1
        # what found no room went together
        assert max(node.largest_append for node in cluster.nodes.values()) > 20


async def test_writable_follows_the_bound_in_records() -> None:
    """16 MiB would be hundreds of thousands of the smallest, which one settlement has to report."""
    async with Cluster() as cluster:
        server = cluster.server(settings=StoreSettings(max_in_flight_records=50))
        await server.opened()
        for node in cluster.nodes.values():
            node.delay_seconds = 0.01
        seen = []
        for count in (49, 1):
            server.store.append(entries(count, 0))
            seen.append(server.store.writable)
        assert seen == [True, False]
        server.store.append(entries(100, 0))  # who does not look at `writable` is not refused
        await until(lambda: len(server.listener.committed_entries) == 150)
        assert server.store.writable
        assert server.listener.writable_calls == 1


async def test_storage_7_26_at_most_32_frames_are_in_flight_per_replica() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        for _ in range(40):
            await server.append(entries(1))
        for node in cluster.nodes.values():
            node.delay_seconds = 0.01
        for _ in range(100):
            server.store.append(entries(1))
        run = server.store.current_run
        assert run is not None
        assert run.session is not None
        assert {r.in_flight for r in run.session.replicas.values()} == {32}
        await until(lambda: len(server.listener.committed_entries) == 140)
