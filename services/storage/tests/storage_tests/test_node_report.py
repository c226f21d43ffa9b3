"""The node report of the admin port: everything first, then what has changed, per connection."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.errors import EncodeError, RequestFailedError
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY
from waltz_testkit.faulty_disk import FaultyFile

from .node_support import admin_connected, connected, records, running_node
from .support import JOURNAL, ROOT, empty_disk


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


async def test_safety_c7_nothing_is_reported_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever observes the node acts on what it shows: report, status and metrics have what was committed
    last, also while a commit is on its way and after one that failed."""
    gate, waits, syncs = threading.Event(), threading.Event(), FaultyFile.sync
    gate.set()

    def sync(file: FaultyFile) -> None:
        if JOURNAL_DIRECTORY in file.path and not gate.is_set():
            waits.set()
            gate.wait()
        syncs(file)

    monkeypatch.setattr(FaultyFile, "sync", sync)
    disk = empty_disk()
    async with (
        running_node(ROOT, fs=disk, journal=JOURNAL, assign=(0, 1)) as node,
        connected(node) as server,
        admin_connected(node, reports=True) as tool,
        admin_connected(node) as other,
    ):

        async def shown() -> list[Any]:
            states = (await report(tool, everything=True))["partitions"]
            gauges = (await tool.metrics())["gauges"]
            of_files = ("process-queue-size", "log-bytes")
            values = {
                name: gauge["value"]
                for name, gauge in gauges.items()
                if ".partition-" in name and not name.endswith(of_files)
            }
            durable = {number: [*state[:4], state[5], state[7]] for number, state in states.items()}
            return [
                durable,
                values,
                {number: state[4] for number, state in states.items()},
                await tool.partition_status(),
            ]

        async def meanwhile(change: Coroutine[Any, Any, object], *, fails: bool = False) -> list[Any]:
            gate.clear()
            waits.clear()
            task = spawn(change, "change")
            await asyncio.to_thread(waits.wait)
            found = await shown()
            if fails:
                disk.fail_sync_once = JOURNAL_DIRECTORY
            gate.set()
            with pytest.raises(RequestFailedError) if fails else nullcontext():
                await task
            return found

        await server.set_low_water_mark(1, 0, -1)
        await server.append(1, 0, records(0, 5))
        changes: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: server.append(1, 0, records(5, 3)),
            lambda: server.truncate(1, 0, 6),
            lambda: server.set_low_water_mark(7, 0, 6),
            lambda: server.max_transaction_id(9, 0),
            lambda: other.set_available([0], False),
            lambda: other.assign([2], True),
        ]
        for change in changes:
            before = await shown()
            assert await meanwhile(change()) == before
            assert await shown() != before
        await other.set_available([0], True)
        before = await shown()
        assert before[3] == {0: True, 1: True, 2: True}
        assert await meanwhile(server.set_low_water_mark(12, 0, 6), fails=True) == before
        after = await shown()
        assert after[:2] == before[:2]
        assert after[3] == {0: False, 1: False, 2: False}
