"""Who gets the next place: impaired ones first, and nobody is passed over for long."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_tests.run.test_workers import Stage, working
from waltz_operator.run.places import Places, Urgency
from waltz_operator.run.reconcile import PassResult
from waltz_operator.run.workers import Key
from waltz_protocol.aio.tasks import spawn

CLUSTERS = 50
ROLLING = 10
PASS = 0.4
"""Seconds that a pass takes which does something."""

looptime = pytest.mark.looptime


async def hold(places: Places, urgency: Urgency, seconds: float, order: list[str], name: str) -> None:
    async with places.taken(urgency):
        order.append(name)
        await asyncio.sleep(seconds)


@looptime
async def test_the_most_urgent_comes_first_and_those_alike_in_their_order() -> None:
    order: list[str] = []
    places = Places(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(places, Urgency.DUE, 1, order, "first"))
        await asyncio.sleep(0.1)
        for name, urgency in (("due", Urgency.DUE), ("changed", Urgency.CHANGED), ("hurt", Urgency.IMPAIRED)):
            group.create_task(hold(places, urgency, 0.1, order, name))
            group.create_task(hold(places, urgency, 0.1, order, f"{name} too"))
    assert order == ["first", "hurt", "hurt too", "changed", "changed too", "due", "due too"]


@looptime
async def test_nobody_waits_without_end() -> None:
    """Impaired ones come again and again; whoever is only due gets a place when its allowance is over."""
    order: list[str] = []
    places = Places(1)

    async def ill(name: str) -> None:
        for _ in range(40):
            await hold(places, Urgency.IMPAIRED, 1, order, name)

    async with asyncio.TaskGroup() as group:
        group.create_task(ill("a"))
        group.create_task(ill("b"))
        await asyncio.sleep(0.1)
        group.create_task(hold(places, Urgency.DUE, 1, order, "due"))
    assert 8 <= order.index("due") <= 13


@given(seed=st.integers(0, 10_000), number=st.integers(1, 4))
def test_no_place_is_lost_or_given_twice(seed: int, number: int) -> None:
    """Whoever is cancelled, while it waits, in the moment in which it gets a place, or while it has one."""
    rng = random.Random(seed)

    async def scenario() -> None:
        places, inside, most = Places(number), 0, 0

        async def one() -> None:
            nonlocal inside, most
            async with places.taken(rng.choice(list(Urgency))):
                inside += 1
                most = max(most, inside)
                try:
                    for _ in range(rng.randrange(4)):
                        await asyncio.sleep(0)
                finally:
                    inside -= 1

        tasks = []
        for _ in range(30):
            tasks.append(spawn(one(), "holder"))
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            if rng.random() < 0.4:
                rng.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert most <= number
        assert inside == places.waiting == 0
        async with asyncio.timeout(1):
            for _ in range(number):
                await places.taken(Urgency.DUE).__aenter__()

    asyncio.run(scenario())


def key(number: int) -> Key:
    return ("demo", f"c{number}")


async def fifty(stage: Stage, ill: Key) -> None:
    """Fifty clusters at rest, of which ten roll: their passes take a while and come one after the other. One
    more is impaired, and is looked at each second."""

    async def body(one: Key) -> PassResult:
        number = int(one[1][1:])
        await asyncio.sleep(PASS if number < ROLLING or one == ill else 0.02)
        if one == ill:
            return PassResult(1.0, True, impaired=True)
        return PassResult(0.1, True) if number < ROLLING else PassResult(30.0, False)

    stage.body = body
    for number in range(CLUSTERS):
        stage.workers.wake(key(number))


@looptime
async def test_fifty_clusters_of_which_ten_roll_and_one_is_is_impaired() -> None:
    ill = key(CLUSTERS - 1)
    async with working(concurrency=4) as stage:
        await fifty(stage, ill)
        await asyncio.sleep(120)
        gaps = [after - before for before, after in pairwise(stage.times(ill))]
        # its pass, its pause, and at most the rest of one pass of another
        assert max(gaps[1:]) <= PASS + 1.0 + PASS + 0.05
        for number in range(ROLLING, CLUSTERS - 1):
            times = stage.times(key(number))
            assert len(times) >= 3, f"cluster {number} starves"
            assert max(b - a for a, b in pairwise(times)) <= 30 + Urgency.DUE.value + 3
        shares = [len(stage.times(key(number))) for number in range(ROLLING)]
        assert max(shares) - min(shares) <= 0.1 * max(shares), f"not fair among those that roll: {shares}"


@looptime
async def test_a_cluster_that_is_well_again_comes_in_its_turn() -> None:
    async with working(concurrency=1) as stage:
        verdicts = iter([True, True, False])

        async def body(_: Key) -> PassResult:
            return PassResult(1.0, False, impaired=next(verdicts, False))

        stage.body = body
        stage.workers.wake(key(0))
        await asyncio.sleep(1.5)
        worker = stage.workers._workers[key(0)]
        found = [worker.urgency]
        await asyncio.sleep(3)
        found.append(worker.urgency)
        stage.workers.wake(key(0), changed=False)
        found.append(worker.urgency)
        stage.workers.wake(key(0))
        found.append(worker.urgency)
        assert found == [Urgency.IMPAIRED, Urgency.DUE, Urgency.DUE, Urgency.CHANGED]
