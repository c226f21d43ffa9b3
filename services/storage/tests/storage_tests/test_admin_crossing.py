"""Admin requests that cross each other or the end of the node."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from waltz_protocol.aio.tasks import spawn
from waltz_protocol.codec import ADMIN
from waltz_protocol.messages import admin

from .node_support import GatedExecutor, admin_connected, raw_connection, running_node
from .support import KEY

ADMIN_OPEN = admin.OpenRequest(-1, KEY, 4)


async def test_storage_7_19_closing_ends_a_request_for_many_partitions(tmp_path: Path) -> None:
    """The node leaves between two partitions of one request: the rest is refused, nothing runs after the lock
    is gone."""
    gate = GatedExecutor()
    async with running_node(tmp_path, executor=gate) as node, raw_connection(node, admin=True) as peer:
        await peer.ask(ADMIN_OPEN)
        gate.open = False
        await peer.send(ADMIN.encode(admin.PartitionAssignmentRequest(1, (0, 1, 2, 3), True, False), 0))
        while not gate.waiting:
            await asyncio.sleep(0)
        closing = spawn(node.close(), "closing")
        await asyncio.sleep(0)
        while not closing.done():
            if gate.waiting:
                gate.step()
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not gate.waiting, "an assignment was started after the node had closed"
        answer = await peer.message()
        assert isinstance(answer, admin.FailureResponse)
        assert "shutting down" in (answer.error.message or "")


async def test_crossing_assignments_leave_the_right_metrics(tmp_path: Path) -> None:
    """Two tools, one un-assigns while the other assigns: the metrics are those of the partition that is open
    now."""
    gate = GatedExecutor()
    prefix = "waltz-storage.partition-0."
    async with (
        running_node(tmp_path, executor=gate, assign=(0,)) as node,
        admin_connected(node) as one,
        admin_connected(node) as other,
    ):
        gate.open = False
        async with asyncio.TaskGroup() as group:
            group.create_task(one.assign([0], False))
            while not gate.waiting:
                await asyncio.sleep(0)
            group.create_task(other.assign([0], True))
            await asyncio.sleep(0.1)
            gate.release()
        assert sorted(node.manager.partitions) == [0]
        assert prefix + "session-id" in node.registry.to_admin_json()
        node.manager.get(0).set_low_water_mark(9, -1)
        gauges = json.loads(node.registry.to_admin_json())["gauges"]
        assert gauges[prefix + "session-id"]["value"] == 9
