"""The admin port, metrics, health and orderly close of a node over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import aiohttp
import pytest

from waltz_protocol.codec import ADMIN
from waltz_protocol.errors import ChannelClosedError, RequestFailedError
from waltz_protocol.messages import admin, storage
from waltz_protocol.types import SessionInfo

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
    wire_record,
)

OPEN = storage.OpenRequest(-1, -1, -1, KEY, 4)


@pytest.mark.parametrize("process_id", [None, UUID(int=7)])
async def test_both_ports_state_the_same_process(tmp_path: Path, process_id: UUID | None) -> None:
    """By it a tool knows two names of one node."""
    async with (
        running_node(tmp_path, process_id=process_id) as node,
        connected(node) as server,
        admin_connected(node) as tool,
    ):
        assert server.process_id == tool.process_id == process_id


async def test_unknown_and_unassigned_partitions_are_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, connected(node) as server:
        for partition_id in (1, 4, -1, 1 << 30):
            with pytest.raises(RequestFailedError, match="not assigned"):
                await server.max_transaction_id(4, partition_id)


async def test_storage_7_15_admin_mistakes_are_answered(tmp_path: Path) -> None:
    """Unknown partitions, a null list, un-assigning twice, unknown record: Failure or success, never a closed
    connection."""
    async with running_node(tmp_path, assign=(0,)) as node, raw_connection(node, admin=True) as tool:
        refused = await tool.ask(admin.AssignedPartitionStatusRequest(1))
        assert isinstance(refused, admin.FailureResponse)
        assert await tool.ask(admin.OpenRequest(-1, KEY, 4)) == admin.SuccessResponse(-1)
        reply = await tool.ask(admin.PartitionAssignmentRequest(2, (0, 9), False))
        assert isinstance(reply, admin.FailureResponse)
        assert node.manager.status() == {0: True}  # nothing of it was done
        for message in (
            admin.PartitionAvailableRequest(3, (4,), True),
            admin.PartitionAvailableRequest(3, None, True),
            admin.PartitionAssignmentRequest(3, None, True),
            admin.RecordListRequest(3, 1, 0, 10),
            admin.LastSessionInfoRequest(3, 17),
            admin.SuccessResponse(3),
        ):
            reply = await tool.ask(message)
            assert isinstance(reply, admin.FailureResponse), message
            assert reply.seq_num == 3
            assert reply.error.stack == ()
        assert await tool.ask(admin.PartitionAssignmentRequest(4, (0,), False)) == admin.SuccessResponse(4)
        assert await tool.ask(
            admin.PartitionAssignmentRequest(5, (0,), False, True)
        ) == admin.SuccessResponse(5)
        assert not list((tmp_path / "0").glob("*.seg"))
        await tool.send(
            ADMIN.encode(admin.MetricsRequest(6), 0)[:7] + bytes([5]) + bytes(8)
        )  # the retired code
        assert await tool.is_closed()


async def test_storage_7_17_failures_carry_no_stack(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, raw_connection(node) as peer:
        await peer.ask(OPEN)
        reply = await peer.ask(storage.SetLowWaterMarkRequest(4, 1, 0, -9))
        assert isinstance(reply, storage.FailureResponse)
        assert reply.error.stack == ()


async def test_storage_7_16_idle_peers_are_noticed(tmp_path: Path) -> None:
    """Three times 0.13.2's keep-alive interval without a byte ends an accepted connection; vanished ones end
    by TCP."""
    async with running_node(tmp_path) as node, connected(node):
        (channel,) = node._data.channels
        assert channel._read_idle == 1900
        assert channel.settings.tcp_user_timeout_ms == 30_000


async def test_reassignment_without_deletion_finds_the_files_again(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, assign=(0,)) as node,
        connected(node) as server,
        admin_connected(node) as tool,
    ):
        await server.append(4, 0, records(0, 5))
        await server.set_low_water_mark(4, 0, 4)
        await tool.assign([0], False)
        with pytest.raises(RequestFailedError, match="not assigned"):
            await server.max_transaction_id(4, 0)
        await tool.assign([0], True)
        assert await tool.last_session_info(0) == SessionInfo(-1, -1, -1)
        assert await server.max_transaction_id(5, 0) == 4
        await tool.assign([0], False, delete_files=True)
        await tool.assign([0], True)
        assert await server.max_transaction_id(5, 0) == -1


async def test_metrics_and_health(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, assign=(0, 3), http=True) as node,
        connected(node) as server,
        admin_connected(node) as tool,
    ):
        await server.last_session_info(4, 3)
        await server.set_low_water_mark(4, 3, 7)
        await server.append(4, 3, records(0, 2))
        metrics = await tool.metrics()
        gauges = metrics["gauges"]
        assert gauges["waltz-storage.waltz-storage-partition-ids"]["value"] == [0, 3]
        assert gauges["waltz-storage.waltz-storage-num-partitions"]["value"] == 4
        values = {
            name: gauges[f"waltz-storage.partition-3.{name}"]["value"]
            for name in (
                "session-id",
                "low-water-mark",
                "local-low-water-mark",
                "flags",
                "sequence-number",
                "max-transaction-id",
                "process-queue-size",
            )
        }
        assert values == {
            "session-id": 4,
            "low-water-mark": 7,
            "local-low-water-mark": -1,
            "flags": 5,
            "sequence-number": 2,
            "max-transaction-id": 1,
            "process-queue-size": 0,
        }
        assert metrics["counters"]["waltz-storage.partition-3.last-session-info-request"]["count"] == 1
        assert metrics["meters"]["waltz-storage.partition-3.append"]["count"] == 1
        assert metrics["timers"]["waltz-storage.partition-3.append-latency"]["count"] == 1
        await tool.assign([0], False)
        assert not [n for n in (await tool.metrics())["gauges"] if "partition-0." in n]
        url = f"http://127.0.0.1:{node.http_port}"
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{url}/ping") as answer:
                assert await answer.text() == "pong\n"
            async with http.get(f"{url}/health") as answer:
                assert answer.status == 200
                assert (await answer.json())["storage-health-check"]["healthy"] is True
            async with http.get(f"{url}/metrics", headers={"Accept": "application/json"}) as answer:
                assert (await answer.json())["gauges"]["waltz-storage.partition-3.session-id"]["value"] == 4
            async with http.get(f"{url}/metrics") as answer:
                assert 'waltz_storage_session_id{partition="3"} 4' in await answer.text()


async def test_storage_7_19_health_tells_the_truth(tmp_path: Path) -> None:
    """A damaged partition: the node runs, the others serve, /health is 500 and says which and why."""
    async with running_node(tmp_path, assign=(0, 1)) as node, connected(node) as server:
        for partition_id in (0, 1):
            await server.append(4, partition_id, records(0, 5))
    data = tmp_path / "1" / "0000000000000000000.seg"
    raw = bytearray(data.read_bytes())
    raw[200] ^= 1
    data.write_bytes(raw)
    async with (
        running_node(tmp_path, http=True) as node,
        connected(node) as server,
        admin_connected(node) as tool,
    ):
        assert await server.max_transaction_id(4, 0) == 4
        with pytest.raises(RequestFailedError, match="partition 1 is damaged"):
            await server.last_session_info(4, 1)
        assert await tool.partition_status() == {0: True, 1: False}
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{node.http_port}/health") as answer,
        ):
            assert answer.status == 500
            body = (await answer.json())["storage-health-check"]
        assert body["healthy"] is False
        assert list(body["partitions"]) == ["1"]
        # The way back: un-assign with its files, assign again, peers refill it.
        await tool.assign([1], False, delete_files=True)
        await tool.assign([1], True)
        assert node.health()[0] is True
        assert await server.max_transaction_id(5, 1) == -1


async def test_storage_7_19_orderly_close_finishes_what_is_queued(tmp_path: Path) -> None:
    gate = GatedExecutor()
    outcome: list[Exception | None] = []
    async with running_node(tmp_path, executor=gate, assign=(0,)) as node, connected(node) as server:
        await server.last_session_info(4, 0)
        gate.open = False
        server.submit_append(4, 0, 1, wire_record(0), outcome.append)
        while not gate.waiting:
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(node.close())  # noqa: TID251
        await asyncio.sleep(0)
        with pytest.raises(RequestFailedError, match="shutting down"):
            await server.max_transaction_id(4, 0)
        gate.release()
        await closing
        while not outcome:
            await asyncio.sleep(0)
        assert outcome == [None]
        with pytest.raises(ChannelClosedError):
            await server.max_transaction_id(4, 0)
