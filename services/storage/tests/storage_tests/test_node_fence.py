"""The fence of a node over real sockets: raised by whom, durable when, checked again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from waltz_protocol.codec import STORAGE
from waltz_protocol.errors import RequestFailedError
from waltz_protocol.messages import storage
from waltz_protocol.messages.fields import RpcError
from waltz_protocol.types import SessionInfo
from waltz_storage.service.fence import SESSION_REACH
from waltz_storage.service.jobs import ReadLimits
from waltz_testkit.faulty_disk import CrashMode

from .node_support import (
    GatedExecutor,
    admin_connected,
    connected,
    raw_connection,
    records,
    running_node,
)
from .support import (
    KEY,
    OTHER_KEY,
    empty_disk,
    open_manager,
    wire_record,
)

OPEN = storage.OpenRequest(-1, -1, -1, KEY, 4)


async def test_safety_b1_refused_request_raises_fence(tmp_path: Path) -> None:
    """A truncate that is going to be refused (the partition is unavailable) still locks the older session
    out."""
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.last_session_info(4, 0)
        await server.append(4, 0, records(0, 1))
        async with admin_connected(node) as tool:
            await tool.set_available([0], False)
            with pytest.raises(RequestFailedError, match="not available"):
                await server.truncate(9, 0, -1)
            await tool.set_available([0], True)
        with pytest.raises(
            RequestFailedError, match="session 4 is fenced off: this node takes session 9 or later"
        ):
            await server.append(4, 0, records(1, 1))
        assert await server.max_transaction_id(9, 0) == 0


async def test_safety_b1_a_bad_append_raises_the_fence_too(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        with pytest.raises(RequestFailedError, match="where 1 was expected"):
            await server.append(9, 0, records(7, 1))
        with pytest.raises(RequestFailedError, match="fenced off"):
            await server.append(4, 0, records(1, 1))


async def test_safety_b1_stranger_cannot_raise_the_fence(tmp_path: Path) -> None:
    """storage_7_11: without a successful Open nothing runs and nothing is fenced, also after a refused
    Open."""
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        async with raw_connection(node) as stranger:
            request = storage.LastSessionInfoRequest(99, 1, 0)
            reply = await stranger.ask(request)
            assert isinstance(reply, storage.FailureResponse)
            assert (reply.session_id, reply.seq_num, reply.partition_id) == (99, 1, 0)
            assert "Open first" in str(reply.error.message)
            assert await stranger.ask(
                storage.OpenRequest(-1, -1, -1, OTHER_KEY, 4)
            ) == storage.FailureResponse(
                -1, -1, -1, RpcError(f"cluster key {OTHER_KEY} is not that of this node")
            )
            assert isinstance(
                await stranger.ask(storage.OpenRequest(-1, -1, -1, KEY, 5)), storage.FailureResponse
            )
            assert isinstance(await stranger.ask(request), storage.FailureResponse)
            reply = await stranger.ask(storage.AppendRequest(99, 2, 0, tuple(records(1, 1))))
            assert isinstance(reply, storage.FailureResponse)
            # The connection stays usable after a failed Open.
            assert await stranger.ask(OPEN) == storage.SuccessResponse(-1, -1, -1)
        await server.append(4, 0, records(1, 1))


@pytest.mark.parametrize("session_id", [SESSION_REACH, 2**48, 2**63 - 1])
async def test_safety_b4_a_session_out_of_reach_raises_no_fence(tmp_path: Path, session_id: int) -> None:
    """Whatever is asked with it, reads included; and a new copy takes the number of any cluster that there
    can be."""
    async with running_node(tmp_path, assign=(0, 1)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        for ask in (
            server.last_session_info(session_id, 0),
            server.max_transaction_id(session_id, 0),
            server.record_header(session_id, 0, 0),
            server.record_list(session_id, 0, 0, 1),
            server.append(session_id, 0, records(1, 1)),
            server.truncate(session_id, 0, -1),
            server.set_low_water_mark(session_id, 0, 5),
        ):
            with pytest.raises(RequestFailedError, match=f"session {session_id} is refused"):
                await ask
        await server.append(4, 0, records(1, 1))
        assert await server.max_transaction_id(4, 0) == 1
        assert await server.last_session_info(SESSION_REACH - 1, 1) == SessionInfo(-1, -1, -1)
    async with running_node(tmp_path) as node, connected(node) as server:
        assert await server.max_transaction_id(4, 0) == 1


async def test_safety_b4_the_reach_moves_with_completed_sessions_only(tmp_path: Path) -> None:
    """Raising the fence again and again does not creep."""
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.last_session_info(SESSION_REACH - 1, 0)
        with pytest.raises(RequestFailedError, match="is refused"):
            await server.last_session_info(SESSION_REACH, 0)
        await server.set_low_water_mark(SESSION_REACH - 1, 0, -1)
        assert (await server.last_session_info(2 * SESSION_REACH - 1, 0)).session_id == SESSION_REACH - 1


async def test_safety_b1_fence_is_checked_again_when_the_job_runs(tmp_path: Path) -> None:
    """An append that was fine on arrival waits in the queue while a newer session arrives: it must not be
    written."""
    gate = GatedExecutor()
    async with (
        running_node(tmp_path, executor=gate, assign=(0,)) as node,
        connected(node) as old,
        connected(node) as new,
    ):
        await old.append(4, 0, records(0, 1))
        gate.open = False
        outcome: list[Exception | None] = []
        first = asyncio.ensure_future(old.record_header(4, 0, 0))  # noqa: TID251
        while not gate.waiting:
            await asyncio.sleep(0)
        old.submit_append(4, 0, 1, wire_record(1), outcome.append)
        while node.pool.queue(0).size < 1:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(new.last_session_info(5, 0))  # noqa: TID251
        while node.pool.queue(0).size < 2:
            await asyncio.sleep(0)
        gate.release()
        await second
        with pytest.raises(RequestFailedError, match="fenced off"):
            await first
        assert "fenced off" in str(outcome[0])
        assert await new.max_transaction_id(5, 0) == 0


async def test_safety_b2_fence_is_durable_before_the_reply() -> None:
    """storage_7_12: power loss right after the reply: the older session stays out, and is still not
    reported."""
    disk = empty_disk()
    gate = GatedExecutor()
    async with running_node("/data", fs=disk, executor=gate, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        await server.set_low_water_mark(4, 0, 0)
        disk.calls.clear()
        assert await server.last_session_info(9, 0) == SessionInfo(4, 0, 0)
        assert [c[:2] for c in disk.calls] == [
            ("pwrite", "/data/waltz-witness"),
            ("sync", "/data/waltz-witness"),
            ("pwrite", "/data/0/waltz-fence"),
            ("sync", "/data/0/waltz-fence"),
        ]
        disk.restart(CrashMode.LOSE)
        manager = open_manager(disk)
        assert manager.get(0).durable_fence == 9
        assert manager.get(0).info[:3] == (4, 0, 0)
        manager.close()


async def test_safety_b2_a_session_does_not_go_on_with_a_copy_that_was_emptied(tmp_path: Path) -> None:
    """It has counted the copy among those that hold the log; before, an empty partition took its next append
    as the first."""
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.set_low_water_mark(4, 0, -1)
        async with admin_connected(node) as tool:
            await tool.assign([0], False, delete_files=True)
            await tool.assign([0], True)
        with pytest.raises(RequestFailedError, match="session 4 is fenced off"):
            await server.append(4, 0, records(0, 1))
        with pytest.raises(RequestFailedError, match="session 4 is fenced off"):
            await server.set_low_water_mark(4, 0, -1)
        assert await server.last_session_info(5, 0) == SessionInfo(-1, -1, -1)
        await server.append(5, 0, records(0, 1))


async def test_a_copy_of_the_last_possible_session_can_be_given_up(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        node.pool.manager.partitions[0].set_low_water_mark(2**63 - 1, -1)
        async with admin_connected(node) as tool:
            await tool.assign([0], False, delete_files=True)
            await tool.assign([0], True)
        with pytest.raises(RequestFailedError, match="fenced off"):
            await server.append(4, 0, records(0, 1))


async def test_safety_b2_fence_holds_after_restart_and_reassignment(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.last_session_info(9, 0)
    async with running_node(tmp_path) as node, connected(node) as server:
        with pytest.raises(RequestFailedError, match="fenced off: this node takes session 9"):
            await server.append(8, 0, records(0, 1))
        async with admin_connected(node) as tool:
            await tool.assign([0], False, delete_files=True)
            await tool.assign([0], True)
        with pytest.raises(RequestFailedError, match="fenced off: this node takes session 9"):
            await server.append(8, 0, records(0, 1))
        assert await server.last_session_info(10, 0) == SessionInfo(-1, -1, -1)


async def test_safety_b2_a_failed_fence_sync_is_no_success() -> None:
    disk = empty_disk()
    async with running_node("/data", fs=disk, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        disk.fail_sync_once = "waltz-fence"
        with pytest.raises(RequestFailedError, match=r"out of service|Input/output"):
            await server.last_session_info(9, 0)
        with pytest.raises(RequestFailedError):
            await server.last_session_info(9, 0)
        healthy, body = node.health()
        assert not healthy
        assert "out of service" in json.dumps(body)


async def test_safety_b2_an_append_without_records_is_no_success_either_when_the_fence_is_not_durable() -> (
    None
):
    """A server asks so whether its session is still the current one; a power loss would let the older session
    in again."""
    disk = empty_disk()
    async with running_node("/data", fs=disk, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, [])
        disk.fail_sync_once = "waltz-fence"
        for _ in range(2):
            with pytest.raises(RequestFailedError, match=r"out of service|Input/output"):
                await server.append(9, 0, [])


async def test_replies_of_a_connection_keep_the_order_of_its_requests() -> None:
    """A read may overtake the appends that wait with it for a sync; not those of its own connection."""
    gate = GatedExecutor()
    disk = empty_disk()
    async with (
        running_node("/data", fs=disk, executor=gate, assign=(0,)) as node,
        connected(node) as other,
        raw_connection(node) as server,
    ):
        await server.ask(OPEN)
        await other.append(4, 0, records(0, 1))
        gate.open = False
        first = asyncio.ensure_future(other.record_header(4, 0, 0))  # noqa: TID251
        while not gate.waiting:
            await asyncio.sleep(0)
        requests = (
            storage.AppendRequest(4, 1, 0, tuple(records(1, 1))),
            storage.RecordRequest(4, 2, 0, 0),
            storage.RecordRequest(4, 3, 0, 7),
            storage.AppendRequest(4, 4, 0, tuple(records(9, 1))),
            storage.MaxTransactionIdRequest(3, 5, 0),  # fenced off: a refusal waits for its turn too
            storage.RecordRequest(4, 6, 0, 1),
        )
        await server.send(*(STORAGE.encode(request, 0) for request in requests))
        while node.pool.queue(0).size < len(requests):
            await asyncio.sleep(0)
        gate.release()
        assert (await first) is not None
        assert [(await server.message()).seq_num for _ in requests] == [1, 2, 3, 4, 5, 6]


async def test_what_a_job_leaves_undone_is_done_next_in_the_same_order() -> None:
    """Reads are cut off by the size of their replies; the requests behind them go back to the head of the
    queue."""
    gate = GatedExecutor()
    async with (
        running_node(
            "/data", fs=empty_disk(), executor=gate, assign=(0,), read_limits=ReadLimits(max_reply_bytes=50)
        ) as node,
        connected(node) as other,
        raw_connection(node) as server,
    ):
        await server.ask(OPEN)
        await other.append(4, 0, records(0, 1))
        gate.open = False
        first = asyncio.ensure_future(other.record_header(4, 0, 0))  # noqa: TID251
        while not gate.waiting:
            await asyncio.sleep(0)
        requests = (
            storage.RecordRequest(4, 1, 0, 0),
            storage.AppendRequest(4, 2, 0, tuple(records(1, 1))),
            storage.RecordRequest(4, 3, 0, 0),
            storage.AppendRequest(4, 4, 0, tuple(records(2, 1))),
            storage.AppendRequest(4, 5, 0, tuple(records(3, 1))),
        )
        await server.send(*(STORAGE.encode(request, 0) for request in requests))
        while node.pool.queue(0).size < len(requests):
            await asyncio.sleep(0)
        gate.release()
        assert (await first) is not None
        replies = [await server.message() for _ in requests]
        assert [reply.seq_num for reply in replies] == [1, 2, 3, 4, 5]
        assert not any(isinstance(reply, storage.FailureResponse) for reply in replies)
        await node.pool.drained()
        assert node.pool.queued_bytes == 0


async def test_safety_c3_a_partition_out_of_service_takes_no_part_in_a_recovery() -> None:
    """A server that hears its last record would count on it."""
    disk = empty_disk()
    async with running_node("/data", fs=disk, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        disk.fail_sync_once = ".seg"
        with pytest.raises(RequestFailedError):
            await server.append(4, 0, records(1, 1))
        for ask in (server.last_session_info, server.max_transaction_id):
            with pytest.raises(RequestFailedError, match="out of service"):
                await ask(4, 0)
        with pytest.raises(RequestFailedError, match="out of service"):
            await server.truncate(4, 0, -1)
        with pytest.raises(RequestFailedError, match="out of service"):
            await server.set_low_water_mark(4, 0, 0)


async def test_safety_b3_flags_and_marks_do_not_overwrite_each_other(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, assign=(0,)) as node,
        connected(node) as server,
        admin_connected(node) as tool,
    ):
        await server.last_session_info(3, 0)
        for mark in range(20):
            change = tool.set_available([0], True)
            await asyncio.gather(
                change, server.set_low_water_mark(3, 0, mark), tool.set_available([1], mark % 2 == 0)
            )
        info = node.manager.control.info(0)
        assert info[:3] == (3, 19, -1)
        assert info.flags == 5
        assert node.manager.control.info(1).flags == 0


async def test_storage_7_12_fence_survives_a_restart(tmp_path: Path) -> None:
    """Raised by a first request only, no mark set: after a restart the older session is still locked out."""
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        await server.max_transaction_id(9, 0)
    async with running_node(tmp_path) as node, connected(node) as server:
        with pytest.raises(RequestFailedError, match="fenced off: this node takes session 9"):
            await server.append(4, 0, records(1, 1))
        assert await server.last_session_info(9, 0) == SessionInfo(-1, -1, -1)
