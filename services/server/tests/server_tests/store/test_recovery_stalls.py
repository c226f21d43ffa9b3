"""One bad node must not keep a partition from coming back, and what was acknowledged is never cut."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import Cluster, Server, entries, until
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.types import SessionInfo
from waltz_server.store.api import StoreState
from waltz_server.store.session_run import SessionRun

pytestmark = pytest.mark.looptime


async def _ten_records_and_a_crash(cluster: Cluster) -> None:
    """Every node holds records 0..9; the first server is gone."""
    first = cluster.server()
    await first.opened()
    await first.append(entries(10))
    await until(lambda: all(n.max_txid == 9 for n in cluster.nodes.values()))
    await first.crash()


async def _a_holds_more_than_b_and_c_is_lost(cluster: Cluster) -> None:
    """Record 100 is on A (and was on C): only a copy from A to B can decide it."""
    first = cluster.server()
    await first.opened()
    await first.append(entries(100))
    await until(lambda: all(n.max_txid == 99 for n in cluster.nodes.values()))
    cluster.nodes["b:1"].delay_seconds = 1.0
    await first.append(entries(1))
    await first.crash()
    cluster.nodes["b:1"].delay_seconds = 0.0
    cluster.nodes["c:1"].wipe()
    assert cluster.nodes["b:1"].max_txid == 99


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_source_that_could_not_be_read_for_a_moment_is_asked_again(failures: int) -> None:
    """Before, one failed read of the only source left the partition undecidable for good."""
    async with Cluster() as cluster:
        await _a_holds_more_than_b_and_c_is_lost(cluster)
        left = failures + 1  # the first list request is the comparison of the last common record

        def busy(kind: str, _session: int) -> str | None:
            nonlocal left
            if kind != "list":
                return None
            left -= 1
            return "busy" if 0 <= left < failures else None

        cluster.nodes["a:1"].refuse = busy
        second = cluster.server(generation=2)
        await until(lambda: second.store.state is StoreState.OPEN, 60)
        assert second.store.high_water_mark == 100


@pytest.mark.parametrize("bad", ["a:1", "b:1", "c:1"])
async def test_a_node_that_cannot_read_does_not_keep_the_others_from_recovering(bad: str) -> None:
    """Before, the others waited forever to compare themselves with it."""
    async with Cluster() as cluster:
        await _ten_records_and_a_crash(cluster)
        cluster.nodes[bad].refuse = lambda kind, _session: "io error" if kind == "list" else None
        second = cluster.server(generation=2)
        await until(lambda: second.store.state is StoreState.OPEN, 60)
        assert second.store.high_water_mark == 9
        await second.append(entries(5))
        cluster.nodes[bad].refuse = None
        await until(lambda: cluster.nodes[bad].max_txid == 14, 120)
        cluster.check_equal(14)


async def test_a_connection_that_ends_while_replica_states_are_written_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run heard of it turn after turn, before its replica could: the loop stood still until the restart
    was due."""
    async with Cluster() as cluster:
        server = cluster.server()
        metadata = server.store._context.keeper._metadata
        write, out = metadata.write_partition, SessionRun.replica_out
        told = 0

        async def write_then_lose(partition_id: int, states: PartitionMetadata, version: int) -> int:
            written = await write(partition_id, states, version)
            if states.replicas and cluster.nodes["c:1"].up:
                cluster.nodes["c:1"].kill()
            return written

        def replica_out(run: SessionRun, name: str, reason: str) -> None:
            nonlocal told
            told += 1
            assert told < 100, "the loop of the run never waits"
            out(run, name, reason)

        monkeypatch.setattr(metadata, "write_partition", write_then_lose)
        monkeypatch.setattr(SessionRun, "replica_out", replica_out)
        await until(lambda: server.listener.opened > 0)
        await server.append(entries(3))
        assert server.store.state is StoreState.OPEN
        assert told < 4


async def forgotten_by_two(cluster: Cluster) -> Server:
    """Two disks forgot what the server acknowledged, the third node is away: its server has found the
    fault."""
    server = cluster.server()
    await server.opened()
    await server.append(entries(10))
    await until(lambda: all(node.max_txid == 9 for node in cluster.nodes.values()))
    for node in cluster.nodes.values():
        node.kill()
    for name in ("a:1", "b:1"):
        del cluster.nodes[name].log[5:]
        cluster.nodes[name].start()
    await until(lambda: server.store.state is StoreState.FAULT, 60)
    return server


async def test_safety_a2_nothing_is_cut_below_what_this_server_acknowledged() -> None:
    """The third node, which comes late, is the last to have the records."""
    async with Cluster() as cluster:
        server = await forgotten_by_two(cluster)
        cluster.nodes["c:1"].start()
        await asyncio.sleep(60)
        assert server.store.state is StoreState.FAULT
        assert "acknowledged" in server.store.state_reason
        assert cluster.nodes["c:1"].max_txid == 9


async def test_sessions_that_open_and_lose_their_quorum_at_once_are_not_tried_in_a_hot_loop() -> None:
    """Three full disks: every session opens, fails its first append and ends. ZooKeeper must not pay for
    it."""
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(3))
        for node in cluster.nodes.values():
            node.refuse = lambda kind, _session: "disk full" if kind == "append" else None

        async def load() -> None:
            while True:
                if server.store.state is StoreState.OPEN:
                    server.store.append(entries(1))
                await asyncio.sleep(0.001)

        loading = spawn(load(), "load")
        await asyncio.sleep(10)
        tried = server.store.session_id
        for node in cluster.nodes.values():
            node.refuse = None
        await until(lambda: len(server.listener.committed_entries) > 50, 60)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        assert tried < 15


async def test_a_replica_emptied_after_it_answered_is_asked_again_and_filled() -> None:
    """An administrator empties a copy while its server waits for a quorum; before, that passed for a fork for
    the rest of the session."""
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(10))
        await until(lambda: all(n.max_txid == 9 for n in cluster.nodes.values()))
        emptied = cluster.nodes["c:1"]
        asked = emptied.calls.count("max")
        for name in ("a:1", "b:1"):
            cluster.nodes[name].kill()
        await until(lambda: server.store.state is StoreState.NO_QUORUM, 60)
        await until(lambda: emptied.calls.count("max") > asked)
        emptied.wipe()
        for name in ("a:1", "b:1"):
            cluster.nodes[name].start()
        await until(lambda: emptied.max_txid == 9, 60)
        await until(lambda: [r.state for r in server.store.replicas] == ["voting"] * 3, 60)
        await server.append(entries(5))
        await until(lambda: emptied.max_txid == 14)
        cluster.check_equal(14)


async def test_a_mark_set_on_a_copy_that_was_just_emptied_does_not_count() -> None:
    """Before, such a replica passed for recovered, and was listed with nothing, until the first append to
    it."""
    async with Cluster() as cluster:
        await _ten_records_and_a_crash(cluster)
        emptied, left = cluster.nodes["b:1"], [True]

        def empty_it(kind: str, _session: int) -> str | None:
            if kind == "set_lwm" and left:
                left.clear()
                emptied.log, emptied.info = [], SessionInfo(-1, -1, -1)
            return None

        emptied.refuse = empty_it
        second = cluster.server(generation=2)
        await until(lambda: second.store.state is StoreState.OPEN, 60)
        assert not left
        await until(lambda: emptied.max_txid == 9, 60)
        await until(lambda: [r.state for r in second.store.replicas] == ["voting"] * 3, 60)
        cluster.check_equal(9)


@pytest.mark.parametrize("records", [0, 10])
async def test_a_listed_replica_that_is_emptied_comes_back_by_the_next_session(records: int) -> None:
    """Its node refuses the session that counted on the old copy. The partition may have been empty all the
    time."""
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        if records:
            await server.append(entries(records))
        await until(lambda: [r.state for r in server.store.replicas] == ["voting"] * 3, 60)
        await until(lambda: all(n.max_txid == records - 1 for n in cluster.nodes.values()))
        emptied, session = cluster.nodes["c:1"], server.store.session_id
        emptied.rebuild()
        await server.append(entries(1))
        await until(lambda: emptied.max_txid == records, 60)
        await until(lambda: [r.state for r in server.store.replicas] == ["voting"] * 3, 60)
        assert server.store.session_id == session + 1 == emptied.info.session_id
        cluster.check_equal(records)


async def test_a_replica_emptied_between_its_mark_and_its_listing_gets_another_session() -> None:
    """It is the only one that is up with another; its node refuses this session, so this session would wait
    forever."""
    async with Cluster() as cluster:
        await _ten_records_and_a_crash(cluster)
        cluster.nodes["c:1"].kill()
        emptied, other = cluster.nodes["a:1"], cluster.nodes["b:1"]
        other.refuse = lambda kind, _session: "busy" if kind == "set_lwm" else None
        second = cluster.server(generation=2)
        await until(lambda: emptied.info.session_id == second.store.session_id >= 0, 60)
        await asyncio.sleep(0.1)
        emptied.rebuild()
        for link in list(emptied.links):
            link.break_off("the cable was pulled")
        await asyncio.sleep(1)
        other.refuse = None
        await asyncio.sleep(1)
        cluster.nodes["c:1"].start()
        await until(lambda: second.store.state is StoreState.OPEN, 60)
        await until(lambda: emptied.max_txid == 9, 60)
        await until(lambda: [r.state for r in second.store.replicas] == ["voting"] * 3, 60)
        cluster.check_equal(9)


async def test_a_replica_emptied_right_after_it_took_the_mark_gets_another_session() -> None:
    """Its node refuses the question that follows; before, it was then refused for the rest of the session."""
    async with Cluster() as cluster:
        await _ten_records_and_a_crash(cluster)
        emptied, left = cluster.nodes["c:1"], [True]

        def empty_it(kind: str, session: int) -> str | None:
            if kind == "max" and emptied.info.session_id == session and left:
                left.clear()
                emptied.rebuild()
            return None

        emptied.refuse = empty_it
        second = cluster.server(generation=2)
        await until(lambda: not left and [r.state for r in second.store.replicas] == ["voting"] * 3, 60)
        assert emptied.info.session_id == second.store.session_id
        cluster.check_equal(9)


async def test_a_replica_that_cannot_be_refilled_does_not_end_the_session_of_the_others() -> None:
    """Its disk is full: it takes the mark and refuses every copy. Before, each try cost all others a
    session."""
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(10))
        full = cluster.nodes["c:1"]
        full.kill()
        await server.append(entries(10))
        full.start()
        full.refuse = lambda kind, _session: "no room" if kind == "append" else None
        await until(lambda: full.calls.count("set_lwm") > 1, 120)
        session, refused = server.store.session_id, full.calls.count("append")
        await until(lambda: full.calls.count("append") > refused + 5, 300)
        assert server.store.session_id == session
        full.refuse = None
        await until(lambda: [r.state for r in server.store.replicas] == ["voting"] * 3, 120)
        cluster.check_equal(19)


async def test_a_copy_of_large_records_never_ends_a_connection() -> None:
    """Before, 20 records were asked for at first and after every failure: the copy never got anywhere."""
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(1))
        await until(lambda: all(n.max_txid == 0 for n in cluster.nodes.values()))
        cluster.nodes["b:1"].kill()
        for batch in (entries(20, 8), entries(40, 100_000)):
            await first.append(batch)
        await until(lambda: all(cluster.nodes[name].max_txid == 60 for name in ("a:1", "c:1")))
        await first.crash()
        cluster.nodes["b:1"].start()
        cluster.nodes["c:1"].kill()
        cluster.nodes["a:1"].largest_frame = 2_000_000
        second = cluster.server(generation=2)
        await until(lambda: second.store.state is StoreState.OPEN, 60)
        await until(lambda: cluster.nodes["b:1"].max_txid == 60)
        cluster.check_equal(60, ("a:1", "b:1"))
        assert cluster.nodes["a:1"].overlong <= 1
