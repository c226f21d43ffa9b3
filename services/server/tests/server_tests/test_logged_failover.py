"""A fail-over in the log: whoever looks for `partition=0` finds all of it."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from server_tests.registry_on_nodes import registry_on
from server_tests.store.fakes import NAMES, PARTITION, Cluster, until
from waltz_protocol.types import ReqId
from waltz_server.partition.owned_partition import Partition
from waltz_testkit.client_peers import FakeClient, make_append

pytestmark = pytest.mark.looptime


async def append(partition: Partition, generation: int, number: int) -> None:
    """One transaction, by a client of its own."""
    client = FakeClient(number)
    partition.mount(client, ReqId(number, generation, PARTITION, 1).pack(), generation, -1)
    partition.append(client, make_append(ReqId(number, generation, PARTITION, 2)))
    before = partition.high_water_mark
    await until(lambda: partition.high_water_mark != before)


async def fail_over() -> None:
    """An owner loses its quorum, gets it back, is replaced by another server, and learns it."""
    async with Cluster() as cluster, registry_on(cluster, 1) as first, registry_on(cluster, 2) as second:
        first.adopt({PARTITION: 1})
        one = first.partitions[PARTITION]
        await until(lambda: one.healthy)
        await append(one, 1, 11)
        for name in NAMES[1:]:
            cluster.nodes[name].kill()
        await until(lambda: not one.healthy)
        for name in NAMES[1:]:
            cluster.nodes[name].start()
        await until(lambda: one.healthy, 60)
        second.adopt({PARTITION: 2})
        two = second.partitions[PARTITION]
        await until(lambda: two.healthy, 60)
        assert two.high_water_mark == 0
        await until(lambda: not one.healthy, 60)
        first.adopt({})
        await append(two, 2, 12)
        await asyncio.sleep(1)


async def test_every_line_about_a_fail_over_carries_its_partition(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"), capture_logs() as lines:
        await fail_over()
    assert [line for line in lines if line.get("partition") != PARTITION] == []
    assert [record for record in caplog.records if record.name.startswith("waltz_server")] == []
    assert {line["event"] for line in lines} >= {
        "partition gained",
        "store state changed",
        "partition open",
        "replica is out of the session",
        "store session lost",
        "partition lost",
    }


async def test_the_lines_of_a_session_carry_it_and_those_of_a_replica_name_it() -> None:
    with capture_logs() as lines:
        await fail_over()
    out = [line for line in lines if line["event"] == "replica is out of the session"]
    assert {line["replica"] for line in out} <= set(NAMES)
    assert all(line["reason"] for line in out)
    opened = [line["session"] for line in _named(lines, "partition open")]
    assert opened == sorted(set(opened))
    assert {line["session"] for line in _named(lines, "store session lost")} <= set(opened)
    assert all(isinstance(line["session"], int) for line in _named(lines, "store state changed"))


def _named(lines: list[EventDict], event: str) -> list[EventDict]:
    return [line for line in lines if line["event"] == event]
