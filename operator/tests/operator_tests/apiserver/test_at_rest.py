"""What a cluster at rest costs a real API server beside the watches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.test_refusals import condition
from operator_tests.apiserver.world import NAME, World
from waltz_operator.kube import kinds
from waltz_operator.plan.builder import LATER
from waltz_operator.run.retained_looks import MAX_AGE_SECONDS

MAX_READS_PER_MINUTE = 2.0


class Counting:
    """In front of the API server: counts every request by its verb."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        really = getattr(self._real, name)

        async def call(*arguments: Any, **more: Any) -> Any:
            self.asked[name] += 1
            return await really(*arguments, **more)

        return call


async def who_ends_without_a_word_is_missed(world: World) -> None:
    """No watch reports it: the connection ends that was kept to it."""
    require(bool(world.operator.parts.observer._kept), "nothing is kept: this is about nothing")
    name = next(one for one in world.machinery.pods if "storage" in one)
    await world.machinery.crash(name)
    await world.operator.one_pass(world.namespace)
    missed = await condition(world, "ReplicasCaughtUp")
    require(missed["status"] != "True", f"{missed}")
    await world.settle()
    back = await condition(world, "ReplicasCaughtUp")
    require(back["status"] == "True", f"{back}")
    await world.operator.one_pass(world.namespace)


def test_at_rest_it_reads_twice_a_minute_at_most_and_writes_nothing(
    plane: Plane, record_property: Callable[[str, object], None]
) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=3))
        asked: Counter[str] = world.operator.parts.kube.asked  # type: ignore[attr-defined]
        looks = world.operator.parts.reconciler.looks
        await world.operator.one_pass(world.namespace)
        asked.clear()
        await world.operator.one_pass(world.namespace)
        everything = asked.total()
        looks.watching = lambda: True
        asked.clear()
        passes = int(MAX_AGE_SECONDS / LATER)
        for _ in range(passes):
            result = await world.operator.one_pass(world.namespace)
            require(not result.wrote and not result.error, f"it is not at rest: {result}")
            world.clock_offset += LATER
        require(set(asked) <= {"get", "list"}, f"it writes: {asked}")
        minutes = passes * LATER / 60.0
        record_property(
            "requests to the API server of a cluster at rest, per minute", asked.total() / minutes
        )
        require(
            asked.total() / minutes <= MAX_READS_PER_MINUTE,
            f"{asked} in {minutes:g} minutes; a whole look takes {everything}",
        )
        await who_ends_without_a_word_is_missed(world)
        service = await world.kube.get(kinds.SERVICE, world.namespace, NAME)
        await world.kube.delete(kinds.SERVICE, world.namespace, NAME, uid=service["metadata"]["uid"])
        looks.changed((world.namespace, NAME))
        await world.operator.one_pass(world.namespace)
        await world.kube.get(kinds.SERVICE, world.namespace, NAME)  # it is back

    plane.run(scenario, through=Counting)
