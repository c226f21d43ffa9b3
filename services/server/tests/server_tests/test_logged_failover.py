"""A fail-over in the log: whoever looks for `partition=0` finds all of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from server_tests.store.fakes import NAMES, PARTITION, ROOT, Cluster, FakeLink, until
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_protocol.errors import ConnectError
from waltz_protocol.types import Endpoint, ReqId
from waltz_runtime.metrics import MetricsRegistry
from waltz_server.partition.feed_cache import FeedCache
from waltz_server.partition.owned_partition import Partition, PartitionSettings, SharedCaches
from waltz_server.partition.transaction_cache import TransactionCache
from waltz_server.registry import PartitionRegistry
from waltz_server.store.api import PartitionStore, StoreListener, StoreSettings
from waltz_server.store.quorum_store import QuorumPartitionStore
from waltz_server.store.replica_connection import ReplicaDirectory, ReplicaLink
from waltz_testkit.client_peers import FakeClient, make_append

pytestmark = pytest.mark.looptime

SETTINGS = StoreSettings(idle_check_interval_ms=3_600_000)


@asynccontextmanager
async def server(cluster: Cluster, seed: int) -> AsyncIterator[PartitionRegistry]:
    """The partitions of one server, on the storage nodes of the cluster."""

    async def open_link(endpoint: Endpoint) -> ReplicaLink:
        node = cluster.nodes[str(endpoint)]
        if not node.up:
            raise ConnectError("connection refused")
        return FakeLink(node, SETTINGS.request_timeout_seconds)

    rng = random.Random(seed)
    directory = ReplicaDirectory(open_link, settings=SETTINGS, rng=rng)
    metadata = StoreMetadata(cluster.zk.session(), ROOT)

    def make_store(partition_id: int, generation: int, listener: StoreListener) -> PartitionStore:
        return QuorumPartitionStore(
            partition_id,
            generation,
            directory=directory,
            metadata=metadata,
            settings=SETTINGS,
            listener=listener,
            rng=rng,
            replicas=NAMES,
        )

    def make_partition(partition_id: int, generation: int) -> Partition:
        return Partition(
            partition_id,
            generation,
            make_store=make_store,
            settings=PartitionSettings(lock_table_size=64),
            caches=SharedCaches(FeedCache(200_000), TransactionCache(50_000)),
            metrics=MetricsRegistry(lambda: 0.0),
        )

    async with PartitionRegistry(1, make_partition) as registry:
        yield registry
    await directory.close()


async def append(partition: Partition, generation: int, number: int) -> None:
    """One transaction, by a client of its own."""
    client = FakeClient(number)
    partition.mount(client, ReqId(number, generation, PARTITION, 1).pack(), generation, -1)
    partition.append(client, make_append(ReqId(number, generation, PARTITION, 2)))
    before = partition.high_water_mark
    await until(lambda: partition.high_water_mark != before)


async def fail_over() -> None:
    """An owner loses its quorum, gets it back, is replaced by another server, and learns it."""
    async with Cluster() as cluster, server(cluster, 1) as first, server(cluster, 2) as second:
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
