"""A node over real sockets: sessions, requests, queues."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from waltz_protocol.codec import STORAGE
from waltz_protocol.errors import RequestFailedError
from waltz_protocol.messages import admin, storage
from waltz_protocol.types import SessionInfo
from waltz_storage.service.disk_pool import QueueLimits
from waltz_storage.service.jobs import ReadLimits

from .node_support import (
    GatedExecutor,
    admin_connected,
    connected,
    raw_connection,
    record,
    records,
    running_node,
)
from .support import (
    KEY,
    empty_disk,
    segment_path,
    wire_record,
    wire_records,
)

OPEN = storage.OpenRequest(-1, -1, -1, KEY, 4)


async def test_end_to_end_session(tmp_path: Path) -> None:
    """The way of a server: assign, open a session, append, read, truncate, next session, restart."""
    async with running_node(tmp_path) as node:
        async with admin_connected(node) as tool:
            await tool.assign([0, 2], True)
            assert await tool.partition_status() == {0: True, 2: True}
        async with connected(node) as server:
            assert await server.last_session_info(5, 2) == SessionInfo(-1, -1, -1)
            assert await server.max_transaction_id(5, 2) == -1
            assert await server.truncate(5, 2, -1) == -1
            await server.set_low_water_mark(5, 2, -1)
            await server.append(5, 2, records(0, 10))
            await server.append(5, 2, [])
            assert await server.max_transaction_id(5, 2) == 9
            assert await server.record(5, 2, 3) == record(3)
            assert await server.record(5, 2, 10) is None
            header = await server.record_header(5, 2, 9)
            assert header is not None
            assert header.req_id == record(9).req_id
            assert await server.record_list(5, 2, 4, 100) == records(4, 6)
            assert await server.record_list(5, 2, 10, 5) == []
            assert len(await server.record_header_list(5, 2, 0, 4)) == 4
            assert await server.truncate(5, 2, 6) == 6
            assert await server.last_session_info(6, 2) == SessionInfo(5, -1, -1)
            await server.set_low_water_mark(6, 2, 6)
            assert await server.last_session_info(6, 2) == SessionInfo(6, 6, 6)
    async with running_node(tmp_path) as node, connected(node) as server:
        assert await server.last_session_info(7, 2) == SessionInfo(6, 6, 6)
        assert await server.record_list(7, 2, 0, 100) == records(0, 7)


async def test_pipelined_appends_share_syncs(tmp_path: Path) -> None:
    disk = empty_disk()
    gate = GatedExecutor()
    async with running_node("/data", fs=disk, executor=gate, assign=(0,)) as node, connected(node) as server:
        await server.last_session_info(1, 0)
        gate.open = False
        disk.calls.clear()
        done: list[Exception | None] = []
        for i in range(20):
            server.submit_append(1, 0, 2, wire_records(2 * i, 2), done.append)
        while not gate.waiting:
            await asyncio.sleep(0)
        gate.release()
        while len(done) < 20:
            await asyncio.sleep(0)
        assert done == [None] * 20
        assert sum(1 for c in disk.calls if c[0] == "sync" and str(c[1]).endswith(".seg")) <= 2


async def test_offline_requests(tmp_path: Path) -> None:
    """Offline recovery: only on an unavailable partition, only with the persisted session."""
    async with (
        running_node(tmp_path, assign=(0,)) as node,
        connected(node) as server,
        admin_connected(node) as tool,
    ):
        await server.last_session_info(3, 0)
        await server.set_low_water_mark(3, 0, -1)
        with pytest.raises(RequestFailedError, match="needs it unavailable"):
            await server.max_transaction_id(3, 0, offline=True)
        await tool.set_available([0], False)
        with pytest.raises(RequestFailedError, match="not the persisted session"):
            await server.max_transaction_id(2, 0, offline=True)
        await server.append(3, 0, records(0, 5), offline=True)
        assert await server.max_transaction_id(3, 0, offline=True) == 4
        assert await server.truncate(3, 0, 2, offline=True) == 2
        with pytest.raises(RequestFailedError, match="not available"):
            await server.max_transaction_id(3, 0)
        assert await tool.record_list(0, 0, 10) == records(0, 3)


async def test_storage_7_18_truncation_below_the_local_mark_is_no_trap(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.last_session_info(3, 0)
        await server.append(3, 0, records(0, 5))
        await server.set_low_water_mark(3, 0, 4)
        assert await server.truncate(3, 0, 1) == 1
        await server.last_session_info(4, 0)
        await server.set_low_water_mark(4, 0, 4)
    async with running_node(tmp_path) as node, connected(node) as server:
        assert await server.max_transaction_id(5, 0) == 1


async def test_storage_7_05_wrong_data_checksum_is_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        bad = record(1)._replace(checksum=1)
        with pytest.raises(RequestFailedError, match="checksum of transaction 1 is wrong"):
            await server.append(4, 0, [bad])
        assert await server.max_transaction_id(4, 0) == 0


async def test_storage_7_08_a_failing_append_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        with pytest.raises(RequestFailedError, match="transaction 5 where 2 was expected"):
            await server.append(4, 0, [record(0), record(1), record(5)])
        assert await server.max_transaction_id(4, 0) == -1


async def test_storage_7_13_malformed_frames_are_not_executed(tmp_path: Path) -> None:
    """An append with a surplus byte, a cut one, an unknown code: the connection ends, nothing is stored."""
    async with running_node(tmp_path, assign=(0,)) as node:
        whole = STORAGE.encode(storage.AppendRequest(4, 1, 0, tuple(records(0, 1))), 0)
        bodies = [whole[7:] + b"\0", whole[7:-1], whole[7:-9], bytes([99]) + whole[8:], whole[7:20]]
        for body in bodies:
            async with raw_connection(node) as peer:
                await peer.ask(OPEN)
                await peer.send(whole[:3] + struct.pack(">i", len(body)) + body)
                assert await peer.is_closed()
        async with raw_connection(node) as peer:  # larger than the limit
            await peer.send(whole[:3] + struct.pack(">i", 1 << 30))
            assert await peer.is_closed()
        async with raw_connection(node) as peer:  # a reply code that decodes is answered with Failure
            await peer.ask(OPEN)
            assert isinstance(await peer.ask(storage.SuccessResponse(4, 7, 0)), storage.FailureResponse)
        async with connected(node) as server:
            assert await server.max_transaction_id(4, 0) == -1


async def test_storage_7_13_lists_are_bounded_in_bytes(tmp_path: Path) -> None:
    limits = ReadLimits(max_list_bytes=1000, max_reply_bytes=3000)
    async with (
        running_node(tmp_path, assign=(0,), read_limits=limits) as node,
        connected(node) as server,
        admin_connected(node) as tool,
    ):
        await server.append(4, 0, records(0, 40, 300))
        assert await server.record_list(4, 0, 0, 40) == records(0, 2, 300)
        await server.append(4, 0, records(40, 1, 5000))
        assert await server.record_list(4, 0, 40, 40) == records(40, 1, 5000)
        assert len(await tool.record_list(0, 0, 40)) == 2
        many = await asyncio.gather(*(server.record_list(4, 0, i, 3) for i in range(30)))
        assert [r[0].transaction_id for r in many] == list(range(30))


async def test_storage_7_14_a_full_queue_stalls_no_other_partition(tmp_path: Path) -> None:
    """Beyond the bound a request is refused at once; another partition on the same connection goes on."""
    gate = GatedExecutor()
    limits = QueueLimits(max_requests=5)
    async with (
        running_node(tmp_path, executor=gate, assign=(0, 1), queue_limits=limits) as node,
        connected(node) as server,
    ):
        await server.last_session_info(4, 0)
        await server.last_session_info(4, 1)
        gate.open = False
        outcomes: list[str] = []
        server.submit_append(4, 0, 1, wire_record(0), lambda e: outcomes.append(f"0:{e}"))
        while not gate.waiting:
            await asyncio.sleep(0)
        for txid in range(1, 8):
            server.submit_append(4, 0, 1, wire_record(txid), lambda e, t=txid: outcomes.append(f"{t}:{e}"))  # type: ignore[misc]
        other = asyncio.ensure_future(server.record_header(4, 1, 0))  # noqa: TID251
        while len(outcomes) < 2 or len(gate.waiting) < 2:
            await asyncio.sleep(0)
        assert outcomes == ["6:the queue of the partition is full", "7:the queue of the partition is full"]
        gate.step()  # the other partition's job comes first: it opens a session
        assert await other is None
        server.submit_append(4, 1, 1, wire_record(0), lambda e: outcomes.append(f"other:{e}"))
        while len(gate.waiting) < 2:
            await asyncio.sleep(0)
        gate.step()  # the job that has waited longest, of the full queue
        while "0:None" not in outcomes:
            await asyncio.sleep(0)
        gate.step()
        while "other:None" not in outcomes:
            await asyncio.sleep(0)
        assert "1:None" not in outcomes
        gate.release()
        while len(outcomes) < 9:
            await asyncio.sleep(0)
        assert sorted(o for o in outcomes if o.endswith("None")) == [
            *(f"{i}:None" for i in range(6)),
            "other:None",
        ]


async def test_storage_7_14_the_queues_of_all_partitions_share_one_bound(tmp_path: Path) -> None:
    """A disk that stands still: many partitions that each stay below their own bound must not fill the
    memory."""
    gate = GatedExecutor()
    limits = QueueLimits(total_bytes=1000)
    async with (
        running_node(tmp_path, executor=gate, assign=(0, 1, 2), queue_limits=limits) as node,
        connected(node) as server,
    ):
        for partition_id in range(3):
            await server.last_session_info(4, partition_id)
        assert node.pool.queued_bytes == 0
        gate.open = False
        outcomes: list[str] = []
        data = bytes(300)
        for partition_id in range(3):
            server.submit_append(
                4,
                partition_id,
                1,
                wire_record(0, data),
                lambda e, p=partition_id: outcomes.append(f"{p}:{e}"),  # type: ignore[misc]
            )
        while not outcomes:
            await asyncio.sleep(0)
        assert outcomes == ["2:the queues of this node are full"]
        assert node.pool.queued_bytes <= 1000
        gate.release()
        while len(outcomes) < 3:
            await asyncio.sleep(0)
        gate.open = True
        assert sorted(outcomes[1:]) == ["0:None", "1:None"]
        await server.append(4, 2, records(0, 1, 400))
        assert node.pool.queued_bytes == 0


async def test_storage_7_14_a_request_larger_than_the_shared_bound_is_taken_alone(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, assign=(0,), queue_limits=QueueLimits(total_bytes=1000)) as node,
        connected(node) as server,
    ):
        await server.append(4, 0, records(0, 1, 5000))
        assert node.pool.queued_bytes == 0


async def test_safety_b2_a_full_queue_does_not_answer_a_raise_early(tmp_path: Path) -> None:
    gate = GatedExecutor()
    async with (
        running_node(tmp_path, executor=gate, assign=(0,), queue_limits=QueueLimits(max_requests=1)) as node,
        connected(node) as server,
    ):
        await server.last_session_info(4, 0)
        gate.open = False
        outcomes: list[str] = []
        server.submit_append(4, 0, 1, wire_record(0), lambda e: outcomes.append(f"a:{e}"))
        while not gate.waiting:
            await asyncio.sleep(0)
        server.submit_append(4, 0, 1, wire_record(1), lambda e: outcomes.append(f"b:{e}"))
        server.submit_append(9, 0, 1, wire_record(1), lambda e: outcomes.append(f"c:{e}"))
        while node.pool.queue(0).size < 2:
            await asyncio.sleep(0)
        assert outcomes == []
        gate.release()
        while len(outcomes) < 3:
            await asyncio.sleep(0)
        assert "c:the queue of the partition is full" in outcomes
        assert node.manager.get(0).durable_fence == 9


async def test_safety_c1_max_transaction_id_waits_for_the_sync(tmp_path: Path) -> None:
    """On one connection an append and the question for the maximum behind it, in one job: the answer counts
    it."""
    gate = GatedExecutor()
    async with running_node(tmp_path, executor=gate, assign=(0,)) as node, raw_connection(node) as peer:
        await peer.ask(OPEN)
        await peer.send(
            STORAGE.encode(storage.AppendRequest(4, 0, 0, tuple(records(0, 3))), 0),
            STORAGE.encode(storage.MaxTransactionIdRequest(4, 1, 0), 0),
            STORAGE.encode(storage.RecordListRequest(4, 2, 0, 0, 10), 0),
            STORAGE.encode(storage.AppendRequest(4, 3, 0, tuple(records(9, 1))), 0),
            STORAGE.encode(storage.AppendRequest(4, 4, 0, tuple(records(3, 1))), 0),
        )
        replies = [await peer.message() for _ in range(5)]
        assert [reply.seq_num for reply in replies] == [0, 1, 2, 3, 4]
        assert replies[1].transaction_id == 2
        assert len(replies[2].records) == 3
        assert isinstance(replies[3], storage.FailureResponse)
        assert isinstance(replies[4], storage.SuccessResponse)


async def test_safety_d7_full_disk_is_a_failure_and_goes_on_later() -> None:
    disk = empty_disk()
    async with running_node("/data", fs=disk, assign=(0, 1)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 3))
        await server.append(4, 1, records(0, 1))
        disk.capacity_bytes = sum(map(len, disk.files().values())) + 100
        with pytest.raises(RequestFailedError, match="No space left"):
            await server.append(4, 0, records(3, 3))
        assert await server.record_list(4, 0, 0, 10) == records(0, 3)
        assert await server.max_transaction_id(4, 1) == 0
        disk.capacity_bytes = None
        await server.append(4, 0, records(3, 3))
        assert await server.record_list(4, 0, 0, 10) == records(0, 6)


async def test_damaged_record_is_a_failure_not_a_wrong_answer() -> None:
    disk = empty_disk()
    async with running_node("/data", fs=disk, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 5))
        disk.flip_bit(segment_path(0, 0), 128 + 2 * 80 + 50)
        assert await server.record_list(4, 0, 0, 5) == records(0, 2)
        with pytest.raises(RequestFailedError, match="damaged"):
            await server.record(4, 0, 2)
        assert node.health()[0] is False


async def test_storage_7_11_open_is_enforced_on_both_ports(tmp_path: Path) -> None:
    """A peer that got through TLS and no further changes nothing, on either port."""
    async with running_node(tmp_path, assign=(0,)) as node:
        async with raw_connection(node) as stranger:
            for message in (
                storage.TruncateRequest(99, 0, 0, -1),
                storage.MaxTransactionIdRequest(99, 1, 0, True),
            ):
                assert isinstance(await stranger.ask(message), storage.FailureResponse)
        async with raw_connection(node, admin=True) as stranger:
            reply = await stranger.ask(admin.PartitionAssignmentRequest(0, (0,), False, True))
            assert isinstance(reply, admin.FailureResponse)
        assert node.manager.status() == {0: True}
        assert node.pool.queue(0).fence.session_id == -1
        assert node.manager.get(0).durable_fence == -1
