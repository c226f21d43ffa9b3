"""The stages of an append: each is measured once, and together they are the latency of the append."""

from __future__ import annotations

import asyncio

import pytest

from waltz_runtime.exposition import prometheus_slices
from waltz_runtime.instruments import Timer
from waltz_runtime.slices import at_once
from waltz_server.metric_meanings import BUILD, MEANINGS
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import PARTITION, PartitionRig

HELD_SECONDS = 0.02


def timer(rig: PartitionRig, name: str) -> Timer:
    found = rig.metrics.metrics[f"waltz-server.{name}"]
    assert isinstance(found, Timer)
    return found


def stage(rig: PartitionRig, name: str) -> Timer:
    return timer(rig, f"append-stage-{name}")


async def test_an_append_that_waits_for_a_lock_waits_in_the_queue_and_its_holder_in_the_storage() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.feed(client, -1)
        await rig.turns()
        rig.append(client, hwm=-1, append=(5,))
        rig.append(client, hwm=-1, append=(5,))
        await rig.turns()
        assert [stage(rig, name).count for name in ("queue", "storage", "commit", "feed")] == [1, 0, 0, 0]
        assert stage(rig, "queue").sum_seconds < HELD_SECONDS
        await asyncio.sleep(HELD_SECONDS)
        rig.store.commit_next()
        await rig.turns()
        assert [stage(rig, name).count for name in ("queue", "storage", "commit", "feed")] == [2, 1, 1, 1]
        assert stage(rig, "queue").sum_seconds >= HELD_SECONDS
        assert stage(rig, "storage").sum_seconds >= HELD_SECONDS
        rig.store.commit_next()
        await rig.turns()
        assert [stage(rig, name).count for name in ("queue", "storage", "commit", "feed")] == [2, 2, 2, 2]


async def test_queue_and_storage_are_together_the_response_latency() -> None:
    """Also when one batch has appends of several turns, and the store takes one turn's in parts."""
    async with PartitionRig(auto_commit=False, max_in_flight_bytes=600) as rig:
        client = FakeClient()
        await rig.mount(client)
        for _ in range(5):
            for _ in range(40):
                rig.append(client, hwm=-1, data=b"x" * 20)
            await rig.turns(2)
            await asyncio.sleep(0.002)
        for _ in range(200):
            rig.store.commit_next()
            await rig.turns(2)
        latency = timer(rig, f"partition-{PARTITION}.response-latency")
        assert latency.count == stage(rig, "queue").count == stage(rig, "storage").count == 200
        parts = stage(rig, "queue").sum_seconds + stage(rig, "storage").sum_seconds
        assert parts == pytest.approx(latency.sum_seconds)


async def test_what_nobody_follows_is_not_fed_and_what_is_refused_has_no_stage() -> None:
    async with PartitionRig(records=3) as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client, hwm=-1, write=(5,))
        await rig.turns()
        rig.append(client, hwm=2, write=(6,))
        await rig.turns()
        assert rig.count("rejected-append") == 1
        assert [stage(rig, name).count for name in ("queue", "storage", "commit", "feed")] == [1, 1, 1, 0]


async def test_prometheus_has_one_histogram_with_the_stage_as_label() -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client, hwm=-1)
        await rig.turns()
        text = at_once(prometheus_slices(rig.metrics.metrics, MEANINGS, BUILD))
        assert text.count("# TYPE waltz_server_append_stage_seconds histogram") == 1
        assert 'waltz_server_append_stage_seconds_count{stage="queue"} 1.0' in text
        assert 'waltz_server_append_stage_seconds_count{stage="feed"} 0.0' in text
