"""The gauge by which machines without the operator notice that a copy is not current: it counts a replica
that is away, and one that is refused, while the partition takes writes."""

from __future__ import annotations

import pytest

from server_tests.registry_on_nodes import registry_on
from server_tests.store.fakes import PARTITION, Cluster, until
from server_tests.test_report import fork_one
from waltz_runtime.metrics import Gauge
from waltz_server.registry import PartitionRegistry

pytestmark = pytest.mark.looptime
NAME = f"waltz-server.partition-{PARTITION}.replicas-not-voting"


def not_voting(registry: PartitionRegistry) -> object:
    gauge = registry.partitions[PARTITION]._metrics._registry.metrics[NAME]
    assert isinstance(gauge, Gauge)
    return gauge.value()[0]


async def test_it_counts_who_is_away_and_who_is_back() -> None:
    async with Cluster() as cluster, registry_on(cluster, 1) as registry:
        registry.adopt({PARTITION: 1})
        await until(lambda: not_voting(registry) == 0)
        cluster.nodes["b:1"].kill()
        await until(lambda: not_voting(registry) == 1)
        assert registry.partitions[PARTITION].healthy
        cluster.nodes["b:1"].start()
        await until(lambda: not_voting(registry) == 0)


async def test_it_counts_who_is_refused() -> None:
    async with Cluster() as cluster, registry_on(cluster, 1) as registry:
        await fork_one(cluster)
        registry.adopt({PARTITION: 2})
        await until(lambda: registry.partitions[PARTITION].healthy)
        await until(lambda: not_voting(registry) == 1)
