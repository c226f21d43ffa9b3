"""Processes of one job, given the same `servers`, follow one cluster: that of the driver."""

from __future__ import annotations

import asyncio
import pickle
import random
from contextlib import nullcontext
from uuid import UUID

import pytest

from spark_tests.fake_log import CLUSTER, FakeLog
from waltz_client import WaltzClient
from waltz_protocol.directory import Directory
from waltz_protocol.types import Endpoint, Generation, PartitionId
from waltz_spark.connection import pinned
from waltz_spark.errors import DataLossError
from waltz_spark.options import BATCH, ReadOptions
from waltz_spark.planning import Range
from waltz_spark.reading import RangePartition, read_range
from waltz_testkit.loopback_server import LoopbackServer


async def test_processes_of_one_job_follow_one_cluster() -> None:
    """One address of the list went to another cluster meanwhile (ADR 39 says that it can)."""
    async with LoopbackServer({0: 1}) as one, LoopbackServer({0: 1}) as two:
        ends = []
        for number, server in enumerate((one, two)):
            ends.append(here := Endpoint("127.0.0.1", server.listener.port))
            server.directory.update(
                Directory(1, f"c{number}", UUID(int=number + 1), 8, {here: {PartitionId(0): Generation(1)}})
            )
        keys = {"servers": ",".join(map(str, ends)), "client.ssl.enabled": "false"}
        client_keys = await asyncio.to_thread(pinned, ReadOptions.load(keys, BATCH).client)  # the driver
        followed = set()
        for process in range(6):
            async with WaltzClient.connect(client_keys.settings(), random=random.Random(process)) as client:
                await client.append(partition=0, data=b"x")  # acknowledged, by one log or the other
                followed.add(client.cluster_name)
    assert len(followed) == 1, followed


async def test_a_task_reads_the_cluster_of_its_partition() -> None:
    """Spark pickles the reader before it plans: what tasks learn of the driver is in the partitions."""
    keys = ReadOptions.load({"servers": "a:1", "client.ssl.enabled": "false"}, BATCH).client
    task = pickle.loads(pickle.dumps(RangePartition(Range(0, 0, 1), str(UUID(int=3)))))
    assert keys.leaves_cluster_open
    assert keys.of_cluster(task.cluster_key).settings().cluster_key == UUID(int=3)
    given = keys.of_cluster(str(UUID(int=4)))
    assert given.of_cluster(task.cluster_key) == given


def test_a_task_reads_no_other_cluster_at_the_same_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of ZooKeeper names no cluster."""
    monkeypatch.setattr("waltz_spark.reading.lease", lambda keys: nullcontext(FakeLog(5, key="k2")))
    task = RangePartition(Range(0, 0, 1), "k1")
    with pytest.raises(
        DataLossError, match="planned for the cluster with the key k1, and this task follows k2"
    ):
        list(read_range(ReadOptions.load(CLUSTER, BATCH), task))
