"""Nodes that are slow, not dead; and callers that must not wait forever."""

from __future__ import annotations

import pytest

from tests.sim.checkers.history import AppendOp, Outcome
from tests.sim.kernel.disk import Seconds
from tests.sim.scenarios.stage import Stage, play, seeds
from tests.sim.workloads.tracked import TrackedClient

SAMPLES = 150


async def latencies(stage: Stage, name: str) -> list[float]:
    """Seconds that appends take, one after the other, sorted."""
    found: list[float] = []

    async def use(client: TrackedClient) -> None:
        await client.append(stage.new_append(name), deadline_seconds=30.0)
        for _ in range(SAMPLES):
            start = stage.loop.time()
            assert await client.append(stage.new_append(name), deadline_seconds=30.0)
            found.append(stage.loop.time() - start)

    await stage.finished(stage.user(name, use), 300.0)
    return sorted(found)


@pytest.mark.parametrize("slow", ["disk", "network", "both"])
@pytest.mark.parametrize("seed", seeds(1))
def test_scenario_tigerbeetle_0_16_11_one_slow_node_slows_nobody(slow: str, seed: int) -> None:
    """TigerBeetle 0.16.11: one slow node raised the latency of all requests by orders of magnitude.

    Here one of three nodes, each in turn, needs a second and more for a sync, or for each packet, or both:
    appends take at most twice as long as before (median and 99th percentile), for the two fast ones are a
    majority; and the slow one, whose backlog is bounded, has caught up when it is fast again.
    """

    async def script(stage: Stage) -> None:
        before = await latencies(stage, "before")
        for name, role in stage.storage.items():
            if slow in ("disk", "both"):
                role.disk.sync_seconds = Seconds(1.0, 3.0)
            if slow in ("network", "both"):
                for server in stage.servers:
                    link = stage.loop.network.link(server, name), stage.loop.network.link(name, server)
                    for one in link:
                        one.latency_seconds = (0.5, 1.5)
            during = await latencies(stage, f"while-{name}-is-slow")
            median, high = SAMPLES // 2, SAMPLES * 99 // 100
            assert during[median] <= 2 * before[median], (before[median], during[median])
            assert during[high] <= 2 * before[high], (before[high], during[high])
            stage.heal_network()
            role.heal_disk()
            await stage.whole(120.0)

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(1))
def test_scenario_tigerbeetle_0_16_11_no_call_waits_for_ever(seed: int) -> None:
    """TigerBeetle 0.16.11: a client retried forever and could not be given a deadline.

    Here the majority is gone for longer than the callers want to wait: each call ends when its deadline says,
    certainly failed or unknown, and the calls of later, with the majority back, succeed.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(5)) == 5
        lost = stage.rng.sample(list(stage.storage.values()), 2)
        stage.dark(lost)
        if stage.rng.random() < 0.5:
            stage.owner().kill()
        ops: list[AppendOp] = []

        async def use(client: TrackedClient) -> None:
            for deadline in (0.5, 2.0, 8.0):
                op = stage.new_append("impatient")
                ops.append(op)
                assert not await client.append(op, deadline_seconds=deadline)
                assert op.completed_at - op.invoked_at <= deadline + 0.1
                start = stage.loop.time()
                await client.high_water_mark(0, deadline)
                assert stage.loop.time() - start <= deadline + 0.1

        await stage.finished(stage.user("impatient", use))
        assert all(op.outcome in (Outcome.FAILED, Outcome.UNKNOWN) for op in ops)
        stage.light(lost)
        assert len(await stage.write(5)) == 5

    play(seed, script)
