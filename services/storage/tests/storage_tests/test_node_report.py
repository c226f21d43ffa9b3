"""The node report of the admin port: everything first, then what has changed, per connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.errors import EncodeError

from .node_support import admin_connected, connected, records, running_node


async def report(tool: StorageAdminConnection, *, everything: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await tool.report(everything=everything))
    return found


async def test_the_first_report_holds_everything_and_the_next_ones_what_has_changed(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, assign=(0, 3)) as node,
        connected(node) as server,
        admin_connected(node, reports=True) as tool,
    ):
        first = await report(tool)
        assert sorted(first["partitions"]) == ["0", "3"]
        assert first["gone"] == []
        assert (await report(tool))["partitions"] == {}
        await server.append(4, 3, records(0, 2))
        await server.set_low_water_mark(4, 3, 1)
        changed = (await report(tool))["partitions"]
        size = node.manager.partitions[3].log_bytes
        assert changed == {"3": [4, 1, 1, 5, 1, 1, size, 4]}
        assert (await report(tool))["partitions"] == {}
        assert sorted((await report(tool, everything=True))["partitions"]) == ["0", "3"]


async def test_each_connection_has_changes_of_its_own(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, assign=(0,)) as node,
        admin_connected(node, reports=True) as one,
        admin_connected(node, reports=True) as other,
    ):
        assert (await report(one))["partitions"]
        assert (await report(other))["partitions"]
        await one.set_available([0], False)
        for tool in (one, other):
            assert (await report(tool))["partitions"]["0"][3:5] == [4, 0]


async def test_what_the_node_no_longer_has_is_gone_and_what_is_damaged_is_null(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0, 1)) as node, admin_connected(node, reports=True) as tool:
        await report(tool)
        await tool.assign([0], False)
        node.manager.damaged[2] = "damaged as the test wants it"
        found = await report(tool)
        assert (found["gone"], found["partitions"]) == ([0], {"2": None})
        assert (await report(tool))["gone"] == []


async def test_a_full_disk_changes_every_partition(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0, 1)) as node, admin_connected(node, reports=True) as tool:
        assert [state[4] for state in (await report(tool))["partitions"].values()] == [1, 1]
        node.manager.room.full = "full as the test wants it"
        found = await report(tool)
        assert [state[4] for state in found["partitions"].values()] == [0, 0]
        assert found["disk"]["disk-full"] is True


async def test_the_figures_of_the_disk_are_those_of_the_metrics(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, admin_connected(node, reports=True) as tool:
        await node.disk.look()
        figures = (await report(tool))["disk"]
        gauges = (await tool.metrics())["gauges"]
        measured = {name: gauges[f"waltz-storage.{name}"]["value"] for name in figures}
        assert figures == measured
        assert figures["log-bytes"] == node.disk.log_bytes > 0


async def test_other_tools_speak_the_version_of_0_13_2_and_are_not_asked_for_it(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, admin_connected(node) as tool:
        assert (tool.version, tool.reports) == (0, False)
        with pytest.raises(EncodeError, match="version 0"):
            await tool.report(everything=True)
