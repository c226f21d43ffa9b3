"""A cluster that is observed again and again: the same value as that of one question, and what it costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from admin_tests.at_once import AtOnce
from admin_tests.fake_processes import FakeNode, FakeServer
from admin_tests.test_processes import ROOT, SESSION, records, register
from waltz_admin import assignments, nodes, observed_node, seeding
from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.errors import AdminError
from waltz_admin.kept_connections import KeptConnections
from waltz_admin.observed_node import RECORD_SECONDS, ObservedNode
from waltz_admin.observer import ClusterObserver
from waltz_admin.status import read_status
from waltz_admin.storage_admin import NodeInspection, inspect_node
from waltz_admin.view import read_view
from waltz_admin.watched_view import WatchedView
from waltz_cluster.errors import ConnectionLostError
from waltz_cluster.memory_store import Fault, MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.replica_rules import Standing
from waltz_cluster.serializers import PartitionMetadata, ReplicaAssignments, ReplicaState, StoreParams
from waltz_cluster.store import Watch, ZnodeStat, ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import PartitionId, SessionInfo

PLAIN = TlsSettings(enabled=False)
NEW, OLD = True, False
"""Nodes of this release, which report what has changed, and others."""


@dataclass
class World:
    """Two partitions, three nodes, one server, and an observer with a clock of its own."""

    zookeeper: MemoryZooKeeper
    store: MemoryStore
    writer: MemoryStore
    nodes: list[FakeNode]
    server: FakeServer
    observer: ClusterObserver
    now: float = 0.0
    asked: list[str] = field(default_factory=list)

    async def agreed(self) -> ClusterStatus:
        """What is observed, which has to be what one question finds. Sizes of old nodes are not reported."""
        seen = await self.observer.observe()
        assert _comparable(seen) == _comparable(await read_status(self.writer, ROOT, tls=PLAIN))
        return seen

    async def cost(self) -> tuple[ClusterStatus, list[str], list[list[str]], int]:
        """One observation: reads of ZooKeeper, questions to each node, questions to the server."""
        self.asked.clear()
        for node in self.nodes:
            node.questions.clear()
        self.server.req_ids.clear()
        seen = await self.observer.observe()
        return seen, list(self.asked), [list(n.questions) for n in self.nodes], len(self.server.req_ids)

    def standing(self, seen: ClusterStatus, partition: int, node: int) -> Standing:
        """Of the copy on one of the nodes."""
        name = self.nodes[node].connect_string
        (found,) = [r.standing for r in seen.partitions[partition].replicas if r.node == name]
        return found

    async def write(self, partition: int, metadata: PartitionMetadata) -> None:
        reader = StoreMetadata(self.writer, ROOT)
        _, version = await reader.read_partition(partition)
        await reader.write_partition(partition, metadata, version)


def _comparable(status: ClusterStatus) -> ClusterStatus:
    """Without what only one of the two forms of an answer of these fakes holds."""
    partitions = tuple(
        replace(p, replicas=tuple(replace(r, copy=None, last_transaction=None, lag=None) for r in p.replicas))
        for p in status.partitions
    )
    return replace(status, partitions=partitions, nodes=tuple(replace(n, disk=None) for n in status.nodes))


def metadata(world: World, session: int) -> PartitionMetadata:
    states = {
        node.connect_string: ReplicaState(PartitionId(1), node.connect_string, session)
        for node in world.nodes
    }
    return PartitionMetadata(1, session, states)


@asynccontextmanager
async def running(*, reports: bool) -> AsyncIterator[World]:
    zookeeper = MemoryZooKeeper()
    writer, store = zookeeper.session(), zookeeper.session()
    key = (await seeding.create(writer, ROOT, "demo", 2)).params.cluster_key
    async with AsyncExitStack() as stack:
        fakes = [FakeNode(key, {0: True, 1: True}, SESSION, records(12), reports=reports) for _ in range(3)]
        for group, node in enumerate(fakes):
            await stack.enter_async_context(node.running())
            await nodes.add_storage_node(writer, ROOT, node.connect_string, node.admin_port, group)
            await assignments.assign(writer, ROOT, [0, 1], node.connect_string)
        server = await stack.enter_async_context(FakeServer(partitions=(0, 1)).running())
        server.connectivity = {node.connect_string: True for node in fakes}
        server.health = {0: True, 1: True}
        await register(writer, server, 1)
        for p in (PartitionId(0), PartitionId(1)):
            states = {n.connect_string: ReplicaState(p, n.connect_string, SESSION.session_id) for n in fakes}
            await StoreMetadata(writer, ROOT).create_partition(
                p, PartitionMetadata(1, SESSION.session_id, states)
            )
        world: World
        observer = ClusterObserver(store, ROOT, tls=PLAIN, timeout_seconds=2.0, clock=lambda: world.now)
        world = World(zookeeper, store, writer, fakes, server, observer)

        def noted(name: str, path: str) -> Fault | None:
            world.asked.append(f"{name} {path.removeprefix(ROOT)}")
            return None

        store.fault = noted
        try:
            yield world
        finally:
            await observer.close()


@pytest.fixture(params=[NEW, OLD], ids=["reports", "without reports"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with running(reports=request.param) as found:
        yield found


@pytest.fixture
async def new() -> AsyncIterator[World]:
    async with running(reports=NEW) as found:
        yield found


# ---- the value


async def test_it_is_what_one_question_finds_whatever_changes(world: World) -> None:
    well = await world.agreed()
    assert all(p.healthy and p.current == 3 for p in well.partitions)

    world.server.health = {0: True, 1: False}
    assert not (await world.agreed()).partitions[1].healthy
    world.server.health = {0: True, 1: True}
    world.nodes[2].status[0] = False
    assert world.standing(await world.agreed(), 0, 2) is Standing.UNAVAILABLE
    del world.nodes[2].status[0]
    world.nodes[2].report = json.dumps(
        {"partitions": {"1": [*SESSION, 5, 1, 11, 99, 0]}, "gone": [0], "disk": {}}
    )
    assert world.standing(await world.agreed(), 0, 2) is Standing.UNASSIGNED
    world.nodes[2].report, world.nodes[2].status[0] = None, True
    await world.write(1, metadata(world, SESSION.session_id + 1))
    assert {r.standing for r in (await world.agreed()).partitions[1].replicas} == {Standing.SET_BACK}
    await world.write(1, metadata(world, SESSION.session_id))
    assert (await world.agreed()).partitions[1].current == 3
    world.nodes[1].refuse = "as the test wants it"
    assert [n.node for n in (await world.agreed()).nodes if n.error] == [world.nodes[1].connect_string]
    world.nodes[1].refuse = None
    world.server.silent = True
    assert (await world.observer.observe()).servers[0].unreached is None
    world.server.silent = False
    assert all(p.healthy and p.current == 3 for p in (await world.agreed()).partitions)


async def test_members_and_assignments_that_change_are_seen(world: World) -> None:
    await world.agreed()
    async with FakeServer(partitions=(0, 1), health={0: True, 1: True}).running() as other:
        other.connectivity = dict(world.server.connectivity)
        await register(world.writer, other, 2)
        assert {p.server for p in (await world.agreed()).partitions} == {other.endpoint}
        await nodes.add_storage_node(world.writer, ROOT, "127.0.0.1:1", 2, 9)
        assert len((await world.agreed()).nodes) == 4


async def test_damage_is_reported_as_by_one_question(new: World) -> None:
    await new.agreed()
    new.nodes[0].other_sessions[1] = None
    seen = await new.agreed()
    assert new.standing(seen, 1, 0) is Standing.UNAVAILABLE
    assert seen.partitions[1].problem.endswith("(it is out of service: damaged)")


# ---- the work


async def test_a_cluster_at_rest_costs_a_report_of_each_node_and_no_read(new: World) -> None:
    first = await new.observer.observe()
    second, reads, questions, asked = await new.cost()
    assert reads == ["sync /store"]
    assert questions == [["NodeReportRequest"]] * 3, "on the connections that are open"
    assert asked == 3, "partitions, health, connectivity"
    assert [one is other for one, other in zip(first.partitions, second.partitions, strict=True)] == [
        True
    ] * 2


async def test_a_node_without_reports_is_asked_for_its_metrics_once() -> None:
    async with running(reports=OLD) as old:
        first = await old.observer.observe()
        second, reads, questions, _ = await old.cost()
    assert reads == ["sync /store"]
    assert questions == [["MetricsRequest", "AssignedPartitionStatusRequest"]] * 3
    assert [one is other for one, other in zip(first.partitions, second.partitions, strict=True)] == [
        True
    ] * 2


async def test_an_inspection_reads_a_report_where_there_are_reports_and_metrics_elsewhere() -> None:
    found = []
    for reports in (NEW, OLD):
        async with running(reports=reports) as world:
            node = world.nodes[0]
            node.questions.clear()
            found.append(await inspect_node(node.admin, StoreParams(node.key, 2), PLAIN))
            asked = ["NodeReportRequest"] if reports else ["MetricsRequest", "AssignedPartitionStatusRequest"]
            assert node.questions == ["OpenRequest", *asked, *["RecordListRequest"] * 2]
    by_report, by_metrics = found
    assert by_report.holds_mark == by_metrics.holds_mark == {0, 1}
    assert by_report.log_bytes == {0: 99, 1: 99}
    known = [
        replace(p, max_transaction_id=None, log_bytes=None, fence_session_id=None)
        for p in by_report.partitions
    ]
    assert known == list(by_metrics.partitions)


async def test_an_inspection_by_report_names_what_is_switched_on_and_does_not_serve(new: World) -> None:
    node = new.nodes[0]
    on, off, lost = [*SESSION, 5, 0, 11, 99, 9], [*SESSION, 4, 0, 11, 99, 9], None
    partitions = {"0": on, "1": off, "2": lost}
    node.report = json.dumps(
        {"format": 1, "partitions": partitions, "gone": [], "disk": {"disk-size-bytes": 5}}
    )
    found = await inspect_node(node.admin, StoreParams(node.key, 2), PLAIN)
    assert found.out_of_service == {0}
    assert [p.partition_id for p in found.partitions] == [0, 1]
    assert (found.disk_size_bytes, found.disk_free_bytes) == (5, None)
    node.report = "[]"
    with pytest.raises(AdminError, match="its report cannot be read"):
        await inspect_node(node.admin, StoreParams(node.key, 2), PLAIN)


async def test_an_inspection_over_a_kept_connection_asks_for_many_records_at_the_same_time(
    new: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, those of a node with thousands of partitions take longer than it is given."""
    asked = AtOnce()

    async def shows(*_: object) -> bool:
        with asked.one():
            await asyncio.sleep(0)
        return True

    monkeypatch.setattr(observed_node, "shows_record", shows)
    node = new.nodes[0]
    kept = ObservedNode(node.admin, StoreParams(node.key, 2), PLAIN, lambda: new.now)
    try:
        assert (await kept.inspect()).holds_mark == {0, 1}
        assert asked.most == 2
    finally:
        kept.close()


async def test_an_inspection_over_a_kept_connection_finds_what_one_over_a_new_one_finds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, params = world.nodes[0], StoreParams(world.nodes[0].key, 2)
    kept = ObservedNode(node.admin, params, PLAIN, lambda: world.now)

    async def agreed() -> NodeInspection:
        found = await kept.inspect()
        assert found == await inspect_node(node.admin, params, PLAIN)
        return found

    try:
        assert (await agreed()).holds_mark == {0, 1}
        node.questions.clear()
        await kept.inspect()
        asked = (
            ["NodeReportRequest"] if node.reports else ["MetricsRequest", "AssignedPartitionStatusRequest"]
        )
        assert node.questions == asked
        node.status[1] = False
        assert [p.available for p in (await agreed()).partitions] == [True, False]
        node.session = SessionInfo(SESSION.session_id + 1, 9, 9)
        assert {p.low_water_mark for p in (await agreed()).partitions} == {9}
        node.records.clear()
        world.now += 2 * RECORD_SECONDS
        assert (await agreed()).holds_mark == set()
        node.refuse = "as the test wants it"
        with pytest.raises(AdminError, match="as the test wants it"):
            await kept.inspect()
        node.refuse = None
        await agreed()
        monkeypatch.setattr(observed_node, "shows_record", AsyncMock(side_effect=OSError("reset")))
        with pytest.raises(AdminError, match="did not answer about its copies"):
            await kept.inspect()
    finally:
        kept.close()


async def test_only_what_was_written_is_read_again(new: World) -> None:
    first = await new.observer.observe()
    await new.write(1, metadata(new, SESSION.session_id + 1))
    second, reads, _, _ = await new.cost()
    assert reads == ["sync /store", "get /store/partition/1"]
    assert second.partitions[0] is first.partitions[0]
    assert second.partitions[1].session_id == SESSION.session_id + 1


async def test_a_record_is_asked_for_when_the_mark_has_changed_and_after_a_while(new: World) -> None:
    await new.observer.observe()
    new.nodes[0].other_sessions[1] = SessionInfo(SESSION.session_id, 10, 10)
    _, _, questions, _ = await new.cost()
    assert [one.count("RecordListRequest") for one in questions] == [1, 0, 0]
    new.now = RECORD_SECONDS + 1
    _, _, questions, _ = await new.cost()
    assert [one.count("RecordListRequest") for one in questions] == [2, 2, 2]
    _, _, questions, _ = await new.cost()
    assert [one.count("RecordListRequest") for one in questions] == [0, 0, 0]
    new.nodes[0].records.clear()
    new.now *= 3
    assert new.standing(await new.observer.observe(), 0, 0) is Standing.INCOMPLETE


async def test_a_record_that_is_not_shown_is_asked_for_each_time(new: World) -> None:
    new.nodes[0].records.clear()
    for _ in range(2):
        seen, _, questions, _ = await new.cost()
        assert questions[0].count("RecordListRequest") == 2
        assert new.standing(seen, 0, 0) is Standing.INCOMPLETE


# ---- what goes wrong


async def test_a_node_that_comes_back_reports_everything(new: World) -> None:
    await new.observer.observe()
    (node,) = [node for node in new.observer._nodes.values() if node.endpoint == new.nodes[0].admin]
    assert node._connection is not None
    node._connection.close()
    await node._connection.wait_closed()
    new.nodes[0].status[1] = False
    seen, _, questions, _ = await new.cost()
    assert questions[0][:2] == ["OpenRequest", "NodeReportRequest"]
    assert seen.partitions[1].current == 2


async def test_a_report_that_was_not_waited_for_is_not_taken_for_the_next(new: World) -> None:
    await new.observer.observe()
    new.nodes[0].asks = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(new.observer.observe())
        await new.nodes[0].asks.wait()
        task.cancel()
    new.nodes[0].asks = None
    new.nodes[0].status[1] = False
    seen, _, questions, _ = await new.cost()
    assert questions[0][:2] == ["OpenRequest", "NodeReportRequest"], "what was sent late is of no use"
    assert seen.partitions[1].current == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"partitions": {"0": [1]}, "gone": [], "disk": {}}'])
async def test_a_report_that_cannot_be_read_is_an_error_of_the_node(new: World, text: str) -> None:
    new.nodes[0].report = text or "?"
    seen = await new.observer.observe()
    wrong = [node for node in seen.nodes if node.error]
    assert [node.node for node in wrong] == [new.nodes[0].connect_string]
    assert "its report cannot be read" in str(wrong[0].error)


async def test_everything_is_read_again_after_the_connection_to_zookeeper_was_lost(new: World) -> None:
    await new.observer.observe()
    new.zookeeper.restart()
    await asyncio.sleep(0.05)
    await new.write(1, metadata(new, SESSION.session_id + 1))
    seen, reads, _, _ = await new.cost()
    assert len(reads) > 8
    assert seen.partitions[1].session_id == SESSION.session_id + 1


async def test_what_was_not_read_for_an_error_is_read_by_the_next_call(new: World) -> None:
    view = WatchedView(new.store, ROOT)
    noted = new.store.fault
    for path in (
        "/store/partition",
        "/store/partition/1",
        "/store/assignment",
        "/serverDescriptors",
        "/store",
    ):
        fresh = WatchedView(new.store, ROOT)

        def lost(name: str, asked: str, path: str = path) -> Fault | None:
            wanted = name != "sync" and asked == f"{ROOT}{path}"
            return Fault.LOSE_REPLY if wanted else None

        new.store.fault = lost
        with pytest.raises(ConnectionLostError):
            await fresh.read()
        new.store.fault = noted
        assert await fresh.read() == await view.read(), path


async def test_what_is_read_again_gets_no_second_watch(new: World) -> None:
    """ZooKeeper forgets a watch when it fires: of a cluster at rest never."""
    view = WatchedView(new.store, ROOT)

    def watches() -> dict[tuple[str, str], int]:
        return {where: len(found) for where, found in new.zookeeper._watches.items()}

    first = await view.read()
    before = watches()
    assert before
    for _ in range(3):
        view.doubt_everything()
        again = await view.read()
        assert again is not first
        assert again == first
    assert watches() == before
    for number in (1, 2):
        await new.write(1, metadata(new, SESSION.session_id + number))
        await asyncio.sleep(0.01)
        found = (await view.read()).metadata[PartitionId(1)]
        assert isinstance(found, PartitionMetadata)
        assert found.session_id == SESSION.session_id + number
    view.doubt_everything()
    assert await view.read() == await read_view(new.writer, ROOT)
    assert watches() == before


class Overtaken:
    """A store in which the znode `path` is written when its first answer is on its way."""

    def __init__(self, world: World, path: str, data: bytes) -> None:
        self._world = world
        self._path = path
        self._data: bytes | None = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        answer = await self._world.store.get(path, watch)
        if path == self._path and self._data is not None:
            data, self._data = self._data, None
            await self._world.writer.set(path, data)
            await asyncio.sleep(0.01)  # the watch fires
        return answer


@pytest.mark.parametrize("part", ["store/partition/1", "store/assignment"])
async def test_a_change_while_its_part_is_read_counts(new: World, part: str) -> None:
    node = new.nodes[0].connect_string
    data = {
        "store/partition/1": metadata(new, SESSION.session_id + 2).to_bytes(),
        "store/assignment": ReplicaAssignments({node: (PartitionId(0),)}).to_bytes(),
    }[part]
    view = WatchedView(cast(ZooKeeperStore, Overtaken(new, f"{ROOT}/{part}", data)), ROOT)
    first, second = await view.read(), await view.read()
    assert first != second
    assert second == await read_view(new.writer, ROOT)


async def test_of_two_users_at_a_time_one_connection_is_left() -> None:
    """Two registrations may name one address, while the older one's session has not ended."""
    server = FakeServer()
    async with server.running():
        kept = KeptConnections(TlsSettings(enabled=False), 5.0)
        async with kept.to(server.endpoint) as first, kept.to(server.endpoint) as second:
            assert first is not second
        async with asyncio.timeout(5):
            while not (first.closed or second.closed):
                await asyncio.sleep(0)
        async with kept.to(server.endpoint) as third:
            assert not third.closed
        await kept.close()
        assert all(one.closed for one in (first, second, third))
