"""What a server reports of partitions that are not open: what /health has for them, bounded, faults first."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.registry_on_nodes import registry_on
from server_tests.store.fakes import PARTITION, Cluster, until
from server_tests.store.test_older_copy import PATH, sessions
from server_tests.test_report import ask
from waltz_server import registry as registry_module
from waltz_server import report
from waltz_server.registry import PartitionRegistry
from waltz_server.store.api import StoreState
from waltz_testkit.loopback_server import LoopbackServer


async def reported(registry: PartitionRegistry, number: int = report.ALL_PARTITIONS) -> object:
    return (await report.make_report(registry, report.NOT_OPEN, number))["not_open"]


@pytest.mark.looptime
async def test_a_fault_is_reported_with_its_reason_until_it_is_over() -> None:
    async with Cluster() as cluster, registry_on(cluster, 1) as registry:
        copies = await sessions(cluster, 2)
        await cluster.admin.set(PATH, copies[0])
        registry.adopt({PARTITION: 3})
        partition = registry.partitions[PARTITION]
        await until(lambda: partition.store.state is StoreState.FAULT)
        reason = partition.store.state_reason
        assert "c:1 has completed session 1, later than the 0 that ZooKeeper gave out" in reason
        assert registry.health() == {PARTITION: (False, f"fault: {reason}")}
        row = {"partition": PARTITION, "state": "fault", "reason": reason}
        assert await reported(registry) == {"left_out": 0, "rows": [row]}
        assert await reported(registry, PARTITION) == {"left_out": 0, "rows": [row]}
        assert await reported(registry, PARTITION + 1) == {"left_out": 0, "rows": []}
        older = await report.make_report(registry, report.ALL_PARTS & ~report.NOT_OPEN)
        assert "not_open" not in older, "a reader of an earlier release gets what it asks for"
        await cluster.admin.set(PATH, copies[1])
        await until(lambda: partition.healthy)
        assert await reported(registry) == {"left_out": 0, "rows": []}


async def test_a_partition_that_begins_anew_or_has_no_object_yet_is_reported_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_module, "FIRST_RESTART_SECONDS", 600.0)
    async with LoopbackServer({0: 1}, num_partitions=2) as server:
        await asyncio.sleep(0)
        server.registry.partitions[0]._fail("something impossible")
        while 0 in server.registry.partitions:
            await asyncio.sleep(0)
        row = {"partition": 0, "state": "restarting", "reason": "something impossible"}
        assert await reported(server.registry) == {"left_out": 0, "rows": [row]}
        tool = await server.peer()
        assert (await ask(tool, report.NOT_OPEN | 1 << 20))["not_open"]["rows"] == [row]
        monkeypatch.setattr(server.registry, "why_unhealthy", lambda number: "starting")
        assert (await report.make_report(server.registry, report.NOT_OPEN, 1))["not_open"]["rows"] == [
            {"partition": 1, "state": "starting", "reason": ""}
        ]


async def test_reasons_are_one_line_of_bounded_length_and_faults_are_listed_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    why = dict.fromkeys(range(2000), "recovering: asking")
    why |= {7: "", 1999: f"fault: {'x' * 5000}", 1998: "fault: a\nb:\tc"}
    async with LoopbackServer({}) as server:
        monkeypatch.setattr(server.registry, "owned_ids", lambda: list(why))
        monkeypatch.setattr(server.registry, "why_unhealthy", why.get)
        found = (await ask(await server.peer(), report.NOT_OPEN))["not_open"]
    rows = found["rows"]
    assert (len(rows), found["left_out"]) == (report.MAX_NOT_OPEN, 1999 - report.MAX_NOT_OPEN)
    assert [row["partition"] for row in rows[:9]] == [1998, 1999, 0, 1, 2, 3, 4, 5, 6]
    assert rows[0]["reason"] == "a b: c"
    assert rows[1]["reason"] == f"{'x' * (report.MAX_REASON_CHARACTERS - 1)}…"
    assert rows[9]["partition"] == 8
