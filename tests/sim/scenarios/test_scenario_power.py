"""Power that fails everywhere at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.checkers.history import AppendOp, Outcome
from tests.sim.kernel.disk import Seconds
from tests.sim.scenarios.stage import Machine, Stage, play, seeds
from tests.sim.workloads.tracked import TrackedClient


@pytest.mark.parametrize("seed", seeds(5))
@pytest.mark.parametrize("who", ["all", "storage", "majority"])
def test_scenario_nats_2_12_1_coordinated_power_loss_right_after_acknowledgements(
    who: str, seed: int
) -> None:
    """NATS 2.12.1 acknowledged before it synced: a coordinated power loss took 131,418 of 930,005
    acknowledged messages.

    Here the power fails in the very moment in which the application hears of an acknowledgement, with more
    appends on their way and syncs that take long. What was acknowledged is there afterwards, in its place.
    """

    async def script(stage: Stage) -> None:
        acknowledged: list[AppendOp] = []
        last_before_dark = 5 + stage.rng.randrange(40)
        roles = list(stage.storage.values())
        for role in roles:
            role.disk.sync_seconds = Seconds(0.002, 0.1)
        choices: dict[str, list[Machine]] = {
            "all": [*roles, *stage.servers.values()],
            "storage": [*roles],
            "majority": [*stage.rng.sample(roles, 2)],
        }
        victims = choices[who]

        async def use(client: TrackedClient) -> None:
            async def one() -> None:
                op = stage.new_append("writer")
                await client.append(op, deadline_seconds=60.0)
                if op.outcome is Outcome.COMMITTED:
                    acknowledged.append(op)
                    if len(acknowledged) == last_before_dark:
                        stage.loop.kernel_later(0.0, stage.dark, victims)

            while len(acknowledged) < last_before_dark + 10:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(1 + stage.rng.randrange(4)):
                        tasks.create_task(one())
                await asyncio.sleep(0.001)

        writer = stage.user("writer", use)
        await stage.until(lambda: len(acknowledged) >= last_before_dark, 60.0, "acknowledgements")
        await asyncio.sleep(2.0 * stage.rng.random())
        stage.light(victims)
        await stage.finished(writer)
        assert stage.history.book.mark(0) >= last_before_dark - 1

    stage = play(seed, script)
    assert stage.counts["appends committed"] >= 15
