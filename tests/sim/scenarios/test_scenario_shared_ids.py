"""Client ids that are given out twice: the counter in ZooKeeper went back (a backup restored, a tree
copied)."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.checkers.history import Outcome
from tests.sim.scenarios.stage import Stage, play, seeds
from tests.sim.workloads.tracked import TrackedClient


@pytest.mark.parametrize("when", ["cut off", "side by side"])
@pytest.mark.parametrize("seed", seeds(3))
def test_scenario_safety_e5_two_living_clients_have_one_id(seed: int, when: str) -> None:
    """Both counted their requests from 1, in the same generation: the first, cut off with an append on its
    way, was informed that the second one's commit was its own. Side by side the second was never mounted."""

    async def script(stage: Stage) -> None:
        assert len(await stage.write(5)) == 5
        path = stage.state.paths.client_ids
        counter = stage.zookeeper.find(path)
        assert counter is not None
        before = counter.data
        ids: set[int] = set()
        ready, done = asyncio.Event(), asyncio.Event()

        async def append(client: TrackedClient, name: str) -> None:
            op = stage.new_append(name)
            await client.append(op, deadline_seconds=60.0)
            assert op.outcome is Outcome.COMMITTED, (name, op.outcome, op.error)

        async def first(client: TrackedClient) -> None:
            ids.add(client.client.client_id)
            await append(client, "first")
            owner = stage.owner().name
            async with asyncio.TaskGroup() as tasks:
                if when == "cut off":
                    stage.block(
                        "first", owner
                    )  # requests do not get through; the connection is thought alive
                    tasks.create_task(append(client, "first"))
                    await asyncio.sleep(0.2)
                    stage.loop.network.reset("first", owner)
                ready.set()
                if when == "cut off":
                    await done.wait()
                    stage.heal_network()
            while not done.is_set():
                await append(client, "first")
            await append(client, "first")

        async def second(client: TrackedClient) -> None:
            ids.add(client.client.client_id)
            for _ in range(20):
                await append(client, "second")
            done.set()

        one = stage.user("first", first)
        await stage.until(ready.is_set, 60.0, "the first client is there")
        stage.zookeeper.set(path, before, -1)
        two = stage.user("second", second)
        await stage.finished(two)
        await stage.finished(one)
        assert len(ids) == 1

    play(seed, script)
