"""Partitions move between real servers by load, decided on a real API server; with the operator killed at
every write. The loads alone are made up: all servers of a test are one process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.crash_points import Story, Tell, check_killed_everywhere
from operator_tests.apiserver.stories import Step, require
from operator_tests.apiserver.world import World
from waltz_admin.load import PartitionRates, ServerLoad
from waltz_admin.reports import ServerReport, read_reports
from waltz_admin.server_admin import ServerAdminConnection
from waltz_operator.kube import kinds
from waltz_operator.run import kept_reads
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

COOLDOWN_SECONDS = 3600
WINDOWS = 3


class Loads:
    """What each partition costs, in place of what the servers have measured. `quiet` until a step says
    otherwise."""

    def __init__(self) -> None:
        self.of: dict[int, float] = {}
        self.owners: dict[int, str] = {}
        """Partition → server, as the servers said last."""

    async def read_reports(
        self, servers: Iterable[tuple[int, Endpoint]], parts: int, *, tls: TlsSettings, timeout_seconds: float
    ) -> list[ServerReport]:
        """The servers' own reports, with other figures."""
        return [
            await self._changed(one, tls)
            for one in await read_reports(servers, parts, tls=tls, timeout_seconds=timeout_seconds)
        ]

    async def _changed(self, report: ServerReport, tls: TlsSettings) -> ServerReport:
        require(report.load is not None, f"the server reports no load: {report.problem}")
        async with ServerAdminConnection(report.server, tls) as server:
            owned = await server.partitions()
        self.owners |= dict.fromkeys(owned, str(report.server))
        rates = {one: (PartitionRates(100 * self.of.get(one, 0.0)),) * WINDOWS for one in owned}
        total = sum(self.of.get(one, 0.0) for one in owned)
        return replace(report, load=ServerLoad(1e6, (total,) * WINDOWS, rates))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    made = Loads()
    monkeypatch.setattr(kept_reads, "read_reports", made.read_reports)
    return made


def install(loads: Loads) -> Step:
    async def act(world: World) -> None:
        loads.of = {}
        servers = {"replicas": 2, "config": {"storage.maxRetryInterval": 400}, "rebalance": {}}
        await world.create(stories.spec(replicas=3, partitions=3, servers=servers, tls={"mode": "Disabled"}))

    async def check(world: World) -> None:
        found = (await world.cluster())["status"]
        available = next(one for one in found["conditions"] if one["type"] == "Available")
        require(available["status"] == "True", f"not available: {available}")
        require(sorted(loads.owners) == [0, 1, 2], f"owners: {loads.owners}")
        require(not found["servers"].get("moves"), "something moved without a load")

    return Step("install", act, check)


def heat(loads: Loads) -> Step:
    """The two partitions of one server become hot."""

    async def act(world: World) -> None:
        counts = list(loads.owners.values())
        loads.of = {one: 0.4 for one, server in loads.owners.items() if counts.count(server) == 2}

    async def check(world: World) -> None:
        moves = (await world.cluster())["status"]["servers"]["moves"]
        require([one["state"] for one in moves] == ["Done"], f"moves: {moves}")
        hot = {loads.owners[one] for one in loads.of}
        require(len(hot) == 2, f"both hot partitions are with {hot}")
        events = await world.kube.list(kinds.EVENT, world.namespace)
        told = {one["note"] for one in events if one["reason"] == "PartitionMoved"}
        require(all("used 80% of a core" in one for one in told), f"Events: {told}")

    return Step("heat", act, check)


def test_the_hot_partitions_part_and_it_ends(plane: Plane, loads: Loads) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, install(loads), heat(loads))
        after, lines = dict(loads.owners), len(world.journal.lines)
        events = await world.kube.list(kinds.EVENT, world.namespace)
        assert sum(one["reason"] == "PartitionMoved" for one in events) == 1
        for seconds in (400, COOLDOWN_SECONDS + 1):
            world.clock_offset += seconds
            await world.settle()
        assert (loads.owners, world.journal.lines[lines:]) == (after, [])
        loads.of = {one: 0.9 for one in loads.of if after[one] != next(iter(after.values()))}
        await world.settle()
        assert loads.owners == after, "one that is hot alone stays"

    assert plane.run(scenario).errors == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_operator_s_successor_goes_on(plane: Plane, loads: Loads, record_property: Tell) -> None:
    check_killed_everywhere(plane, Story((heat(loads),), before=(install(loads),)), record_property)
