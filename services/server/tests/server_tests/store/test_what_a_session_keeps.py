"""What a store may show of a session, what it remembers of it, and what must come back from it when it
ends."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import Cluster, entries, entry, until
from server_tests.store.test_router_and_directory import node_with_records
from waltz_server.store.api import StoreSettings, StoreState
from waltz_server.store.frames import FrameQueue
from waltz_server.store.record_reads import check_records

pytestmark = pytest.mark.looptime


async def test_safety_a2_a_server_does_not_go_back_behind_what_it_acknowledged() -> None:
    """All disks were set back at once: the nodes agree, and this server knows better."""
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(5))
        await until(lambda: all(node.max_txid == 4 for node in cluster.nodes.values()))
        assert server.store.high_water_mark == 4
        for node in cluster.nodes.values():
            del node.log[3:]
        server.store.set_generation(2)
        await until(lambda: server.store.state is StoreState.FAULT)
        assert "what this server acknowledged proves 4 committed" in server.store.state_reason
        assert all(node.max_txid == 2 for node in cluster.nodes.values())


async def test_safety_d1_a_read_shows_nothing_that_only_one_node_has() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(5))
        size = server.store._context.list_request_size
        for _ in range(10):  # so that one request asks for all there is
            size.answered(size.ask(10_000, 1 << 20), 1, 8)
        for name in ("b:1", "c:1"):
            cluster.nodes[name].delay_seconds = 1.5
        server.store.append(entries(5))
        await until(lambda: cluster.nodes["a:1"].max_txid == 9)
        asked = cluster.nodes["a:1"].calls.count("list")
        assert len(await server.store.read(0, 100)) == 5
        assert cluster.nodes["a:1"].calls.count("list") == asked + 1
        await until(lambda: server.store.high_water_mark == 9)


async def test_the_last_record_can_be_read_and_the_one_after_it_cannot() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(3))
        assert len(await server.store.read(2, 10)) == 1
        assert not await server.store.read(3, 10)


async def test_safety_a4_entries_that_found_no_room_come_back_with_the_others() -> None:
    """They have an id and are in no frame: when the session ends they are settled like the rest. More than
    the bound on records were in flight: then there is room again."""
    settings = StoreSettings(max_in_flight_frames=1, request_timeout_seconds=2.0, max_in_flight_records=5)
    async with Cluster() as cluster:
        server = cluster.server(settings=settings)
        await server.opened()
        await server.append(entries(2))
        for node in cluster.nodes.values():
            node.delay_seconds = 1.0
        sent = []
        for _ in range(4):
            batch = entries(2)
            server.store.append(batch)
            sent += batch
            await asyncio.sleep(0.01)
        run = server.store.current_run
        assert run is not None
        assert run.session is not None
        assert run.session.queue.waiting
        for name in ("b:1", "c:1"):
            cluster.nodes[name].kill()
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        assert (server.store.pending, server.store.writable) == (8, False)
        for node in cluster.nodes.values():
            node.delay_seconds = 0.0
        for name in ("b:1", "c:1"):
            cluster.nodes[name].start()
        await server.opened()
        ended = server.listener.committed_entries[2:] + server.listener.failed_entries
        assert ended == sent
        assert (server.store.pending, server.store.pending_bytes) == (0, 0)
        assert (server.store.writable, server.listener.writable_calls) == (True, 1)


async def test_the_bytes_in_flight_to_a_replica_are_free_again_after_its_answer() -> None:
    async with Cluster() as cluster:
        server = cluster.server(settings=StoreSettings(max_in_flight_bytes=3000))
        await server.opened()
        for _ in range(10):
            await server.append(entries(1, 1000))
        await until(lambda: all(node.max_txid == 9 for node in cluster.nodes.values()))
        run = server.store.current_run
        assert run is not None
        assert run.session is not None
        assert [r.in_flight_bytes for r in run.session.replicas.values()] == [0, 0, 0]


async def test_a_copy_in_doubt_leaves_the_replica_to_the_next_session() -> None:
    """An Append without an answer may still be carried out: after the copies of a second try it would be the
    third."""
    async with Cluster() as cluster:
        settings = StoreSettings(replica_backlog_bytes=100, request_timeout_seconds=1.0)
        server = cluster.server(settings=settings)
        await server.opened()
        cluster.nodes["c:1"].kill()
        await until(lambda: server.store.session_id == 1 and server.store.state is StoreState.OPEN)
        await server.append(entries(5))
        node = cluster.nodes["c:1"]

        def hang(kind: str, session: int) -> str | None:
            node.answers = not (kind == "append" and session == 1)
            return None

        node.refuse = hang
        node.start()
        await until(lambda: "append" in node.calls, 60)
        await until(lambda: server.store.session_id >= 2 and server.store.state is StoreState.OPEN, 60)
        await until(lambda: node.max_txid == 4, 60)
        cluster.check_equal(4)


def test_a_frame_is_found_by_each_of_its_records_and_gives_its_bytes_back() -> None:
    queue = FrameQueue(next_txid=10, max_frame_bytes=1 << 20, max_frame_records=3)
    queue.add(entries(8))
    frames = [queue.build() for _ in range(3)]
    assert [(frame.first, frame.last) for frame in frames] == [(10, 12), (13, 15), (16, 17)]
    for txid in range(10, 18):
        assert queue.find(txid) is frames[(txid - 10) // 3]
    assert queue.find(9) is None
    assert queue.find(18) is None
    assert queue.retained_bytes == sum(len(frame.records.wire) for frame in frames)
    for _ in frames:
        queue.drop_first()
    assert (queue.retained_bytes, queue.base_seq, queue.end_seq) == (0, 3, 3)


def test_a_record_larger_than_a_frame_makes_a_frame_of_its_own() -> None:
    queue = FrameQueue(next_txid=0, max_frame_bytes=100, max_frame_records=10)
    queue.add([entry(8), entry(500), entry(8)])
    assert [queue.build().count for _ in range(3)] == [1, 1, 1]
    assert queue.waiting == []


async def test_records_of_a_node_are_believed_only_whole_and_in_their_places() -> None:
    records = node_with_records("a:1", 4).log
    assert check_records(records, 0, 0) is None
    assert check_records([], 0, 0) == "it has no record 0"
    assert check_records(records[1:], 0, 0) == "it answered with record 1 instead of 0"
    assert check_records([records[0], records[2]], 0, 0) == "it answered with record 2 instead of 1"
    assert check_records([records[1], records[1]], 1, 0) == "it answered with record 1 instead of 2"
    assert check_records(records, 0, 3) == "its record 0 is one of partition 0"
    damaged = records[2][:-6] + bytes([records[2][-6] ^ 1]) + records[2][-5:]
    assert check_records([records[1], damaged], 1, 0) == "the data of record 2 does not match its checksum"


def test_a_record_made_under_an_earlier_id_is_not_kept() -> None:
    """An entry that is numbered anew, in a session whose replicas take wire records only."""
    batch = entries(2)
    first = FrameQueue(next_txid=10, max_frame_bytes=1 << 20, max_frame_records=3)
    first.stored = True
    first.add(batch)
    frame = first.build()
    assert frame.records.records == [one.stored for one in batch]
    second = FrameQueue(next_txid=20, max_frame_bytes=1 << 20, max_frame_records=3)
    second.add(batch)
    again = second.build()
    assert [one.stored for one in batch] == [None, None]
    assert [record[:8] for record in again.records.records] == [n.to_bytes(8, "big") for n in (20, 21)]
    assert frame.size_bytes == again.size_bytes == len(frame.records.wire)
